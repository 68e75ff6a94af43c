"""Outputs that jax can differentiate: against the same function in jax."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.models.outputs import values_alone, with_jacobian, with_pullback

pytestmark = pytest.mark.usefixtures("x64")
DRAWS = np.array([[1.0, 2.0], [np.nan, 1.0], [0.5, -1.0]])


def inside(x: jax.Array) -> jax.Array:
    return jnp.stack([x[0] * x[1], x[1] ** 2, x[0]])


def evaluate(rows: np.ndarray) -> Any:
    x, y = rows.T[:2]
    zero, one = np.zeros_like(x), np.ones_like(x)
    jacobian = np.stack([np.stack(each, axis=1) for each in [(y, x), (zero, 2 * y), (one, zero)]], axis=1)
    outputs = np.stack([x * y, y**2, x], axis=1)
    is_bad = np.isnan(rows).any(axis=1)
    return np.where(is_bad[:, None], np.nan, outputs), np.where(is_bad[:, None, None], np.nan, jacobian)


def pull(rows: np.ndarray, sensitivities: np.ndarray) -> Any:
    return (np.einsum("so,soi->si", sensitivities, evaluate(rows)[1]),)


WAYS: dict[str, Any] = {
    "jacobian": with_jacobian(evaluate, (3,), 2),
    "pullback": with_pullback(lambda rows: evaluate(rows)[:1], pull, (3,)),
}


@pytest.mark.parametrize("way", WAYS)
def test_values_and_gradients(way: str) -> None:
    def loss(fn: Any, x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sin(fn(x)))

    found = jax.vmap(jax.value_and_grad(lambda x: loss(WAYS[way], x)))(DRAWS)
    expected = jax.vmap(jax.value_and_grad(lambda x: loss(inside, x)))(DRAWS)
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left[::2], right[::2], rtol=1e-12)
    assert np.isnan(found[0][1])
    np.testing.assert_array_equal(found[1][1], 0)  # for a weight of zero times nan would be nan


def test_numbers_on_which_nothing_depends_have_no_gradient() -> None:
    fn = with_jacobian(evaluate, (3,), 2)
    gradient = jax.grad(lambda row: fn(row)[0])(jnp.array([1.0, 2.0, 7.0, 8.0]))
    np.testing.assert_array_equal(gradient, [2, 1, 0, 0])


def test_values_alone() -> None:
    fn = values_alone(lambda rows: evaluate(rows)[:1], (3,))
    np.testing.assert_array_equal(jax.vmap(fn)(DRAWS[:1]), [[2, 4, 1]])
