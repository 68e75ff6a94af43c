import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.rates._rate import apply_rate, check_learning_rate, inner, scalar


def test_bad_rates_are_named():
    check_learning_rate(1e-9)
    for value in [0, -1.0, float("inf"), float("nan")]:
        message = f"learning_rate must be a positive number, got {value}"
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            check_learning_rate(value)
        jax.jit(check_learning_rate)(value)  # has no value yet


def test_a_scalar_is_a_copy_in_the_default_type(precision: jnp.dtype):
    value = jnp.asarray(0.25, precision)
    copy = scalar(value)
    assert copy.dtype == scalar(1).dtype == scalar(np.float16(1)).dtype == precision
    assert not copy.weak_type
    assert copy.unsafe_buffer_pointer() != value.unsafe_buffer_pointer()


def test_a_rate_scales_real_and_complex_leaves_in_their_own_type():
    directions = {
        "half": jnp.asarray([1.0, -2.0], jnp.bfloat16),
        "complex": jnp.asarray([2 + 4j], jnp.complex64),
        "integer": jnp.asarray([3]),
        "none": None,
    }
    steps = apply_rate(directions, jnp.asarray(0.25))
    assert steps["half"].dtype == jnp.bfloat16
    assert steps["half"].tolist() == [-0.25, 0.5]
    assert steps["complex"].tolist() == [-0.5 - 1j]
    assert steps["integer"].tolist() == [3]
    assert steps["none"] is None


def test_inner_is_the_real_scalar_product_over_all_leaves():
    left = {"a": jnp.asarray([1.0, 2.0]), "b": jnp.asarray([1 + 2j]), "n": jnp.asarray([5]), "none": None}
    right = {"a": jnp.asarray([3.0, -1.0]), "b": jnp.asarray([3 - 1j]), "n": jnp.asarray([7]), "none": None}
    # 3 − 2 of the real leaf, and of the complex one the products of both parts, 3 − 2.
    assert inner(left, right) == 2
    assert inner({}, {}) == 0


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_inner_of_half_precision_is_summed_in_single(dtype: Any):
    """Of 3000 ones, half precision would lose count; and squares of 300 are beyond the end of float16."""
    ones, large = jnp.ones(3000, dtype), jnp.full(4, 300.0, dtype)
    assert inner([ones], [ones]).dtype == jnp.float32
    assert inner([ones], [ones]) == 3000
    assert inner([large], [large]) == 360_000
