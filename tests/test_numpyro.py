"""Back to NumPyro: fits as guides, and the rule inside NumPyro's own SVI."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import flowjax.distributions
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoContinuous, AutoGuide, AutoNormal

import dlrd
from dlrd.families import SparseNormal

Y = np.array([2.1, 3.4, 2.9, 3.0])
NUM_SDS = 5
"""Of a Monte Carlo error, that a mean may be off."""


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def weights(y: Any = None) -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(5.0))
    with numpyro.plate("row", len(Y)):
        numpyro.sample("y", dist.Normal(mean, sigma), obs=y)
    numpyro.deterministic("ratio", mean / sigma)


@pytest.fixture(scope="module")
def certified() -> dlrd.Fit:
    with jax.enable_x64(True):
        return dlrd.fit(dlrd.models.numpyro(weights, Y), progress=False)


@pytest.fixture
def fitted(certified: dlrd.Fit) -> Callable[[Any], dlrd.Fit]:
    """A fit, as if it had ended at this family."""
    return lambda family: dataclasses.replace(certified, family=family)


def normal(shift: float = 0.0) -> dlrd.FullRankNormal:
    return dlrd.FullRankNormal([2.8 + shift, -0.3], [[0.4, 0.0], [0.1, -0.3]])


FAMILIES = {
    "mean-field": lambda: (dlrd.MeanFieldNormal([2.8, -0.3], [-1.0, -1.2]), dist.Independent),
    "full-rank": lambda: (normal(), dist.MultivariateNormal),
    "low-rank": lambda: (
        dlrd.LowRankNormal([2.8, -0.3], [-1.0, -1.2], [[0.2], [0.1]]),
        dist.LowRankMultivariateNormal,
    ),
    "sparse": lambda: (SparseNormal.standard(2), dist.Distribution),
    "mixture": lambda: (dlrd.Mixture([normal(-0.2), normal(0.2)]), dist.Distribution),
    "flow": lambda: (flowjax.distributions.StudentT(jnp.full(2, 5.0), jnp.zeros(2), 0.3), dist.Distribution),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_fit_is_a_guide_whatever_its_family(name: str, fitted: Callable[[Any], dlrd.Fit]) -> None:
    family, kind = FAMILIES[name]()
    fit = fitted(family)
    guide = dlrd.numpyro.guide(fit)
    assert isinstance(guide, (AutoGuide, AutoContinuous))
    posterior = guide.get_posterior({})
    assert isinstance(posterior, kind)
    draws = jax.jit(lambda key: family.sample(key, (5,)))(jax.random.key(1))
    found, expected = jax.jit(lambda z: (posterior.log_prob(z), family.log_prob(z)))(draws)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert posterior.sample(jax.random.key(0), (3,)).shape == (3, 2)
    sites = guide.sample_posterior(jax.random.key(0), {}, sample_shape=(3, 2))
    assert {name: values.shape for name, values in sites.items()} == dict.fromkeys(
        ["mean", "sigma", "ratio"], (3, 2)
    )
    assert np.all(sites["sigma"] > 0)
    low, middle, high = guide.quantiles({}, [0.05, 0.5, 0.95])["sigma"]
    assert 0 < low < middle < high
    np.testing.assert_allclose(guide.median({})["sigma"], middle)
    predicted = Predictive(weights, guide=guide, params={}, num_samples=4)(jax.random.key(2))
    assert predicted["y"].shape == (4, len(Y))


def test_numpyros_elbo_of_the_guide_is_that_of_the_fit(certified: dlrd.Fit) -> None:
    guide = dlrd.numpyro.guide(certified)
    num, elbo = 4_000, Trace_ELBO(num_particles=1)
    losses = jax.jit(jax.vmap(lambda key: elbo.loss(key, {}, weights, guide, Y)))(
        jax.random.split(jax.random.key(0), num)
    )
    error = np.hypot(np.std(losses) / num**0.5, certified.elbo_error)
    assert abs(np.mean(losses) + certified.elbo) < NUM_SDS * error


def test_draws_of_the_guide_are_those_of_the_fit(fitted: Callable[[Any], dlrd.Fit]) -> None:
    fit = fitted(normal())
    sites = dlrd.numpyro.guide(fit).sample_posterior(jax.random.key(4), {}, sample_shape=(7,))
    for name, values in fit.sample(4, 7).items():
        np.testing.assert_allclose(sites[name], values, rtol=1e-12)


def test_the_rule_in_numpyros_own_svi() -> None:
    """Nothing else is changed: the optimiser is handed over as any of optax's."""
    optimizer = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-1))
    svi = SVI(weights, AutoNormal(weights), optimizer, Trace_ELBO(num_particles=4))
    result = svi.run(jax.random.key(0), 2_000, Y, progress_bar=False)
    num_decays = optax.tree_utils.tree_get(result.state.optim_state, "num_decays")
    rate = optax.tree_utils.tree_get(result.state.optim_state, "learning_rate")
    assert num_decays >= 1
    np.testing.assert_allclose(rate, 0.1 ** (1 + int(num_decays)))
    # As near to the optimum as the decayed rate leaves it: a certified fit of the same family knows where.
    best = dlrd.fit(dlrd.models.numpyro(weights, Y), dlrd.MeanFieldNormal.standard(2), progress=False).family
    assert abs(result.params["mean_auto_loc"] - best.mean[0]) < best.std[0]


def test_what_is_no_fit_of_a_numpyro_model(certified: dlrd.Fit) -> None:
    with pytest.raises(TypeError, match=r"fit must be what dlrd.fit gives, got int 3"):
        dlrd.numpyro.guide(3)  # pyright: ignore[reportArgumentType] - the mistake is the test
    other = dataclasses.replace(certified, model=dlrd.models.function(lambda z: -0.5 * (z @ z), 2))
    with pytest.raises(ValueError, match=r"must be of a model from dlrd.models.numpyro .*, got a fit of"):
        dlrd.numpyro.guide(other)
