"""Steps, one chunk after the other, and certificates behind them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Array, Key

from dlrd.families import Charted, Correctable, Family, SecondOrder, Teachable, split
from dlrd.fitting.automatic.judge.bend import MAX_PRODUCTS, flat_ways, num_draws_for
from dlrd.fitting.automatic.judge.certificate import (
    Certificate,
    certify,
    confirmed,
    correction,
    with_more_values,
    with_ways,
)
from dlrd.fitting.automatic.judge.psis import divergence, tail_shape
from dlrd.fitting.automatic.keys import derived
from dlrd.fitting.automatic.plan import Task
from dlrd.fitting.automatic.state import AutomaticState, Measured
from dlrd.fitting.loop import Rows, run
from dlrd.fitting.step import State
from dlrd.fitting.verdict import FAIR_TAIL
from dlrd.gradients.natural import hessian_rows
from dlrd.models import Model
from dlrd.models.second_order import COST

NUM_TAIL_DRAWS, MAX_TAIL_SHARE = 2048, 0.1
"""Draws behind k̂ at the end, and what of the fit's gradients they may cost where values are as dear."""
NUM_DOUBTFUL_DRAWS, NEAR = 4 * NUM_TAIL_DRAWS, 0.01
"""Draws behind k̂ where it is large and yet the divergence that the ratios show is below that, in nats."""
MIN_STEPS = 16
"""With Hessians, before the first certificate."""
Report = Callable[[AutomaticState], None]
"""Is told of each new state, so that none is lost when the fit is interrupted."""


def take_steps(task: Task, state: AutomaticState, num_steps: int, report: Report) -> AutomaticState:
    """Goes on until `num_steps` steps are done in all."""

    def observe(steps: State, rows: Rows) -> None:
        nonlocal state
        num_gradients = int(rows.num_done[0]) * step_cost(task, state)
        recorder = state.recorder.extended(rows.of_run(0))
        state = replace(state, steps=steps, recorder=recorder).spent("steps", num_gradients)
        report(state)

    steps = run(task.method, state.rest, state.steps, num_steps, [observe], deadline=task.deadline)
    return replace(state, steps=steps)


def step_cost(task: Task, state: AutomaticState) -> int:
    """Of one step, in gradients: one a draw, and what its Hessians take."""
    family, num_draws = state.origin, task.method.num_draws
    if not isinstance(family, SecondOrder) or family.directions is None:
        return num_draws
    return num_draws + COST * len(family.directions) * len(hessian_rows(num_draws))


def steps_for(task: Task, state: AutomaticState, num_gradients: int) -> int:
    """So many steps, at the least `MIN_STEPS` of those that take a Hessian, which gain far more."""
    num = num_gradients // step_cost(task, state)
    has_hessian = step_cost(task, state) > task.method.num_draws
    return max(num, MIN_STEPS if has_hessian else 1)


