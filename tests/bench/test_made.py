"""The posteriors of made data: their sizes and names, the same each time, finite in both precisions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.bench.posteriors.made import MADE

DIMS = {
    "made_spline": 82,
    "made_state_space": 390,
    "made_volatility": 503,
    "made_horseshoe": 104,
    "made_crossed": 104,
    "made_spatial": 1003,
    "made_network": 83,
    "made_radon_slopes": 175,
    "made_gp_latent": 63,
}


def test_all_are_there() -> None:
    assert list(MADE) == list(DIMS)


@pytest.mark.parametrize("name", DIMS)
def test_sizes_and_names(name: str) -> None:
    posterior = MADE[name]()
    assert posterior.name == name
    assert (
        posterior.dim == len(posterior.parameter_names) == len(set(posterior.parameter_names)) == DIMS[name]
    )
    assert posterior.reference_mean.shape == posterior.reference_std.shape == (posterior.dim,)
    assert np.all(np.isnan([posterior.reference_mean, posterior.reference_std]))
    z = jnp.arange(posterior.dim)
    np.testing.assert_array_equal(posterior.constrain(z), z)


@pytest.mark.parametrize("name", DIMS)
def test_values_and_gradients_are_finite(name: str, precision: jnp.dtype) -> None:
    posterior, again = MADE[name](), MADE[name]()
    points = jnp.asarray(0.1 * np.random.default_rng(1).normal(size=(4, posterior.dim)), precision)
    values, gradients = jax.jit(jax.vmap(jax.value_and_grad(posterior.log_density)))(points)
    assert values.dtype == gradients.dtype == precision
    assert jnp.all(jnp.isfinite(values))
    assert jnp.all(jnp.isfinite(gradients))
    assert jnp.all(jnp.any(gradients != 0, axis=0))  # no coordinate is without effect
    np.testing.assert_array_equal(
        jax.jit(jax.vmap(again.log_density))(points), jax.jit(jax.vmap(posterior.log_density))(points)
    )
