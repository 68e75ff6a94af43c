"""The beginning of a fit in rounds: a short one of each rate, of which the best goes on."""

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from dlrd.families import Composed, Family, Startable, member_of, split
from dlrd.families.curvature import MAX_WHOLE
from dlrd.fitting.automatic.keys import derived
from dlrd.fitting.automatic.plan import ANNEALED_RATE, HIGHER_RATES, LOWER_RATES, Task
from dlrd.fitting.automatic.start.candidates import laplace_evidence, modes_from
from dlrd.fitting.automatic.start.mode import Mode
from dlrd.fitting.automatic.start.objective import Objective, host_noise
from dlrd.fitting.automatic.start.short_runs import MAX_START_SHARE, elbo_bound, fresh, prepare, run_until
from dlrd.fitting.automatic.state import AutomaticState
from dlrd.fitting.automatic.steps.rounds import first_length, is_last_round, with_round
from dlrd.fitting.automatic.steps.stepping import take_certificate

MIN_LOGIT = -3.0
"""Of a component at a mode, relative to the heaviest: a weight that is next to nothing has no gradient."""


def begin_rounds(task: Task, family: Family) -> AutomaticState:
    """The first round, with the rate behind which the ELBO is highest: up while it rises, or else down."""
    state = fresh(task, family)
    prepare(task, family, state)
    state = _at_modes(task, state)
    best = _tried(task, state, ANNEALED_RATE)
    spent = best.num_gradients
    for rates in (HIGHER_RATES, LOWER_RATES):
        first = best
        for rate in rates:
            begun = state.spent("start", spent - state.num_gradients)
            if is_last_round(task, begun, first_length(task, begun)) or task.is_late:
                break
            tried = _tried(task, begun, rate)
            spent = tried.num_gradients
            if not _latest_bound(tried) > _latest_bound(best):
                break
            best = tried
        if best is not first:
            break
    return best.spent("start", spent - best.num_gradients)


def _tried(task: Task, state: AutomaticState, rate: float) -> AutomaticState:
    """Behind the first round."""
    begun = with_round(task, state, state.origin, rate, first_length(task, state))
    return run_until(task, begun, round(begun.settings[1]))


def _latest_bound(state: AutomaticState) -> float:
    assert state.latest is not None
    bound = state.latest.certificate.elbo_bound
    return bound if np.isfinite(bound) else -np.inf


def _at_modes(task: Task, state: AutomaticState) -> AutomaticState:
    """From components at the modes that are found, one each, if the ELBO is higher there."""
    family, model, plan = state.origin, task.method.model, task.plan
    is_searching = plan.has_start and plan.has_modes and model.is_exact and model.has_gradient
    if not isinstance(family, Composed) or not is_searching or model.dim > MAX_WHOLE:
        return state
    kind = family.parts[0]
    limit = MAX_START_SHARE * task.max_gradients - 2 * task.first_gradients
    if not isinstance(kind, Startable) or limit < 0:
        return state
    dtype = jnp.result_type(*jax.tree.leaves(split(family)[0]))
    objective = Objective(model, dtype, limit, task.deadline)
    modes = modes_from(objective, kind, derived(task.key, 1), plan.num_starts, limit)
    state = state.spent("start", objective.num_gradients)
    if not modes or modes[0].is_cut:
        return state
    starts = (
        state,
        replace(fresh(task, _placed(family, kind, modes, derived(task.key, 2))), gradients=state.gradients),
    )
    given, placed = (take_certificate(task, each, task.first_gradients) for each in starts)
    better = placed if elbo_bound(placed) > elbo_bound(given) else given
    return better.spent("start", given.num_gradients - state.num_gradients)


def _placed(family: Composed, kind: Startable, modes: Sequence[Mode], key: Key[Array, ""]) -> Family:
    """The components at the modes, by turns: the first at each in the middle, all others at a draw there."""
    parts, logits, num_parts = [], [], len(family.parts)
    noise = host_noise(key, (num_parts, len(modes[0].point)))
    for number in range(num_parts):
        mode = modes[number % len(modes)]
        part = member_of(kind.at_mode(mode.point, mode.curvature))
        if number >= len(modes):
            aside = mode.point + np.asarray(part.std, float) * noise[number]
            part = member_of(kind.at_mode(aside, mode.curvature))
        num_there = len(range(number % len(modes), num_parts, len(modes)))
        parts.append(part)
        logits.append(laplace_evidence(mode) - np.log(num_there))
    return family.with_parts(parts, np.maximum(np.array(logits) - max(logits), MIN_LOGIT))
