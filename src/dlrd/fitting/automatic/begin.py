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
"""In nats, after the short run from a mode: beyond, the family as given is tried too."""


def begin(method: Method, family: Family, key: Key[Array, ""], max_gradients: int, plan: Plan) -> Course:
    """Finds where to start: the best of several, after a short run each."""
    max_steps = max_gradients // method.num_draws + 1
    starts, is_at_mode, num_start = [as_given(family)], True, 0
    if method.estimator is natural_gradient and plan.has_start:
        target = Target(method.log_density, jnp.result_type(*jax.tree.leaves(split(family)[0])))
        starts, is_at_mode = find_starts(
            target,
            family,
            jax.random.fold_in(key, 1),
            plan.num_starts,
            MAX_START_SHARE * max_gradients,
        )
        num_start = target.num_gradients
    affordable = (max_gradients - num_start) // (FIRST_GRADIENTS + MIN_DRAWS)
    starts = starts[: max(affordable, 1)]
    courses = [_short_run(method, start.family, key, max_steps) for start in starts]
    is_doubtful = any(look.gap > MAX_START_GAP for course in courses for look in course.looks)
    if is_at_mode and is_doubtful and plan.num_starts > 1 and len(courses) < affordable:
        courses.append(_short_run(method, as_given(family).family, key, max_steps))
    chosen = max(courses, key=lambda course: course.best[0])
    spent = {phase: sum(course.gradients[phase] for course in courses) for phase in chosen.gradients}
    chosen.gradients = spent | {"start": num_start}
    chosen.is_at_mode = is_at_mode
    at_modes = courses[: len(starts)]
    if is_at_mode and any(course is chosen for course in at_modes):
        chosen.other_modes = [
            float(chosen.best[0] - course.best[0]) for course in at_modes if course is not chosen
        ]
    return chosen


def _short_run(method: Method, family: Family, key: Key[Array, ""], max_steps: int) -> Course:
    """The first steps and the first look."""
    course = Course(
        family=family,
        state=fresh_state(method, family, key, first_rate(method)),
        recorder=Recorder.for_budget(max_steps),
        gradients={"start": 0, "steps": 0, "certificates": 0, "curvature": 0},
    )
    take_steps(method, course, FIRST_GRADIENTS // method.num_draws, [])
    if course.state.outcome[0] == Outcome.INTERRUPTED.value:
        raise KeyboardInterrupt
    take_look(method, course, key, MIN_DRAWS)
    return course
