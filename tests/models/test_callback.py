"""Calls back to NumPy."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.models.callback import call_on_host


def test_one_call_for_all_draws_in_the_precision_of_the_program(precision: jnp.dtype) -> None:
    calls = []

    def outer(left: np.ndarray, right: np.ndarray) -> Sequence[np.ndarray]:
        calls.append(left.dtype)
        return [left[:, :, None] * right[:, None], left.sum(axis=1)]

    def fn(left: jax.Array, right: jax.Array) -> Sequence[jax.Array]:
        return call_on_host(outer, [(2, 3), ()], left, right)

    left, right = jnp.ones((4, 5, 2)), jnp.arange(60.0).reshape(4, 5, 3)
    product, total = jax.jit(jax.vmap(jax.vmap(fn)))(left, right)
    assert calls == [np.dtype(float)]
    assert product.dtype == total.dtype == precision
    np.testing.assert_array_equal(product, np.broadcast_to(right[:, :, None], (4, 5, 2, 3)))
    np.testing.assert_array_equal(total, np.full((4, 5), 2))


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(Exception, match=r"evaluate must give an array of shape \(1, 2\), got \(1, 3\)"):
        jax.block_until_ready(call_on_host(lambda rows: [rows], [(2,)], jnp.zeros(3)))
