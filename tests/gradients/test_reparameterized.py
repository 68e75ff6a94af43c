"""The two gradients through the draws: what they share, what separates them, and the paper's formula."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd import FullRankNormal, MeanFieldNormal, reparameterized, sticking_the_landing

DIM = 4
NUM_DRAWS = 6
LOC = np.array([0.4, -0.8, 1.1, 2.0])
LOG_SCALE = np.array([-0.4, 0.3, -0.1, 1.0])
CHOLESKY = np.array(
    [[0.9, 0.0, 0.0, 0.0], [-0.5, -0.6, 0.0, 0.0], [0.2, 0.4, 1.2, 0.0], [0.3, -0.7, 0.1, 0.8]]
)


def mean_field():
    return MeanFieldNormal(LOC, LOG_SCALE)


def full_rank():
    return FullRankNormal(LOC, CHOLESKY)


@pytest.fixture(params=[mean_field, full_rank], ids=lambda make: make.__name__)
def make(request):
    return request.param


def same_normal(family):
    """The log density of the family at hand, written with an explicit inverse and off by 3.5."""
    root = np.asarray(family.scale_tril, np.float64)
    inverse = np.linalg.inv(root @ root.T).astype(family.loc.dtype)
    log_normalizer = np.linalg.slogdet(root)[1] + 0.5 * DIM * np.log(2 * np.pi)

    def log_density(z):
        return -0.5 * (z - family.loc) @ inverse @ (z - family.loc) - log_normalizer + 3.5

    return log_density


def other_density(z):
    return -0.5 * jnp.sum(z**2) - 0.1 * jnp.sum(z**4) + jnp.sin(z[0] * z[1])


@eqx.filter_jit
def estimate(estimator, log_density, family):
    return estimator(log_density, family, jax.random.key(0), NUM_DRAWS)


@eqx.filter_jit
def values_and_score(log_density, family):
    """The draws of the estimates above, log p − log q at each, and the mean of their scores."""
    draws = family.sample(jax.random.key(0), (NUM_DRAWS,))
    score = jax.grad(lambda family: jnp.mean(family.log_prob(draws)))(family)
    return draws, jax.vmap(log_density)(draws) - family.log_prob(draws), score


def test_no_noise_at_the_optimum_of_a_target_in_the_family(make, precision):
    family = make()
    log_density = same_normal(family)
    landed = estimate(sticking_the_landing, log_density, family)
    plain = estimate(reparameterized, log_density, family)
    # Two gradients of size 10 that cancel, with the condition number of the covariance, about 50.
    rounding = 500 * float(jnp.finfo(precision).eps)
    for quiet, noisy in zip(jax.tree.leaves(landed.gradient), jax.tree.leaves(plain.gradient), strict=True):
        np.testing.assert_allclose(quiet, 0, atol=rounding)
        assert np.max(np.abs(noisy)) > 0.1
    # There p/q is constant: every draw gives the ELBO, the logarithm of the evidence.
    np.testing.assert_allclose(landed.elbo_terms, 3.5, atol=rounding)


@pytest.mark.usefixtures("x64")
def test_values_are_the_same_and_gradients_differ_by_the_score(make):
    family = make()
    landed = estimate(sticking_the_landing, other_density, family)
    plain = estimate(reparameterized, other_density, family)
    _, terms, score = values_and_score(other_density, family)
    # A hundred roundings of terms of size up to 100, in whichever order the compiler puts them.
    np.testing.assert_allclose(landed.elbo_terms, terms, rtol=1e-14, atol=1e-12)
    np.testing.assert_allclose(plain.elbo_terms, terms, rtol=1e-14, atol=1e-12)
    difference = jax.tree.map(jnp.subtract, landed.gradient, plain.gradient)
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, atol=1e-12), difference, score)


@pytest.mark.usefixtures("x64")
def test_the_papers_formula_written_out():
    """Equation for the reparameterised gradient without the score: ∇_z [log p − log q] times ∇_λ z."""
    family = full_rank()
    gradient = estimate(sticking_the_landing, other_density, family).gradient
    draws = np.asarray(values_and_score(other_density, family)[0])
    noise = np.linalg.solve(CHOLESKY, (draws - LOC).T).T
    slopes = np.asarray(jax.jit(jax.vmap(jax.grad(other_density)))(draws))
    slopes = slopes + np.linalg.solve(CHOLESKY @ CHOLESKY.T, (draws - LOC).T).T
    # Slopes reach 100 and pass through a condition number of about 50: 1e-16 of each.
    np.testing.assert_allclose(gradient.loc, slopes.mean(axis=0), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(
        gradient.cholesky, np.tril(slopes.T @ noise / NUM_DRAWS), rtol=1e-11, atol=1e-11
    )
