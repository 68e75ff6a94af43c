"""A stride: far along the way that a fit has come, or a flat one, where steps would take ever longer for it.

In a funnel, say, means and scales would have to change together, and natural gradients change them one after
the other: each time twice as many steps gain about the same. The way that they take shows where to go.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.families import Certifiable, Charted, Family, split
from dlrd.fitting.automatic.judge.certificate import CONFIDENCE, improvement
from dlrd.fitting.automatic.judge.stopping import is_far_along_flat_ways
from dlrd.fitting.automatic.plan import Task
from dlrd.fitting.automatic.state import AutomaticState
from dlrd.fitting.automatic.steps.stepping import certificate_key
from dlrd.models import Model

NUM_DRAWS = 128
"""Behind each comparison of two families, with the same noise for both."""
MAX_LENGTH = 64
"""In units of the way so far."""
MAX_NEWTON = 2.0
"""Of a step along flat ways, in the family's own metric: so far its curvature may stay the same."""


def take_stride(task: Task, state: AutomaticState) -> AutomaticState:
    """Goes on far along the way to the latest family, if that helps, with new averages."""
    assert state.latest is not None
    now, key = state.latest.family, certificate_key(task, state, use=3)
    assert isinstance(now, Certifiable)
    model, seen = task.method.model, state.latest.certificate
    left = task.max_gradients - state.num_gradients
    if isinstance(now, Charted) and is_far_along_flat_ways(seen, task.tolerance):
        found, num_gradients = newton_stride(model, now, seen.flat_step, key, left)
    else:
        found, num_gradients = stride(model, state.latest.came_from, now, key, left)
    state = state.spent("certificates", num_gradients)
    if found is now:
        return state
    moved = replace(state, origin=found, rest=split(found)[1])
    return moved.restarted(task.method, found, task.key, state.rate)


def newton_stride(
    model: Model,
    now: Charted,
    step: Float[np.ndarray, " coordinate"],
    key: Key[Array, ""],
    max_gradients: int,
) -> tuple[Charted, int]:
    """The family after a step along flat ways, unless its ELBO is surely lower.

    Few draws cannot tell that it is higher: that said the gradient, of many.

    Args:
        model: what is fitted.
        now: where the step begins.
        step: to the optimum along flat ways, as far as the gradient and the bend tell.
        key: of the draws of the comparison.
        max_gradients: that may be spent.

    Returns:
        The family, `now` itself where the step does not help, and the gradients spent.
    """
    if max_gradients < 2 * NUM_DRAWS:
        return now, 0
    size = float(np.linalg.norm(step))
    further = now.corrected(step * min(1.0, MAX_NEWTON / size))
    gain, error = improvement(model, now, further, key, NUM_DRAWS)
    is_worse = not gain + CONFIDENCE * error > 0
    return (now if is_worse else further), 2 * NUM_DRAWS


def stride(
    model: Model, before: Family, now: Certifiable, key: Key[Array, ""], max_gradients: int
) -> tuple[Certifiable, int]:
    """The family 1, 2, 4, … times as far along the way from `before` to `now`, as long as its ELBO rises.

    Args:
        model: what is fitted.
        before: where the way began.
        now: where it has led.
        key: of the draws of the comparisons.
        max_gradients: that may be spent.

    Returns:
        The family, `now` itself where a stride does not help, and the gradients spent.
    """
    best, num_gradients, length = now, 0, 1
    while length <= MAX_LENGTH and num_gradients + 2 * NUM_DRAWS <= max_gradients:
        further = now.extrapolated(before, length)
        gain, error = improvement(model, best, further, key, NUM_DRAWS)
        num_gradients += 2 * NUM_DRAWS
        if not gain > CONFIDENCE * error:  # nan where nothing is finite so far out
            break
        best, length = further, 2 * length
    return best, num_gradients
