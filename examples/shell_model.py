"""Models for the shell: the same posterior as a NumPyro model and as a log density of a vector.

    dlrd fit examples/shell_model.py:schools --data examples/schools.csv --out schools
    dlrd fit examples/shell_model.py:log_density --dim 10 --data examples/schools.csv --out flat
    dlrd show schools --var mu --var tau

Eight schools coached pupils for a test; `effect` is the gain that each measured, `error` its standard error.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


def schools(effect: jax.Array, error: jax.Array) -> None:
    """What the schools have in common, and how they differ."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfNormal(5))
    with numpyro.plate("school", len(effect)):
        offset = numpyro.sample("offset", dist.Normal(0, 1))
        theta = numpyro.deterministic("theta", mu + tau * offset)
        numpyro.sample("effect", dist.Normal(theta, error), obs=effect)


def log_density(z: jax.Array, effect: jax.Array, error: jax.Array) -> jax.Array:
    """The same of one vector: mu, log tau, and the eight offsets."""
    mu, log_tau, offset = z[0], z[1], z[2:]
    tau = jnp.exp(log_tau)
    log_prior = -0.5 * (mu / 5) ** 2 - 0.5 * (tau / 5) ** 2 + log_tau - 0.5 * offset @ offset
    return log_prior - 0.5 * jnp.sum(((effect - mu - tau * offset) / error) ** 2)
