"""Every estimator is unbiased: the mean of many estimates against the exact ELBO and its exact gradient."""

import equinox as eqx
import flowjax.distributions
import flowjax.flows
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from dlrd import (
    FullRankNormal,
    MeanFieldNormal,
    Mixture,
    reparameterized,
    score_function,
    sticking_the_landing,
)

DIM = 3
NUM_ESTIMATES = 20_000
LOC = np.array([0.4, -0.8, 1.1])
LOG_SCALE = np.array([-0.4, 0.3, -0.1])
CHOLESKY = np.array(
    [[0.9, 0.0, 0.0], [-0.5, -0.6, 0.0], [0.2, 0.4, 1.2]]
)  # one entry of the diagonal negative

# Lists, not arrays: they take on the precision of the test that uses them.
TARGET_LOC = [1.0, -0.5, 0.2]
PRECISION = [[1.5, 0.4, -0.3], [0.4, 0.9, 0.2], [-0.3, 0.2, 0.7]]
WIDTH = [1.2, 2.0, 3.0]


def mean_field():
    return MeanFieldNormal(LOC, LOG_SCALE)


def full_rank():
    return FullRankNormal(LOC, CHOLESKY)


def mixture():
    return Mixture([full_rank(), FullRankNormal(-LOC, CHOLESKY)])


def flowjax_normal():
    return flowjax.distributions.Normal(jnp.zeros(DIM), jnp.ones(DIM))


def moments(family):
    """Mean, covariance and the logarithm of its determinant's root, as functions of the trainable arrays."""
    if isinstance(family, FullRankNormal):
        root = jnp.tril(family.cholesky)
        return family.loc, root @ root.T, jnp.sum(jnp.log(jnp.abs(jnp.diagonal(root))))
    return family.loc, jnp.diag(jnp.exp(2 * family.log_scale)), jnp.sum(family.log_scale)


def target(strength):
    """The log density of the paper's synthetic problem; with strength 0 of its quartic term, of a normal."""

    loc, precision, width = jnp.array(TARGET_LOC), jnp.array(PRECISION), jnp.array(WIDTH)

    def log_density(z):
        centered = z - loc
        return -0.5 * centered @ precision @ centered - 0.5 * strength * jnp.sum((centered / width) ** 4)

    return log_density


def exact_elbo(family, strength):
    loc, covariance, log_root_det = moments(family)
    shift, variance = loc - jnp.array(TARGET_LOC), jnp.diagonal(covariance)
    precision = jnp.array(PRECISION)
    quadratic = shift @ precision @ shift + jnp.trace(precision @ covariance)
    fourth_moment = shift**4 + 6 * shift**2 * variance + 3 * variance**2
    entropy = log_root_det + 0.5 * DIM * jnp.log(2 * jnp.pi * jnp.e)
    return -0.5 * quadratic - 0.5 * strength * jnp.sum(fourth_moment / jnp.array(WIDTH) ** 4) + entropy


@pytest.fixture(
    params=[reparameterized, sticking_the_landing, score_function],
    ids=lambda rule: rule.__name__,
    scope="module",  # keeps the tests of one estimator together
)
def estimator(request):
    return request.param


@eqx.filter_jit
def many_estimates(estimator, family, strength, keys, num_draws):
    """Independent gradients as rows, and the ELBO estimates of the same draws."""

    def one(key):
        estimate = estimator(target(strength), family, key, num_draws)
        return ravel_pytree(estimate.gradient)[0], jnp.mean(estimate.elbo_terms)

    return jax.vmap(one)(keys)


@eqx.filter_jit
def exact(family, strength):
    elbo, gradient = eqx.filter_value_and_grad(exact_elbo)(family, strength)
    return ravel_pytree(gradient)[0], elbo


def mean_and_error(samples):
    """The mean over the rows and its standard error."""
    samples = np.asarray(samples, np.float64)
    return samples.mean(axis=0), samples.std(axis=0, ddof=1) / np.sqrt(len(samples))


