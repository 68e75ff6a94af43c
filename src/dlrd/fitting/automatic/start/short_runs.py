"""The beginning of an automatic fit: the best of several starts, after a short run each."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from dlrd.families import Family, Moments, Patterned, Startable, split
from dlrd.families.curvature import MAX_WHOLE
from dlrd.fitting.automatic.judge.certificate import CONFIDENCE
from dlrd.fitting.automatic.judge.look import NUM_BLOCKS, prepare_look
from dlrd.fitting.automatic.keys import derived
from dlrd.fitting.automatic.plan import Task, working_form
from dlrd.fitting.automatic.start.candidates import Start, as_given, find_footholds, find_modes
from dlrd.fitting.automatic.start.objective import Objective
from dlrd.fitting.automatic.state import AutomaticState, Search, fresh_steps
from dlrd.fitting.automatic.steps.stepping import (
    affordable_steps,
    has_cheap_values,
    steps_for,
    take_certificate,
    take_steps,
)
from dlrd.fitting.history import Recorder
from dlrd.fitting.loop import prepare_steps
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.program import in_background
from dlrd.gradients.sobol import load_points
from dlrd.models import Simulated

MAX_START_SHARE = 0.25
"""Of the budget: when the search has spent it, no other mode is looked for."""
MAX_START_GAP = 1.0
"""In nats, still to be gained after the short run from a mode: beyond, it may be a trap."""
NUM_HALVINGS = 3
"""How often the runs that may still overtake the best one are prolonged, each time to twice the steps."""


def begin(task: Task, family: Family) -> AutomaticState:
    """Finds where to start: the best of several, after runs that are as short as tells them apart."""
    given = as_given(working_form(task.method.model, family))
    is_searching = task.is_natural and task.plan.has_start and task.method.model.is_exact
    if not is_searching or not isinstance(family, Startable):
        return _short_run(task, given.family)
    if task.method.draws != "independent":
        in_background(load_points, family.noise_size)
    dtype = jnp.result_type(*jax.tree.leaves(split(family)[0]))
    objective = Objective(task.method.model, dtype, _search_budget(task), task.deadline)
    starts: list[Start] = []
    is_small = task.method.model.dim <= MAX_WHOLE
    has_modes = task.plan.has_modes and is_small and not isinstance(family, Patterned)
    if has_modes:
        objective.prepare(task.method.model.dim, task.plan.num_starts)
    if has_modes or isinstance(task.method.model, Simulated):  # while the search compiles, too, or waits
        prepare(task, given.family, fresh(task, given.family))
    if has_modes:
        key, limit = derived(task.key, 1), MAX_START_SHARE * task.max_gradients
        starts = find_modes(objective, family, key, task.plan.num_starts, limit)
    runs: list[tuple[Start, AutomaticState]] = []
    for start in starts:
        if not runs or _is_affordable(task, _spent(objective, runs)):
            runs.append((start, _short_run(task, start.family, _spent(objective, runs))))
    # A mode from which hardly anything is to be gained is the place; any other may be a trap.
    if not all(_promise(state) <= MAX_START_GAP for _, state in runs) or not runs:
        key = derived(task.key, 2)
        objective.max_gradients -= sum(state.num_gradients for _, state in runs)
        for start in find_footholds(objective, family, _spread(family), key) or [given]:
            spent, has_none = _spent(objective, runs), all(_has_failed(state) for _, state in runs)
            if has_none or _is_affordable(task, spent + task.first_gradients):
                runs.append((start, _short_run(task, start.family, spent, is_measured=True)))
    return _best(task, runs, objective.num_gradients)


def _is_level(state: AutomaticState, highest: float) -> bool:
    """Whether a run has little to gain, and its ELBO may well be the highest."""
    assert state.latest is not None
    seen = state.latest.certificate
    return _promise(state) <= MAX_START_GAP and seen.elbo + CONFIDENCE * seen.elbo_error >= highest


def _search_budget(task: Task) -> int:
    """All but what the steps and the certificate of a short run take; or that alone, if it is little."""
    num_parts = 2 if task.max_gradients >= 4 * task.first_gradients else 1
    return task.max_gradients - num_parts * task.first_gradients


def _spent(objective: Objective, runs: list[tuple[Start, AutomaticState]]) -> int:
    return objective.num_gradients + sum(state.num_gradients for _, state in runs)


def _is_affordable(task: Task, spent: int) -> bool:
    """Whether the budget allows another short run."""
    return spent + 2 * task.first_gradients <= task.max_gradients and not task.is_late


def _best(task: Task, runs: list[tuple[Start, AutomaticState]], num_searched: int) -> AutomaticState:
    """The run that goes on, once those that rise faster had the time to overtake it."""
    alive = [i for i, (_, state) in enumerate(runs) if not _has_failed(state)] or [0]
    for _ in range(NUM_HALVINGS):
        highest = max(elbo_bound(runs[i][1]) for i in alive)
        alive = [i for i in alive if not _reach(runs[i][1]) < highest]
        spent = num_searched + sum(state.num_gradients for _, state in runs)
        cost = sum(2 * runs[i][1].num_gradients for i in alive)
        if len(alive) < 2 or spent + cost > 2 * MAX_START_SHARE * task.max_gradients:
            break
        for i in alive:
            runs[i] = runs[i][0], _prolonged(task, runs[i][1])
    # Of those that cannot be told apart, one from a mode: there a certificate says more.
    highest = max(elbo_bound(runs[i][1]) for i in alive)
    at_modes = [i for i in alive if runs[i][0].is_mode and _is_level(runs[i][1], highest)]
    best = max(at_modes or alive, key=lambda i: elbo_bound(runs[i][1]))
    start, state = runs[best]
    others = ()
    if start.is_mode:
        others = tuple(
            _elbo(state) - _elbo(other) for i, (each, other) in enumerate(runs) if each.is_mode and i != best
        )
    spent = {phase: sum(each.gradients[phase] for _, each in runs) for phase in state.gradients}
    search = Search(others, start.funnel, start.is_mode)
    return replace(state, gradients=spent | {"start": num_searched}, search=search)


def _spread(family: Startable) -> np.ndarray:
    """How wide the family is, in each coordinate."""
    return np.asarray(family.std, float) if isinstance(family, Moments) else np.ones(len(family.mean))


def _short_run(task: Task, family: Family, spent: int = 0, is_measured: bool = False) -> AutomaticState:
    """The first steps and the first certificate, as far as the budget allows, of which others have `spent`.

    Where the start itself is measured, too, the fit cannot end below it: steps may lead away from a good
    place whose geometry they do not know yet.
    """
    state = fresh(task, family)
    prepare(task, family, state)
    if is_measured and _is_affordable(task, spent + task.first_gradients):
        state = take_certificate(task, state, task.first_gradients)
    num_steps = min(
        steps_for(task, state, task.first_gradients), affordable_steps(task, state.spent("start", spent))
    )
    return run_until(task, state, num_steps)


def fresh(task: Task, family: Family) -> AutomaticState:
    """The state before the first step."""
    return AutomaticState(
        steps=fresh_steps(task.method, family, task.key, task.first_rate),
        rest=split(family)[1],
        recorder=Recorder.for_budget(task.max_gradients // task.method.num_draws + 1),
        gradients={"start": 0, "steps": 0, "certificates": 0, "curvature": 0},
        origin=family,
    )


def prepare(task: Task, family: Family, state: AutomaticState) -> None:
    """Begins to compile what all runs from such a family need."""
    prepare_steps(task.method, state.rest, state.steps)
    batch = task.first_gradients // NUM_BLOCKS
    prepare_look(task.method.model, family, task.key, batch=batch)
    if has_cheap_values(task.method.model):
        prepare_look(task.method.model, family, task.key, has_gradients=False, batch=batch)


def _prolonged(task: Task, state: AutomaticState) -> AutomaticState:
    return run_until(task, state.running, 2 * state.step)


def run_until(task: Task, state: AutomaticState, num_steps: int) -> AutomaticState:
    """Steps and a certificate."""
    state = take_steps(task, state, num_steps, lambda state: None)
    if state.outcome is Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    return take_certificate(task, state, task.first_gradients)


def _has_failed(state: AutomaticState) -> bool:
    """Whether not even a first step could be taken."""
    return state.step == 0 and state.outcome is Outcome.DIVERGED


def _promise(state: AutomaticState) -> float:
    """What seems still to be gained, in nats; nan where that cannot be told."""
    assert state.latest is not None
    return max(state.latest.certificate.gap, state.latest.certificate.gain)


def _reach(state: AutomaticState) -> float:
    """How high the ELBO may get; nan where that cannot be told."""
    return max(_elbo(state), elbo_bound(state)) + float(np.maximum(_promise(state), 0.0))


def elbo_bound(state: AutomaticState) -> float:
    """What the ELBO is surely above, of the best that was measured."""
    return float("-inf") if state.best is None else state.best.certificate.elbo_bound


def _elbo(state: AutomaticState) -> float:
    assert state.latest is not None
    return state.latest.certificate.elbo
