"""Priors, against SciPy's distributions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import dlrd
from dlrd.models import priors
from dlrd.models.priors import Prior

PRIORS: dict[str, tuple[Prior, Any]] = {
    "normal": (priors.normal(20.0, 5.0), stats.norm(20, 5)),
    "lognormal": (priors.lognormal(3.0, 0.5), stats.lognorm(0.5, scale=3)),
    "half_normal": (priors.half_normal(0.3), stats.halfnorm(scale=0.3)),
    "exponential": (priors.exponential(7.0), stats.expon(scale=7)),
    "gamma": (priors.gamma(4.0, 10.0), stats.gamma(4, scale=2.5)),
    "uniform": (priors.uniform(-2.0, 5.0), stats.uniform(-2, 7)),
    "log_uniform": (priors.log_uniform(1e-3, 10.0), stats.loguniform(1e-3, 10)),
    "beta": (priors.beta(2.0, 5.0), stats.beta(2, 5)),
}
each_prior = pytest.mark.parametrize("name", PRIORS)


@each_prior
@pytest.mark.usefixtures("x64")
def test_is_the_distribution_of_scipy(name: str) -> None:
    prior, expected = PRIORS[name]
    at = jnp.asarray(expected.ppf([0.01, 0.2, 0.5, 0.9, 0.999]))
    np.testing.assert_allclose(jax.vmap(prior.log_density)(at), expected.logpdf(at), rtol=1e-10, atol=1e-10)


@each_prior
@pytest.mark.usefixtures("x64")
def test_free_numbers_are_about_standard(name: str) -> None:
    """The density of the free number integrates to one; its mean is near 0 and its variance near 1."""
    prior, _ = PRIORS[name]

    def density(free: Any) -> Any:
        value = prior.support.forward(free)
        return jnp.exp(prior.log_density(value) + prior.support.log_det(free))

    grid = jnp.linspace(-30, 12, 4001)
    densities = np.asarray(jax.jit(jax.vmap(density))(grid))
    moments = [integrate.simpson(densities * np.asarray(grid) ** power, x=grid) for power in range(3)]
    # The exact mean and variance of log or logit are subtracted and divided by: what is left is the rule's.
    np.testing.assert_allclose(moments, [1, 0, 1], atol=1e-5)


@each_prior
@pytest.mark.usefixtures("x64")
def test_values_and_free_numbers_are_inverse(name: str) -> None:
    support = PRIORS[name][0].support
    free = jnp.array([-2.0, 0.3, 1.7])
    values = jax.vmap(support.forward)(free)
    np.testing.assert_allclose(jax.vmap(support.inverse)(values), free, rtol=1e-9)


def test_arrays_of_parameters() -> None:
    prior = priors.normal([0.0, 10.0], [1.0, 2.0])
    assert prior.support.shape == (2,)
    np.testing.assert_allclose(prior.support.forward(jnp.ones(2)), [1, 12])
    assert priors.half_normal(2.0, shape=(3,)).support.free_shape == (3,)
    assert priors.lognormal(2.0, 0.1).support.word == "log"


def test_a_support_alone_has_no_density() -> None:
    prior = priors.flat(dlrd.simplex(3))
    assert prior.support.free_shape == (2,)
    np.testing.assert_array_equal(prior.log_density(jnp.ones(3)), 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: priors.normal(0, -1), "normal must have finite numbers and a positive spread"),
        (lambda: priors.lognormal(-1, 1), "median must be positive, got int -1"),
        (lambda: priors.uniform(2, 1), "low must be below high, got 2 and 1"),
        (lambda: priors.log_uniform(0, 1), "low must be positive, got int 0"),
        (lambda: priors.normal(np.nan, 1), "normal must have finite numbers"),
    ],
    ids=range(5),
)
def test_says_what_is_wrong(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
