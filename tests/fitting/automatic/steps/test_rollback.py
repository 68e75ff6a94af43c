"""Back to the best that was measured, or on from where the steps are."""

from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.fitting.automatic.judge.certificate import Certificate
from dlrd.fitting.automatic.plan import Task
from dlrd.fitting.automatic.state import AutomaticState, Measured
from dlrd.fitting.automatic.steps.rollback import (
    MAX_ROLLBACKS,
    NUM_DRAWS,
    can_roll_back,
    catch_up_or_roll_back,
    roll_back,
)

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


@pytest.fixture
def lagging(
    task: Callable[..., Task], state: Callable[..., AutomaticState], certificate: Callable[..., Certificate]
) -> Callable[..., tuple[Task, AutomaticState]]:
    """A fit of N(0, I) whose steps have led to one place, their average to another, the best to a third.

    Each place is the mean of a normal with standard deviations of 1, so that its ELBO is −½ ‖place‖².
    """

    def make(last: float, best: float) -> tuple[Task, AutomaticState]:
        made = task()
        here, average = (state(made, at(place)).steps for place in (last, AVERAGE))
        assert here.average is not None
        steps = here._replace(
            average=here.average._replace(closed=average.trainable, num_closed=jnp.ones(1, jnp.int32)),
            step=jnp.asarray([40], jnp.int32),
            learning_rate=jnp.asarray([0.07]),
        )
        member = at(best).as_start()
        measured = Measured(member, certificate(), member, step=32)
        return made, state(made, at(AVERAGE), steps=steps, best=measured, num_rollbacks=3)

    return make


AVERAGE = 9.0


def at(place: float) -> dlrd.MeanFieldNormal:
    return dlrd.MeanFieldNormal([place, 0.0], [0.0, 0.0])


def test_on_from_the_last_iterate_where_that_is_no_worse_than_the_best(
    lagging: Callable[..., tuple[Task, AutomaticState]],
) -> None:
    task, before = lagging(last=1.0, best=2.0)
    assert before.family.mean[0] == AVERAGE
    found = catch_up_or_roll_back(task, before)
    for family in (found.family, found.last_iterate, found.origin):
        np.testing.assert_array_equal(family.mean, [1.0, 0.0])
    # Nothing else changes but the draws of the comparison: neither the rate nor the count.
    assert (found.step, found.num_rollbacks, found.best) == (40, 3, before.best)
    np.testing.assert_allclose(found.rate, 0.07, rtol=1e-6)
    assert found.gradients == before.gradients | {"certificates": 2 * NUM_DRAWS}


@pytest.mark.parametrize("last", [3.0, np.inf, np.nan], ids=["worse", "infinite", "no number"])
def test_back_where_that_is_worse(lagging: Callable[..., tuple[Task, AutomaticState]], last: float) -> None:
    """By 2.5 nats: exactly, as the log ratios are linear and draws come with their mirror images."""
    task, before = lagging(last=last, best=2.0)
    back = catch_up_or_roll_back(task, before)
    np.testing.assert_array_equal(back.family.mean, [2.0, 0.0])
    assert back.num_rollbacks == 4
    assert back.gradients == before.gradients | {"certificates": 2 * NUM_DRAWS}
