"""How the steps of an automatic fit are taken, by what its parts can do."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dlrd
from dlrd.families import split
from dlrd.families.coupled import Coupled
from dlrd.families.couplings import couplings
from dlrd.families.pattern import Pattern
from dlrd.fitting.automatic.plan import (
    ADAM_RATE,
    ANNEALED_RATE,
    MAX_SHORT,
    MOMENTUM,
    NATURAL_RATE,
    Plan,
    Task,
    default_tolerance,
)
from dlrd.fitting.request import Aim
from dlrd.gradients.sobol import MAX_CHEAP

MEAN_FIELD = dlrd.MeanFieldNormal.standard(2)
FULL_RANK = dlrd.FullRankNormal.standard(2)
MIXTURE = dlrd.Mixture([MEAN_FIELD, MEAN_FIELD])
VALUES_ONLY = dlrd.models.host(lambda z: -0.5 * (z**2).sum(axis=1), 2, has_gradient=False)

MakeTask = Callable[..., Task]


def is_adam(task: Task, settings: Any = 0.1) -> bool:
    """Whether the optimiser keeps moments beside the rule."""
    made: Any = task.method.optimizer
    state = made(jnp.asarray(settings)).init(jnp.zeros(2))
    return bool(optax.tree_utils.tree_get_all_with_path(state, "nu"))


@pytest.mark.parametrize(
    ("max_gradients", "first"), [(30, 16), (255, 16), (256, 32), (1000, 64), (2048, 256), (10**5, 256)]
)
def test_small_budgets_are_looked_at_with_fewer_draws(task: MakeTask, max_gradients: int, first: int) -> None:
    assert task(aim=Aim(max_gradients=max_gradients)).first_gradients == first


def test_time_is_a_budget(task: MakeTask) -> None:
    assert task().deadline == float("inf")
    assert not task(aim=Aim(max_seconds=1000.0)).is_late
    assert task(aim=Aim(max_seconds=-1.0)).is_late


@pytest.mark.parametrize(
    "family", [MEAN_FIELD, FULL_RANK, dlrd.LowRankNormal.standard(2, 1), dlrd.SparseNormal.standard(2)]
)
def test_normals_take_natural_gradients_with_the_rule_alone(task: MakeTask, family: Any) -> None:
    made = task(family=family)
    assert made.is_natural
    assert made.method.estimator is dlrd.natural_gradient
    assert made.first_rate == NATURAL_RATE == 0.3
    assert not is_adam(made)


def test_families_without_a_geometry_take_adam_in_rounds(task: MakeTask) -> None:
    made = task(family=MIXTURE)
    assert not made.is_natural
    assert made.is_annealed
    assert not made.method.is_averaging  # the rate ends at zero
    assert made.method.estimator is dlrd.sticking_the_landing
    assert made.first_rate == (ANNEALED_RATE, 1.0)
    assert is_adam(made, made.first_rate)
    assert made.method.draws == "independent"


def test_few_steps_are_compiled_quickly(task: MakeTask) -> None:
    assert task().method.is_short
    assert not task(aim=Aim(max_gradients=MAX_SHORT + 1)).method.is_short
    assert not task(family=MIXTURE).method.is_short


def test_models_without_gradients_take_the_score_function(task: MakeTask) -> None:
    made = task(VALUES_ONLY)
    assert not made.is_natural
    assert made.method.estimator is dlrd.score_function
    assert is_adam(made)
    assert made.method.draws == "independent"


def test_plan_without_natural_gradients_takes_adam(task: MakeTask) -> None:
    made = task(is_natural=False)
    assert made.method.estimator is dlrd.sticking_the_landing
    assert made.first_rate == ADAM_RATE
    assert is_adam(made)


@pytest.mark.parametrize("estimator", [dlrd.reparameterized, dlrd.sticking_the_landing, dlrd.score_function])
def test_given_estimator_is_taken_with_adam(task: MakeTask, estimator: Any) -> None:
    made = task(gradient=estimator)
    assert made.method.estimator is estimator
    assert not made.is_natural
    assert is_adam(made)
    assert made.method.draws == "independent"


def test_natural_estimator_is_known_by_its_estimate(task: MakeTask) -> None:
    """Not by its name: one that wraps it is as natural."""

    def wrapped(*args: Any) -> dlrd.gradients.Estimate:
        return dlrd.natural_gradient(*args)

    made = task(gradient=wrapped)
    assert made.method.estimator is wrapped
    assert made.is_natural
    assert made.first_rate == NATURAL_RATE
    assert not is_adam(made)
    assert made.method.draws == "independent"  # nobody knows what else it does with them


def test_estimator_that_cannot_do_with_the_family_is_refused(task: MakeTask) -> None:
    with pytest.raises(TypeError, match="natural_gradient needs a family that knows its geometry"):
        task(family=MIXTURE, gradient=dlrd.natural_gradient)


@pytest.mark.parametrize(
    ("family", "num_draws", "draws"),
    [
        (MEAN_FIELD, 8, "sobol_pairs"),
        (MEAN_FIELD, 7, "sobol"),
        (FULL_RANK, 8, "sobol_pairs"),
        (dlrd.MeanFieldNormal.standard(MAX_CHEAP), 8, "sobol_pairs"),
        (dlrd.MeanFieldNormal.standard(MAX_CHEAP + 1), 8, "independent"),
    ],
    ids=["pairs", "odd", "correlated", "at the limit", "too many dimensions"],
)
def test_sobol_sequence_where_that_pays(task: MakeTask, family: Any, num_draws: int, draws: str) -> None:
    made = task(family=family, num_draws=num_draws)
    assert (made.method.num_draws, made.method.draws) == (num_draws, draws)


def test_steps_from_hessians_have_momentum_and_no_others(task: MakeTask) -> None:
    """With the same gradient twice, the second step is longer by the momentum's share of the first."""
    made: Any = task().method.optimizer
    pairs = couplings(Pattern(2, np.array([1]), np.array([0])))
    assert pairs is not None
    normal = dlrd.SparseNormal([0.0, 0.0], [1.0, 1.0], [0.0], pairs.elimination)
    for family, share in ((FULL_RANK, 0.0), (Coupled(normal, pairs, dlrd.SparseNormal), MOMENTUM)):
        params = split(family)[0]
        state = made(0.1).init(params)
        first, state = made(0.1).update(jax.tree.map(jnp.ones_like, params), state, params)
        second, _ = made(0.1).update(jax.tree.map(jnp.ones_like, params), state, params)
        for one, other in zip(*map(jax.tree.leaves, (first, second)), strict=True):
            np.testing.assert_allclose(other, (1 + share) * one, rtol=1e-6)


