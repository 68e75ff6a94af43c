"""The model of a jax function of one draw."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.models import FunctionModel


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


def test_data_are_the_arrays_of_a_model() -> None:
    def shifted(z: jax.Array, data: dict[str, jax.Array]) -> jax.Array:
        return -jnp.sum((z - data["y"]) ** 2)

    given = {"y": np.array([1.0, 2.0])}
    model = dlrd.models.function(shifted, 2, data=given)
    given["y"][0] = 7.0  # the model has a copy
    other = model.with_data({"y": np.zeros(2)})
    draws = jnp.ones((1, 2))
    assert model.values(draws, None)[0] == -1
    assert other.values(draws, None)[0] == -2
    assert jax.tree.structure(model) == jax.tree.structure(other)
    assert model != other
    assert model == model.with_data(model._data)
    assert jax.jit(lambda model: model.values(draws, None))(other)[0] == -2


def test_data_of_no_numbers() -> None:
    with pytest.raises(TypeError, match="data must be arrays of numbers"):
        dlrd.models.function(lambda z, data: -z @ z, 2, data=["a", "b"])


def test_model_without_data_is_itself() -> None:
    model = FunctionModel(lambda z: -z @ z, (2,))
    leaves, form = jax.tree.flatten(model)
    assert leaves == []
    assert form.unflatten([]) is model
