"""Steps and looks in turn, until the fit is sure, or the budget ends."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from dlrd.fitting.automatic.begin import FIRST_GRADIENTS
from dlrd.fitting.automatic.course import Course, fresh_state, look_key, take_look, take_steps
from dlrd.fitting.automatic.look import BATCH, MIN_DRAWS, Look, improvement
from dlrd.fitting.automatic.mode import mean_curvature
from dlrd.fitting.automatic.plan import FACTOR, Plan
from dlrd.fitting.automatic.starts import with_curvature
from dlrd.fitting.automatic.stride import stride
from dlrd.fitting.automatic.target import Target, host_noise
from dlrd.fitting.loop import Observer
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.step import Method
from dlrd.gradients.curvature import Curved, DenseCurvature
from dlrd.gradients.estimate import split

LOOK_SHARE, MAX_LOOK_SHARE = 0.25, 0.5
"""Draws of a look, as a share of the steps' gradients so far: at first, and to make sure."""
CURVATURE_SHARE, MIN_CURVATURES, MAX_CURVATURES = 0.5, 4, 32
"""Gradients for Hessians at each look, as a share of the steps' so far, and how many Hessians."""
CERTAIN = 0.5
"""The bound on the gap must be below this share of the tolerance: ½ ‖g‖² may be too low, seen by half."""
MAX_ROLLBACKS = 20


def go_on(
    method: Method,
    course: Course,
    key: Key[Array, ""],
    *,
    tolerance: float,
    max_gradients: int,
    plan: Plan,
    observers: list[Observer],
    after_look: Callable[[Course], None],
) -> Outcome:
    """Takes steps and looks in turn until the outcome is known."""
    while True:
        if course.judged_at < course.looked_at:
            outcome = _judged(method, course, key, tolerance, max_gradients, plan)
            if outcome is not Outcome.RUNNING:
                return outcome
            course.judged_at = course.looked_at
            after_look(course)
        done, left = int(course.state.step[0]), max_gradients - course.num_gradients
        # With a look behind the last step, for which what is left must not be too little.
        share = min(LOOK_SHARE * course.gradients["steps"], 0.25 * left)
        affordable = int(left - max(share, MIN_DRAWS)) // method.num_draws
        goal = min(_next_stop(course.looked_at, method.num_draws), done + affordable)
        if goal <= course.looked_at:
            return Outcome.BUDGET
        course.state = course.state._replace(outcome=jnp.zeros_like(course.state.outcome))
        take_steps(method, course, goal, observers)
        outcome = Outcome(int(course.state.outcome[0]))
        if outcome is Outcome.INTERRUPTED:
            return outcome
        if outcome is Outcome.DIVERGED:
            if not _roll_back(method, course, key):
                return outcome
            continue
        left = max_gradients - course.num_gradients
        num_blocks = int(min(LOOK_SHARE * course.gradients["steps"], left)) // MIN_DRAWS
        take_look(method, course, key, max(num_blocks, 1) * MIN_DRAWS)