def check_unbiased(estimator, family, strength, num_draws):
    strength = jnp.asarray(strength)
    keys = jax.random.split(jax.random.key(0), NUM_ESTIMATES)
    for samples, expected in zip(
        many_estimates(estimator, family, strength, keys, num_draws), exact(family, strength), strict=True
    ):
        mean, error = mean_and_error(samples)
        # 5 standard errors: one false failure in 10⁶ components. What has no noise is exact up to rounding.
        rounding = 10 * float(jnp.finfo(samples.dtype).eps) * (1 + np.abs(expected))
        np.testing.assert_array_less(np.abs(mean - np.asarray(expected)), 5 * error + rounding)
        assert np.linalg.norm(error) < 0.1 * np.linalg.norm(expected)  # the comparison says something


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("strength", [0.0, 1.0], ids=["normal", "quartic"])
@pytest.mark.parametrize("num_draws", [2, 8])
@pytest.mark.parametrize("make", [mean_field, full_rank])
def test_unbiased(estimator, make, num_draws, strength):
    check_unbiased(estimator, make(), strength, num_draws)


@pytest.mark.slow
def test_unbiased_in_float32(estimator):
    family = full_rank()
    assert {leaf.dtype for leaf in jax.tree.leaves(family)} == {jnp.dtype("float32")}
    check_unbiased(estimator, family, 1.0, 4)


@pytest.mark.usefixtures("x64")
def test_the_papers_optimum_has_no_gradient():
    """Checks the exact gradient itself: the closed form of the paper's appendix B is its root."""
    diagonal, width = np.diagonal(PRECISION), np.array(WIDTH)
    variance = width**4 * (np.sqrt(diagonal**2 + 24 / width**4) - diagonal) / 12
    gradient, elbo = exact(MeanFieldNormal(TARGET_LOC, 0.5 * np.log(variance)), jnp.array(1.0))
    np.testing.assert_allclose(gradient, 0, atol=1e-14)
    entropy = 0.5 * DIM * np.log(2 * np.pi * np.e)  # the paper leaves out this constant
    expected = np.sum(-1.5 * variance**2 / width**4 - 0.5 * variance * diagonal + 0.5 * np.log(variance))
    np.testing.assert_allclose(elbo, expected + entropy, rtol=1e-14)


@pytest.mark.parametrize("make", [mean_field, full_rank, mixture, flowjax_normal])
def test_the_gradient_is_shaped_and_typed_as_the_family(estimator, make, precision):
    family = make()
    estimate = eqx.filter_eval_shape(estimator, target(1.0), family, jax.random.key(0), 5)
    trainable = eqx.filter(family, eqx.is_inexact_array)
    assert estimate.elbo_terms.shape == (5,)
    assert {leaf.dtype for leaf in jax.tree.leaves(estimate)} == {precision}
    assert jax.tree.structure(estimate.gradient) == jax.tree.structure(trainable)
    assert jax.tree.map(jnp.shape, estimate.gradient) == jax.tree.map(jnp.shape, trainable)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_estimators_agree_on_a_flow():
    flow = flowjax.flows.masked_autoregressive_flow(
        jax.random.key(7),
        base_dist=flowjax.distributions.StandardNormal((DIM,)),
        flow_layers=1,
        nn_width=4,
        nn_activation=jnp.tanh,
    )
    keys = jax.random.split(jax.random.key(0), 5_000)
    landing, *others = (
        [mean_and_error(samples) for samples in many_estimates(rule, flow, jnp.array(0.0), keys, 4)]
        for rule in (sticking_the_landing, reparameterized, score_function)
    )
    assert np.count_nonzero(landing[0][0]) > 20
    for other in others:
        for (mean, error), (other_mean, other_error) in zip(landing, other, strict=True):
            # Weights that the flow masks have gradient 0 from every estimator.
            allowed = 5 * np.hypot(error, other_error) + 1e-14
            np.testing.assert_array_less(np.abs(mean - other_mean), allowed)