def test_plan_may_say_where_the_draws_come_from(task: MakeTask) -> None:
    assert task(draws="independent").method.draws == "independent"


def test_aim_and_plan_go_along(task: MakeTask) -> None:
    made = task(aim=Aim(tolerance=0.5, max_gradients=1234), is_averaging=False)
    assert (made.tolerance, made.max_gradients) == (0.5, 1234)
    assert made.plan == Plan(is_averaging=False)
    assert not made.method.is_averaging
    assert task().method.is_averaging


@pytest.mark.parametrize(("dim", "tolerance"), [(1, 0.01), (50, 0.01), (100, 0.02), (1000, 0.2)])
def test_tolerance_that_is_not_given_suits_the_dimension(task: MakeTask, dim: int, tolerance: float) -> None:
    """A hundredth of a nat, and from 50 dimensions on 2e-4 for each."""
    np.testing.assert_allclose(default_tolerance(dim), tolerance, rtol=1e-15)
    family = dlrd.MeanFieldNormal.standard(dim)
    model = dlrd.models.function(lambda z: -0.5 * jnp.sum(z**2), dim)
    assert task(model, family).tolerance == default_tolerance(dim)
    assert task(model, family, aim=Aim(tolerance=0.5)).tolerance == 0.5


def test_second_task_finds_the_compiled_program_of_the_first(task: MakeTask) -> None:
    assert task().method == task().method
    assert hash(task().method) == hash(task().method)
    assert task(factor=0.5).method != task().method


def test_rule_has_the_factor_of_the_plan(task: MakeTask) -> None:
    """By which the rate decays where the parameters go to and fro."""
    for factor in (0.5, 0.25):
        made: Any = task(factor=factor, min_travel=0.0).method.optimizer
        optimizer = made(0.1)
        state, update = optimizer.init(jnp.zeros(1)), jax.jit(optimizer.update)
        for place in (0.0, 1.0, 0.0):
            _, state = update(jnp.ones(1), state, jnp.full(1, place))
        assert int(state.num_decays) == 1
        np.testing.assert_allclose(state.learning_rate, 0.1 * factor, rtol=1e-6)


def test_rule_has_the_shortest_window_of_the_plan(task: MakeTask) -> None:
    made: Any = task().method.optimizer
    optimizer = made(0.1)
    state, update = optimizer.init(jnp.zeros(1)), jax.jit(optimizer.update)
    for place in 10 * (0.0, 1.0):
        _, state = update(jnp.ones(1), state, jnp.full(1, place))
    assert int(state.num_decays) == 0  # twenty steps of a tenth are less than the three that it takes