def _judged(
    method: Method,
    course: Course,
    key: Key[Array, ""],
    tolerance: float,
    max_gradients: int,
    plan: Plan,
) -> Outcome:
    """What the latest look means; `RUNNING` if the fit should go on, perhaps from elsewhere."""
    seen = _closer(method, course, key, tolerance, max_gradients)
    if seen.is_outside and course.gradients["steps"] >= 4 * FIRST_GRADIENTS:
        return Outcome.DIVERGED
    if _has_fallen(seen, course):
        return Outcome.RUNNING if _roll_back(method, course, key) else Outcome.DIVERGED
    if np.isnan(seen.gap):
        # The same noise for both makes a quarter of a look's draws enough.
        wanted = max(seen.num_draws // 4, MIN_DRAWS // 2)
        num_draws = min(wanted, (max_gradients - course.num_gradients) // 2) // BATCH * BATCH
        has_agreed = num_draws > 0 and _has_agreed(method, course, key, num_draws, tolerance)
        return Outcome.AGREED if has_agreed and not seen.share_bad else Outcome.RUNNING
    if _is_certain(seen, tolerance) and not seen.share_bad:
        return Outcome.CERTIFIED
    if seen.gain - 2 * seen.gain_error > tolerance and plan.has_strides:
        _take_stride(method, course, key, max_gradients - course.num_gradients)
    if plan.is_updating:
        _update_curvature(method, course, key, max_gradients - course.num_gradients)
    return Outcome.RUNNING


def _next_stop(done: int, num_draws: int) -> int:
    """The step behind which the next look is due: each time twice as many."""
    stop = max(FIRST_GRADIENTS // num_draws, 1)
    while stop <= done:
        stop *= 2
    return stop


def _closer(
    method: Method, course: Course, key: Key[Array, ""], tolerance: float, max_gradients: int
) -> Look:
    """The latest look, longer while noise alone keeps it from being sure."""
    seen, steps = course.looks[-1], course.gradients["steps"]
    while (
        seen.gap <= 0.5 * CERTAIN * tolerance
        and seen.gain <= 0.5 * tolerance
        and not _is_certain(seen, tolerance)
        and seen.num_draws < max(4 * MIN_DRAWS, MAX_LOOK_SHARE * steps)
        and course.num_gradients + seen.num_draws <= max_gradients
    ):
        seen = take_look(method, course, key, 2 * seen.num_draws, is_longer=True)
    return seen


def _is_certain(seen: Look, tolerance: float) -> bool:
    return seen.gap_bound <= CERTAIN * tolerance and seen.gain_bound <= tolerance


def _take_stride(method: Method, course: Course, key: Key[Array, ""], left: int) -> None:
    """Goes on far along the way since the look before, if that helps, with new averages."""
    before, now = course.with_arrays(course.before), course.found
    found, num_gradients = stride(method.log_density, before, now, look_key(course.looked_at, key, 3), left)
    course.gradients["certificates"] += num_gradients
    if found is not now:
        course.family, course.latest = found, split(found)[0]
        assert course.state.learning_rate is not None
        rate = float(course.state.learning_rate[0])
        course.state = fresh_state(method, found, key, rate)._replace(step=course.state.step)


def _update_curvature(method: Method, course: Course, key: Key[Array, ""], left: int) -> None:
    """Brings the curvature of a mean-field normal up to date, once it is cheap beside the steps."""
    found = course.found
    if not isinstance(found, Curved) or not isinstance(found.curvature, DenseCurvature):
        return
    cost = 2 * found.noise_size
    affordable = min(CURVATURE_SHARE * course.gradients["steps"], left)
    num_points = min(MAX_CURVATURES, int(affordable / cost))
    if num_points < MIN_CURVATURES:
        return
    target = Target(method.log_density, found.family.loc.dtype)
    half = host_noise(look_key(course.looked_at, key, 1), (num_points // 2, found.noise_size))
    loc, std = np.asarray(found.family.mean, float), np.asarray(found.family.std, float)
    points = loc + std * np.concatenate([half, -half])
    trust = max(0.5, len(points) / (course.num_curvatures + len(points)))
    curvature = mean_curvature(target, points, found.curvature, trust)
    course.family = with_curvature(found.family, curvature)
    course.num_curvatures += len(points)
    course.gradients["curvature"] += target.num_gradients


def _has_fallen(seen: Look, course: Course) -> bool:
    """Whether the ELBO is far below the best that was seen."""
    num_parameters = len(seen.gradients[0]) if seen.gradients is not None else 0
    return seen.elbo < course.best[0] - max(5 * seen.elbo_error, 1.0 + num_parameters**0.5)


def _roll_back(method: Method, course: Course, key: Key[Array, ""]) -> bool:
    """Back to the best arrays that were seen, with smaller steps; whether that was possible."""
    if course.num_rollbacks >= MAX_ROLLBACKS or course.best[1] is None:
        return False
    course.num_rollbacks += 1
    assert course.state.learning_rate is not None
    rate = float(course.state.learning_rate[0]) * FACTOR
    state = fresh_state(method, course.with_arrays(course.best[1]), key, rate)
    course.state = state._replace(step=course.state.step)
    return True


def _has_agreed(
    method: Method, course: Course, key: Key[Array, ""], num_draws: int, tolerance: float
) -> bool:
    """Whether twice as many steps have twice in a row not raised the ELBO by more than the tolerance."""
    if course.judged_at == 0:  # the first look: only the start came before
        return False
    gain, error = improvement(
        method.log_density,
        course.with_arrays(course.before),
        course.with_arrays(course.latest),
        look_key(course.looked_at, key, 2),
        num_draws,
    )
    course.gradients["certificates"] += 2 * num_draws
    course.num_agreed = course.num_agreed + 1 if gain + 2 * error <= tolerance else 0
    return course.num_agreed >= 2
