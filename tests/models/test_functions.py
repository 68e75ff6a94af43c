"""Models from jax functions."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.models import FunctionModel, as_model


def cubic(z: jax.Array) -> jax.Array:
    return jnp.sum(z**3)


@pytest.mark.parametrize("num", [1, 4])
def test_values_and_gradients_of_a_batch(num: int) -> None:
    draws = jnp.arange(3.0 * num).reshape(num, 3)
    model = FunctionModel(cubic, (3,))
    values, gradients = model.values_and_gradients(draws, None)
    np.testing.assert_allclose(values, jnp.sum(draws**3, axis=1))
    np.testing.assert_allclose(model.values(draws, None), values)
    np.testing.assert_allclose(gradients, 3 * draws**2)


def test_what_it_can_do() -> None:
    model = dlrd.models.function(cubic, 2)
    assert (model.dim, model.names) == (2, ("z[0]", "z[1]"))
    assert model.has_gradient
    assert model.is_exact
    assert not model.can_fail
    draws = jnp.ones((4, 2))
    assert model.constrained(draws) is draws
    np.testing.assert_array_equal(model.unconstrained(np.ones((4, 2))), draws)


def test_same_function_same_model() -> None:
    """So that a second fit finds the programs of the first."""
    assert FunctionModel(cubic, (2,)) == FunctionModel(cubic, (2,))
    assert hash(FunctionModel(cubic, (2,))) == hash(FunctionModel(cubic, (2,)))
    assert FunctionModel(cubic, (2,)) != FunctionModel(cubic, (3,))
    assert FunctionModel(cubic, (2,)) != FunctionModel(jnp.sum, (2,))
    assert FunctionModel(cubic, (2,)) != FunctionModel(cubic, (2,), ("a", "b"))


class Shifted(eqx.Module):
    """A function that holds an array, and so has no hash."""

    shift: jax.Array

    def __call__(self, z: jax.Array) -> jax.Array:
        TRACES.append(z)
        return -0.5 * jnp.sum((z - self.shift) ** 2)


TRACES: list[Any] = []


def test_a_function_with_arrays_is_equal_to_itself() -> None:
    with pytest.raises(TypeError):
        hash(Shifted(jnp.ones(2)))
    shifted = Shifted(jnp.ones(2))
    assert FunctionModel(shifted, (2,)) == FunctionModel(shifted, (2,))
    assert FunctionModel(shifted, (2,)) != FunctionModel(Shifted(jnp.ones(2)), (2,))


def test_a_function_with_arrays_is_compiled_once() -> None:
    shifted = Shifted(jnp.ones(2))
    dlrd.fit_many(shifted, dlrd.MeanFieldNormal.standard(2), keys=range(1), progress=False)
    num_traces = len(TRACES)
    dlrd.fit_many(shifted, dlrd.MeanFieldNormal.standard(2), keys=range(1, 3), progress=False)
    assert len(TRACES) == num_traces


def test_family_and_key_have_defaults() -> None:
    found = dlrd.fit(
        dlrd.models.function(lambda z: -0.5 * jnp.sum((z - 1) ** 2), 2, ["a", "b"]), progress=False
    )
    assert isinstance(found.family, dlrd.FullRankNormal)
    assert found.summary().names == ["a", "b"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dlrd.fit(cubic), "family must be given where log_density is a plain function"),
        (lambda: dlrd.fit(3.0), "log_density must be a function of one draw, or a model, got float 3.0"),
        (lambda: dlrd.models.function(3.0, 2), "log_density must be a function of one draw, got float 3.0"),
        (lambda: dlrd.models.function(cubic, 0), "dim must be a whole number of at least 1, got int 0"),
        (lambda: dlrd.models.function(cubic, 2, ["a"]), "names must be 2 different ones"),
        (lambda: dlrd.models.function(cubic, 2, ["a", "a"]), "names must be 2 different ones"),
        (lambda: dlrd.models.function(cubic, 2, "ab"), "names must be a sequence of strings, got str 'ab'"),
        (
            lambda: dlrd.fit(dlrd.models.function(cubic, 2), dlrd.MeanFieldNormal.standard(3)),
            r"family must have draws of 2 numbers, as the model has, got \(3,\)",
        ),
    ],
    ids=range(8),
)
def test_says_what_is_wrong(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_model_is_taken_as_it_is() -> None:
    model = FunctionModel(cubic, (2,))
    assert as_model(model, None) is model
    assert as_model(cubic, (2,)) == model
