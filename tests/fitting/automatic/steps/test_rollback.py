"""Back to the best that was measured."""

from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.fitting.automatic.judge.certificate import Certificate
from dlrd.fitting.automatic.plan import Task
from dlrd.fitting.automatic.state import AutomaticState, Measured
from dlrd.fitting.automatic.steps.rollback import MAX_ROLLBACKS, can_roll_back, roll_back

BEST = dlrd.MeanFieldNormal([3.0, -2.0], [0.5, 0.25]).as_start()


@pytest.fixture
def lost(
    task: Callable[..., Task], state: Callable[..., AutomaticState], certificate: Callable[..., Certificate]
) -> tuple[Task, AutomaticState]:
    """A fit that is at 0, with its best elsewhere; its rule's factor is not the usual one."""
    made = task(factor=0.5)
    fresh = state(made)
    steps = fresh.steps._replace(step=jnp.asarray([40], jnp.int32))
    return made, replace(fresh, steps=steps, best=Measured(BEST, certificate(), BEST, step=32))


def test_from_the_best_family_with_smaller_steps(lost: tuple[Task, AutomaticState]) -> None:
    task, before = lost
    once = roll_back(task, before)
    np.testing.assert_array_equal(once.family.mean, BEST.mean)
    np.testing.assert_array_equal(once.family.std, BEST.std)
    assert once.step == 40
    twice = roll_back(task, once)
    # By the factor of the plan, each time.
    np.testing.assert_allclose([once.rate, twice.rate], [0.3 * 0.5, 0.3 * 0.25], rtol=1e-6)
    assert (before.num_rollbacks, once.num_rollbacks, twice.num_rollbacks) == (0, 1, 2)
    assert twice.best is before.best


def test_not_without_a_best(lost: tuple[Task, AutomaticState]) -> None:
    _, state = lost
    assert can_roll_back(state)
    assert not can_roll_back(replace(state, best=None))


def test_not_for_ever(lost: tuple[Task, AutomaticState]) -> None:
    _, state = lost
    assert can_roll_back(replace(state, num_rollbacks=MAX_ROLLBACKS - 1))
    assert not can_roll_back(replace(state, num_rollbacks=MAX_ROLLBACKS))
