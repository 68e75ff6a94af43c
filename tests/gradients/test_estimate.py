"""What all estimators share."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.gradients.estimate import Estimate, evaluated_model, good_rows
from dlrd.models import FunctionModel

FAMILY = dlrd.MeanFieldNormal.standard(2)


def log_density(z: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(z**2)


def values_only() -> dlrd.models.HostModel:
    return dlrd.models.host(lambda z: -0.5 * (z**2).sum(axis=1), 2, has_gradient=False)


def test_a_plain_function_becomes_a_model_of_the_draws() -> None:
    assert evaluated_model(log_density, FAMILY, "some_estimator") == FunctionModel(log_density, (2,))


def test_a_model_stays_as_it_is() -> None:
    for model in (FunctionModel(log_density, (2,)), values_only()):
        assert evaluated_model(model, FAMILY, None) is model


def test_a_model_without_gradients_is_refused_where_they_are_needed() -> None:
    message = "^some_estimator needs the gradient of the log density, .* take dlrd.score_function$"
    with pytest.raises(ValueError, match=message):
        evaluated_model(values_only(), FAMILY, "some_estimator")


@pytest.mark.parametrize(
    "estimator", [dlrd.natural_gradient, dlrd.reparameterized, dlrd.sticking_the_landing]
)
def test_estimators_that_need_gradients_say_so_by_name(estimator: dlrd.gradients.Estimator) -> None:
    with pytest.raises(ValueError, match=f"^{estimator.__name__} needs the gradient"):
        estimator(values_only(), FAMILY, jax.random.key(0), 4)


@pytest.mark.parametrize(
    ("is_good", "rows"),
    [
        ([True, True, True], [0, 1, 2]),
        ([False, True, False, True], [1, 1, 3, 3]),
        ([True, False], [0, 0]),
        ([False, False, True, False, True], [2, 4, 2, 2, 4]),
        ([False, False], [0, 0]),  # there is no better one
    ],
)
def test_good_draws_take_turns_to_stand_for_those_that_are_not(is_good: list[bool], rows: list[int]) -> None:
    np.testing.assert_array_equal(good_rows(jnp.asarray(is_good)), rows)


@pytest.mark.parametrize("flag", ["is_natural", "needs_independent"])
def test_flags_survive_compilation(flag: str) -> None:
    """As plain truths, so that a step can go by them before any number is known."""

    @jax.jit
    def estimated(terms: jax.Array) -> Estimate:
        return Estimate(terms, 2 * terms, **{flag: True})

    for estimate in (estimated(jnp.ones(3)), eqx.filter_eval_shape(estimated, jnp.ones(3))):
        flags = {name: getattr(estimate, name) for name in ("is_natural", "needs_independent")}
        assert flags == {"is_natural": False, "needs_independent": False} | {flag: True}


@pytest.mark.parametrize(
    ("estimator", "is_natural", "needs_independent"),
    [
        (dlrd.natural_gradient, True, False),
        (dlrd.reparameterized, False, False),
        (dlrd.sticking_the_landing, False, False),
        (dlrd.score_function, False, True),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_each_estimate_is_for(
    estimator: dlrd.gradients.Estimator, is_natural: bool, needs_independent: bool
) -> None:
    estimate = eqx.filter_eval_shape(estimator, log_density, FAMILY, jax.random.key(0), 4)
    assert (estimate.is_natural, estimate.needs_independent) == (is_natural, needs_independent)
