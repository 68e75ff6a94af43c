"""The beginning of an automatic fit: the best of several starts, after a short run each."""

from dataclasses import replace

import jax
import jax.numpy as jnp

from dlrd.families import Family, Startable, split
from dlrd.fitting.automatic.judge.certificate import MIN_DRAWS
from dlrd.fitting.automatic.plan import FIRST_GRADIENTS, Task, working_form
from dlrd.fitting.automatic.start.candidates import Start, as_given, find_starts
from dlrd.fitting.automatic.start.objective import Objective
from dlrd.fitting.automatic.state import AutomaticState, Search, fresh_steps
from dlrd.fitting.automatic.steps.stepping import take_certificate, take_steps
from dlrd.fitting.history import Recorder
from dlrd.fitting.outcome import Outcome

MAX_START_SHARE = 0.25
"""Of the budget: when the search has spent it, no other mode is looked for."""
MAX_START_GAP = 1.0
"""In nats, still to be gained after the short run from a mode: beyond, the family as given is tried too."""


def begin(task: Task, family: Family) -> AutomaticState:
    """Finds where to start: the best of several, after a short run each."""
    given = as_given(working_form(task.method.model, family))
    starts, num_searched, has_searched = _candidates(task, family, given)
    affordable = max((task.max_gradients - num_searched) // (FIRST_GRADIENTS + MIN_DRAWS), 1)
    starts = starts[:affordable]
    states = [_short_run(task, start.family) for start in starts]
    is_doubtful = any(_promise(state) > MAX_START_GAP for state in states)
    are_all_modes = all(start.is_mode for start in starts)
    if is_doubtful and are_all_modes and task.plan.num_starts > 1 and len(starts) < affordable:
        starts.append(given)
        states.append(_short_run(task, given.family))
    best = max(range(len(states)), key=lambda i: _bound(states[i]))
    others = ()
    if starts[best].is_mode:
        others = tuple(
            _elbo(states[best]) - _elbo(state)
            for i, (start, state) in enumerate(zip(starts, states, strict=True))
            if start.is_mode and i != best
        )
    spent = {phase: sum(state.gradients[phase] for state in states) for phase in states[best].gradients}
    has_mode = not has_searched or any(start.is_mode for start in starts)
    return replace(states[best], gradients=spent | {"start": num_searched}, search=Search(has_mode, others))


def _candidates(task: Task, family: Family, given: Start) -> tuple[list[Start], int, bool]:
    """Families to start from, the gradients spent to find them, and whether modes were looked for."""
    is_searching = task.is_natural and task.plan.has_start and task.method.model.is_exact
    if not is_searching or not isinstance(family, Startable):
        return [given], 0, False
    objective = Objective(task.method.model, jnp.result_type(*jax.tree.leaves(split(family)[0])))
    max_gradients = MAX_START_SHARE * task.max_gradients
    key = jax.random.fold_in(task.key, 1)
    starts = find_starts(objective, family, key, task.plan.num_starts, max_gradients)
    return starts, objective.num_gradients, True


def _short_run(task: Task, family: Family) -> AutomaticState:
    """The first steps and the first certificate."""
    state = AutomaticState(
        steps=fresh_steps(task.method, family, task.key, task.first_rate),
        rest=split(family)[1],
        recorder=Recorder.for_budget(task.max_gradients // task.method.num_draws + 1),
        gradients={"start": 0, "steps": 0, "certificates": 0, "curvature": 0},
        origin=family,
    )
    state = take_steps(task, state, max(FIRST_GRADIENTS // task.method.num_draws, 1), lambda state: None)
    if state.steps.outcome[0] == Outcome.INTERRUPTED.value:
        raise KeyboardInterrupt
    return take_certificate(task, state, MIN_DRAWS)


def _promise(state: AutomaticState) -> float:
    """What seems still to be gained, in nats; nan where that cannot be told."""
    assert state.latest is not None
    return max(state.latest.certificate.gap, state.latest.certificate.gain)


def _bound(state: AutomaticState) -> float:
    return float("-inf") if state.best is None else state.best.certificate.elbo_bound


def _elbo(state: AutomaticState) -> float:
    assert state.latest is not None
    return state.latest.certificate.elbo
