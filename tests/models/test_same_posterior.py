"""One posterior, written as a function, in NumPyro and in PyMC: one ELBO."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pymc as pm
import pytest
from jax.scipy.stats import norm

import dlrd

DATA = np.random.default_rng(0).normal(1.0, 0.5, size=30)


def log_density(z: jax.Array) -> jax.Array:
    """Of the mean and the logarithm of the scale, with the Jacobian of the latter; normalised."""
    mu, sigma = z[0], jnp.exp(z[1])
    prior = norm.logpdf(mu, 0, 5) + norm.logpdf(sigma) + jnp.log(2.0) + z[1]
    return prior + jnp.sum(norm.logpdf(DATA, mu, sigma))


def in_numpyro() -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(mu, sigma), obs=DATA)


def in_pymc() -> pm.Model:
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", 0, 5), pm.HalfNormal("sigma", 1), observed=DATA)
    return model


@pytest.mark.usefixtures("x64")
def test_elbos_agree() -> None:
    models: list[Any] = [
        dlrd.models.function(log_density, 2),
        dlrd.models.numpyro(in_numpyro),
        dlrd.models.pymc(in_pymc()),
    ]
    draws = jax.random.normal(jax.random.key(0), (5, 2))
    values = [model.values(draws, None) for model in models]
    # PyTensor takes the logarithm of a whole number, as of the prior's scale, in single precision.
    np.testing.assert_allclose(values, np.broadcast_to(values[0], (3, 5)), atol=2e-7)
    fits = [dlrd.fit(model, key=seed, progress=False) for seed, model in enumerate(models)]
    for fit in fits[1:]:
        # Five standard errors of the difference, and what each may be short of the optimum.
        error = 5 * np.hypot(fit.elbo_error, fits[0].elbo_error) + 0.01
        assert abs(fit.elbo - fits[0].elbo) < error
