"""The beginning of an automatic fit: the best of several starts, after a short run each."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from dlrd.families import Family
from dlrd.fitting.automatic.course import Course, fresh_state, take_look, take_steps
from dlrd.fitting.automatic.look import MIN_DRAWS
from dlrd.fitting.automatic.plan import Plan, first_rate
from dlrd.fitting.automatic.starts import as_given, find_starts
from dlrd.fitting.automatic.target import Target
from dlrd.fitting.history import Recorder
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.step import Method
from dlrd.gradients import natural_gradient
from dlrd.gradients.estimate import split

FIRST_GRADIENTS = 256
"""Of the steps before the first look; twice as many before the next."""
MAX_START_SHARE = 0.25
"""Of the budget: when the search has spent it, no other mode is looked for."""
MAX_START_GAP = 1.0
"""In nats, still to be gained after the short run from a mode: beyond, the family as given is tried too."""


def begin(method: Method, family: Family, key: Key[Array, ""], max_gradients: int, plan: Plan) -> Course:
    """Finds where to start: the best of several, after a short run each."""
    max_steps = max_gradients // method.num_draws + 1
    given = as_given(family)
    starts, num_start = [given], 0
    is_searching = method.estimator is natural_gradient and plan.has_start
    if is_searching:
        target = Target(method.log_density, jnp.result_type(*jax.tree.leaves(split(family)[0])))
        starts = find_starts(
            target,
            family,
            jax.random.fold_in(key, 1),
            plan.num_starts,
            MAX_START_SHARE * max_gradients,
        )
        num_start = target.num_gradients
    affordable = max((max_gradients - num_start) // (FIRST_GRADIENTS + MIN_DRAWS), 1)
    starts = starts[:affordable]
    courses = [_short_run(method, start.family, key, max_steps) for start in starts]
    is_doubtful = any(max(look.gap, look.gain) > MAX_START_GAP for course in courses for look in course.looks)
    are_all_modes = all(start.is_mode for start in starts)
    if is_doubtful and are_all_modes and plan.num_starts > 1 and len(starts) < affordable:
        starts.append(given)
        courses.append(_short_run(method, given.family, key, max_steps))
    best = max(range(len(courses)), key=lambda i: courses[i].best[0])
    chosen = courses[best]
    spent = {phase: sum(course.gradients[phase] for course in courses) for phase in chosen.gradients}
    chosen.gradients = spent | {"start": num_start}
    chosen.is_at_mode = not is_searching or any(start.is_mode for start in starts)
    if starts[best].is_mode:
        chosen.other_modes = [
            chosen.looks[-1].elbo - course.looks[-1].elbo
            for start, course in zip(starts, courses, strict=True)
            if start.is_mode and course is not chosen
        ]
    return chosen


def _short_run(method: Method, family: Family, key: Key[Array, ""], max_steps: int) -> Course:
    """The first steps and the first look."""
    course = Course(
        family=family,
        state=fresh_state(method, family, key, first_rate(method)),
        recorder=Recorder.for_budget(max_steps),
        gradients={"start": 0, "steps": 0, "certificates": 0, "curvature": 0},
        latest=split(family)[0],
    )
    take_steps(method, course, FIRST_GRADIENTS // method.num_draws, [])
    if course.state.outcome[0] == Outcome.INTERRUPTED.value:
        raise KeyboardInterrupt
    take_look(method, course, key, MIN_DRAWS)
    return course
