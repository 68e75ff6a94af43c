"""How far a step may change a normal."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrd.families._limits import MAX_CHANGE, limited, limited_norm


def test_each_entry_is_cut_at_the_limit():
    step = jnp.array([0.0, 0.25, -0.25, 0.5, 3.0, -jnp.inf])
    np.testing.assert_array_equal(limited(step), [0, 0.25, -0.25, 0.5, 0.5, -0.5])


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-3, 0.1])
def test_a_small_step_stays(size: float):
    step = size * jnp.array([[1.0, 0.0], [2.0, -1.0]])
    # It is divided by a power of two and multiplied again.
    np.testing.assert_array_equal(limited_norm(step), step)


@pytest.mark.parametrize("size", [1.0, 1e6, 1e30, 1e37])
def test_a_large_step_keeps_its_direction(size: float):
    """Also where squares overflow in single precision."""
    step = np.array([[0.6, 0.0], [0.0, -0.8]])
    np.testing.assert_allclose(limited_norm(jnp.float32(size) * jnp.float32(step)), MAX_CHANGE * step, 1e-6)


@given(st.integers(0, 2**32 - 1), st.floats(-4, 4))
@settings(deadline=None)  # the first example compiles
def test_no_eigenvalue_comes_near_zero(seed: int, exponent: float):
    """Of I + step: no further than the norm of the step."""
    step = limited_norm(jnp.asarray(10**exponent * np.random.default_rng(seed).normal(size=(3, 3))))
    smallest = np.linalg.svd(np.eye(3) + np.asarray(step, float), compute_uv=False)[-1]
    assert smallest >= 1 - MAX_CHANGE - 1e-6  # ten roundings in single precision