def affordable_steps(task: Task, state: AutomaticState) -> int:
    """How many more the budget allows, with the shortest certificate behind them."""
    left = task.max_gradients - state.num_gradients - task.first_gradients
    return max(left // step_cost(task, state), 0)


def take_certificate(task: Task, state: AutomaticState, num_draws: int) -> AutomaticState:
    """Measures the family where it stands."""
    family = state.family
    model, key = task.method.model, certificate_key(task, state)
    seen = certify(model, family, key, num_draws, state.origin, min_draws=task.first_gradients)
    measured = Measured(family, seen, state.origin, state.step)
    return _kept(replace(state, origin=family), measured, seen.num_draws)


def lengthen_certificate(task: Task, state: AutomaticState, num_draws: int) -> AutomaticState:
    """Goes on with the latest certificate, up to `num_draws` draws in all."""
    assert state.latest is not None
    family, shorter, came_from, _, _ = state.latest
    key = _measuring_key(task, state.latest)
    seen = certify(task.method.model, family, key, num_draws, came_from, shorter, task.first_gradients)
    return _kept(state, state.latest._replace(certificate=seen), seen.num_draws - shorter.num_draws)


def taught(state: AutomaticState) -> AutomaticState:
    """With what the latest certificate's draws have shown beside the gap, for the steps that follow."""
    seen, family = state.latest, state.family
    if seen is None or seen.certificate.lessons is None or not isinstance(family, Teachable):
        return state
    return replace(state, rest=split(family.taught(seen.certificate.lessons))[1])


def correct(task: Task, state: AutomaticState) -> AutomaticState:
    """Moves what was measured by the certificate's own gradient, and asks the ELBO how far that was right."""
    assert state.latest is not None
    family, seen, came_from, step, _ = state.latest
    assert isinstance(family, Correctable)
    better, model, min_draws = correction(family, seen), task.method.model, task.first_gradients
    num_draws = NUM_TAIL_DRAWS if has_cheap_values(model) else seen.num_draws
    measured = Measured(better, seen, came_from, step, is_corrected=True)
    key, cost = _measuring_key(task, measured), confirming_cost(model, seen)
    seen = confirmed(model, (family, better), key, seen, num_draws, min_draws)
    return _kept(state, measured._replace(certificate=seen), cost)


def confirming_cost(model: Model, seen: Certificate) -> int:
    """Of the values that a correction takes, in gradients: where they are cheap they do not count."""
    return 0 if has_cheap_values(model) else 2 * seen.num_draws


def probing_cost(model: Model, family: Family, seen: Certificate) -> int | None:
    """Of a search for flat ways, in gradients, at the most; None where gradients cannot be compared."""
    is_comparable = model.has_gradient and model.is_exact and not model.can_fail
    cost = 2 * MAX_PRODUCTS * num_draws_for(seen.num_draws)
    return cost if is_comparable and isinstance(family, Charted) else None


def probe(task: Task, state: AutomaticState) -> AutomaticState:
    """Looks for ways along which the ELBO is flat, and measures the gap with what that says."""
    assert state.latest is not None
    measured = state.latest
    family, seen, came_from, _, _ = measured
    assert isinstance(family, Charted)
    assert seen.gradients is not None
    key, gradient = certificate_key(task, state, use=6), np.mean(seen.gradients, axis=0)
    move = family.displacement(came_from)
    num_draws = num_draws_for(seen.num_draws)
    ways, num_products = flat_ways(task.method.model, family, key, gradient, move, num_draws)
    state = state.spent("certificates", 2 * num_products * num_draws)
    if ways is None:
        return state
    probed = measured._replace(certificate=with_ways(seen, family, came_from, ways))
    is_best = state.best is not None and state.best.step == measured.step
    return replace(state, latest=probed, best=probed if is_best else state.best)


def look_at_tail(task: Task, state: AutomaticState) -> AutomaticState:
    """Goes on with values alone until k̂ is steady, as far as that is little beside all the rest.

    Of models outside jax, where values are as dear as gradients; `with_values` serves the others.
    """
    if state.latest is None or has_cheap_values(task.method.model):
        return state
    spent = state.num_gradients
    affordable = min(int(MAX_TAIL_SHARE * spent), task.max_gradients - spent)
    have = state.latest.certificate.num_draws
    more = min(NUM_TAIL_DRAWS - have, affordable) // task.first_gradients * task.first_gradients
    if more <= 0:
        return state
    measured, model, min_draws = state.latest, task.method.model, task.first_gradients
    key = _measuring_key(task, measured)
    seen = with_more_values(model, measured.family, key, measured.certificate, have + more, min_draws)
    return _kept(state, measured._replace(certificate=seen), more)


def has_cheap_values(model: Model) -> bool:
    """Whether some thousand values are nothing beside a fit: in jax, and of all data."""
    return model.is_exact and not model.can_fail


def with_values(task: Task, measured: Measured) -> Measured:
    """What was measured, with so many values that k̂ is steady, where they are cheap. They do not count.

    A few ratios that are larger than others which are all near one give any k̂: the beginning of a tail, or
    nothing. More draws tell.
    """
    model, family, seen = task.method.model, measured.family, measured.certificate
    if not has_cheap_values(model):
        return measured
    key = _measuring_key(task, measured)
    seen = with_more_values(model, family, key, seen, NUM_TAIL_DRAWS, task.first_gradients)
    if tail_shape(seen.log_ratios)[0] > FAIR_TAIL and divergence(seen.log_ratios) <= NEAR:
        seen = with_more_values(model, family, key, seen, NUM_DOUBTFUL_DRAWS, task.first_gradients)
    return measured._replace(certificate=seen)


def certificate_key(task: Task, state: AutomaticState, use: int = 0) -> Key[Array, ""]:
    """A key for each use of randomness after each step, apart from those of the steps."""
    return derived(task.key, 0, state.step, use)


def _measuring_key(task: Task, measured: Measured) -> Key[Array, ""]:
    """Of the draws behind its certificate: for a corrected family others than those that have moved it."""
    return derived(task.key, 0, measured.step, 5 if measured.is_corrected else 0)


def _kept(state: AutomaticState, measured: Measured, num_draws: int) -> AutomaticState:
    state = replace(state.spent("certificates", num_draws), latest=measured)
    seen = measured.certificate
    if seen.is_outside or (state.best is not None and seen.elbo_bound <= state.best.certificate.elbo_bound):
        return state
    return replace(state, best=measured)
