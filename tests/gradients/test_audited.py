"""The gradient of what a stand-in misses: that of the ELBO of the difference, from values alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families import started
from dlrd.gradients.audited import missing_gradient
from dlrd.models import Audit

pytestmark = pytest.mark.usefixtures("x64")
NUM = 200_000
FAMILIES = {
    "full-rank": dlrd.FullRankNormal(np.array([0.5, -1.0]), np.array([[0.8, 0.0], [0.3, 1.2]])),
    "mean-field": dlrd.MeanFieldNormal(np.array([0.5, -1.0]), np.log(np.array([0.8, 1.2]))),
}


def residual(z: jax.Array) -> jax.Array:
    return 3.0 + 0.3 * z[0] ** 2 - 0.2 * z[0] * z[1] + 0.1 * z[1] ** 3


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("share_failed", [0.0, 0.3])
def test_is_the_gradient_by_reparameterisation(name: str, share_failed: float) -> None:
    """With slopes of the residual itself, the families' own natural gradients are the reference."""
    family = started(FAMILIES[name])
    half = jax.random.normal(jax.random.key(0), (NUM // 2, 2))
    noise = jnp.concatenate([half, -half])
    draws = family.from_noise(noise)
    residuals = jax.vmap(residual)(draws)
    is_failed = jax.random.uniform(jax.random.key(1), (NUM,)) < share_failed
    seen = Audit(residuals, jnp.where(is_failed, jnp.nan, residuals), draws, draws)
    blocks = [
        Audit(*(each.reshape(2, 20, -1, *each.shape[1:])[:, i].reshape(-1, *each.shape[1:]) for each in seen))
        for i in range(20)
    ]
    noises = [noise.reshape(2, 20, -1, 2)[:, i].reshape(-1, 2) for i in range(20)]
    found = np.stack([missing_gradient(family, *each) for each in zip(blocks, noises, strict=True)])
    slopes = jax.vmap(jax.grad(residual))(draws)
    exact = family.fisher_coordinates(family.natural_gradient(slopes, noise))
    exact -= family.fisher_coordinates(family.natural_gradient(jnp.zeros_like(slopes), noise))
    error = found.std(axis=0, ddof=1) / np.sqrt(20)
    # The reference has noise, too, less than this one's; 4 standard errors in each of 4 to 8 coordinates.
    assert (np.abs(found.mean(axis=0) - exact) <= 4 * np.sqrt(2) * error).all()


def test_a_constant_has_no_gradient_and_no_noise() -> None:
    family = FAMILIES["full-rank"]
    half = jax.random.normal(jax.random.key(0), (4, 2))
    noise = jnp.concatenate([half, -half])
    draws = family.from_noise(noise)
    found = missing_gradient(family, Audit(jnp.ones(8), jnp.full(8, 7.0), draws, draws), noise)
    np.testing.assert_allclose(found, 0.0, atol=1e-12)
