"""The noise of the families."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dlrd.families._noise import standard_log_prob, standard_noise


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.usefixtures("x64")
def test_it_is_that_of_jax(dtype: str):
    key = jax.random.key(3)
    noise = standard_noise(key, (2, 5), dtype)
    assert noise.dtype == dtype
    np.testing.assert_array_equal(noise, jax.random.normal(key, (2, 5), dtype))


def test_it_is_drawn_once_however_often_it_is_used():
    """The condition outlives the compiler: without it, both users would draw for themselves."""

    def used_twice(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        noise = standard_noise(key, (1000,), "float32")
        return jnp.sum(noise), jnp.exp(noise)

    program = jax.jit(used_twice).lower(jax.random.key(0)).compile().as_text()
    assert program.count(" conditional(") == 1


def test_its_density_is_scipys(precision: jnp.dtype):
    noise = standard_noise(jax.random.key(0), (2, 3, 4), precision)
    density = standard_log_prob(noise)
    assert density.dtype == precision
    expected = stats.norm.logpdf(np.asarray(noise, float)).sum(axis=-1)
    np.testing.assert_allclose(density, expected, rtol=10 * float(jnp.finfo(precision).eps))
