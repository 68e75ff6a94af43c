"""Rounds: when the next begins, how long it is, and from which rate."""

from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.fitting.automatic.annealing import steps_left
from dlrd.fitting.automatic.judge.certificate import Certificate
from dlrd.fitting.automatic.plan import Task
from dlrd.fitting.automatic.start.short_runs import fresh
from dlrd.fitting.automatic.state import AutomaticState, Measured
from dlrd.fitting.automatic.steps.rollback import catch_up_or_roll_back
from dlrd.fitting.automatic.steps.rounds import (
    FACTOR,
    FIRST_ROUND,
    GROWTH,
    LAST_SHARE,
    first_length,
    in_round,
    with_round,
)
from dlrd.fitting.automatic.steps.stepping import affordable_steps, take_steps
from dlrd.fitting.request import Aim

MIXTURE = dlrd.Mixture([dlrd.MeanFieldNormal([0.0], [0.0]), dlrd.MeanFieldNormal([3.0], [0.0])])


def log_density(z):
    return -0.5 * jnp.sum(z**2)


@pytest.fixture
def begun(task: Callable[..., Task]) -> Callable[[int], tuple[Task, AutomaticState]]:
    def make(max_gradients: int = 10_000) -> tuple[Task, AutomaticState]:
        model = dlrd.models.function(log_density, 1)
        made = task(model, MIXTURE, aim=Aim(max_gradients=max_gradients))
        return made, fresh(made, MIXTURE)

    return make


@pytest.mark.parametrize(("max_gradients", "num"), [(10**6, FIRST_ROUND // 8), (16_000, 62), (100, 1)])
def test_first_rounds_are_a_small_share_of_the_budget(begun, max_gradients: int, num: int) -> None:
    assert first_length(*begun(max_gradients)) == num


def test_the_next_round_is_longer_and_from_a_lower_rate(begun) -> None:
    task, state = begun()
    state = with_round(task, state, MIXTURE, 0.01, 8)
    assert state.settings == pytest.approx([0.01, 8])
    half = take_steps(task, state, 5, lambda state: None)
    assert in_round(task, half) is half
    over = in_round(task, take_steps(task, half.running, 8, lambda state: None))
    assert over.settings == pytest.approx([FACTOR * 0.01, GROWTH * 8])
    assert steps_left(over.steps) == GROWTH * 8
    assert over.step == 8
    assert over.origin.components.loc[0] != 0


def test_the_last_round_takes_most_of_what_is_left(begun) -> None:
    task, state = begun(2048)
    affordable = affordable_steps(task, state)
    state = with_round(task, state, MIXTURE, 0.01, affordable // 2)
    assert steps_left(state.steps) == int(LAST_SHARE * affordable)
    spent = state.spent("certificates", 8 * affordable)
    over = take_steps(task, spent, steps_left(state.steps), lambda state: None)
    assert in_round(task, over) is over


def test_back_to_the_best_is_a_round_from_a_lower_rate(
    begun, certificate: Callable[..., Certificate]
) -> None:
    task, state = begun()
    state = with_round(task, state, MIXTURE, 0.01, 8)
    lost = take_steps(task, state, 5, lambda state: None)
    lost = replace(lost, best=Measured(MIXTURE, certificate(), MIXTURE, step=0))
    back = catch_up_or_roll_back(task, lost)
    np.testing.assert_array_equal(back.family.components.loc, MIXTURE.components.loc)
    assert back.settings == pytest.approx([0.3 * 0.01, 8])
    assert back.num_rollbacks == 1
