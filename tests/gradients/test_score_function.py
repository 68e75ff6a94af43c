"""The score-function gradient: values alone, Rao–Blackwellisation and control variate."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jax.scipy.stats import norm

from dlrd import FullRankNormal, MeanFieldNormal, reparameterized, score_function
from dlrd.families import Factorized

LOC = np.array([0.4, -0.8, 1.1])
LOG_SCALE = np.array([-0.4, 0.3, -0.1])
CHOLESKY = np.array([[0.9, 0.0, 0.0], [-0.5, -0.6, 0.0], [0.2, 0.4, 1.2]])


class Unfactorized(eqx.Module):
    """A family that keeps to itself that its coordinates are independent."""

    inner: MeanFieldNormal

    def sample(self, key, sample_shape=()):
        return self.inner.sample(key, sample_shape)

    def log_prob(self, x):
        return self.inner.log_prob(x)


def mean_field():
    return MeanFieldNormal(LOC, LOG_SCALE)


def full_rank():
    return FullRankNormal(LOC, CHOLESKY)


def log_density(z):
    return -0.5 * jnp.sum((z - 1) ** 2 / jnp.array([1.0, 2.0, 3.0])) - 0.05 * jnp.sum(z**4)


@eqx.filter_jit
def compiled_gradients(estimator, log_density, family, num_draws, keys, offset):
    def one(key):
        return ravel_pytree(estimator(lambda z: log_density(z) + offset, family, key, num_draws).gradient)[0]

    return jax.vmap(one)(keys)


def gradients(estimator, log_density, family, num_draws, num_estimates=4_000, offset=0.0):
    """Independent gradients as rows; the offset is added to the log density."""
    keys = jax.random.split(jax.random.key(0), num_estimates)
    return np.asarray(
        compiled_gradients(estimator, log_density, family, num_draws, keys, jnp.asarray(offset)), np.float64
    )


def total_variance(rows):
    """The variance of the rows, summed over their components, and its standard error."""
    squares = np.sum((rows - rows.mean(axis=0)) ** 2, axis=1)
    return squares.mean(), squares.std() / np.sqrt(len(squares))


def check_lower(lower, higher, factor):
    """The first total variance times the factor is below the second, by 5 standard errors of each."""
    (low, low_error), (high, high_error) = total_variance(lower), total_variance(higher)
    assert factor * (low + 5 * low_error) < high - 5 * high_error


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("make", [mean_field, full_rank])
def test_formula_written_out(make):
    """The docstring's formula in plain loops over draws and parameters."""
    family, num_draws = make(), 5

    @jax.jit
    def parts(family, key):
        draws = family.sample(key, (num_draws,))
        scores = jax.vmap(jax.grad(lambda family, draw: family.log_prob(draw)), (None, 0))(family, draws)
        return (
            score_function(log_density, family, key, num_draws),
            draws,
            jax.vmap(log_density)(draws),
            scores,
        )

    estimate, draws, values, scores = parts(family, jax.random.key(0))
    values = np.asarray(values)
    np.testing.assert_allclose(estimate.elbo_terms, values - family.log_prob(draws), rtol=1e-13)
    for name in ("loc", "log_scale" if make is mean_field else "cholesky"):
        score = np.asarray(getattr(scores, name)).reshape(num_draws, -1)
        expected = np.zeros(score.shape[1])
        for parameter in range(score.shape[1]):
            if make is mean_field:
                weight = values - np.asarray(family.log_prob_factors(draws))[:, parameter]
            else:
                weight = values - np.asarray(family.log_prob(draws))
            for draw in range(num_draws):
                others = np.arange(num_draws) != draw
                squares = score[others, parameter] ** 2
                constant = squares @ weight[others] / squares.sum() if squares.sum() > 0 else 0.0
                expected[parameter] += score[draw, parameter] * (weight[draw] - constant) / num_draws
        # Terms of size 100, rounded, each over a sum of squares that may be a hundredth of the largest.
        np.testing.assert_allclose(
            np.asarray(getattr(estimate.gradient, name)).ravel(), expected, rtol=1e-10, atol=1e-10
        )


def test_a_log_density_from_outside_jax():
    def outside(z):
        return jax.pure_callback(
            lambda z: -np.sum(np.abs(np.floor(np.asarray(z))), axis=-1),
            jax.ShapeDtypeStruct((), z.dtype),
            z,
            vmap_method="expand_dims",
        )

    def inside(z):
        return -jnp.sum(jnp.abs(jnp.floor(z)))

    family, key = full_rank(), jax.random.key(0)
    from_outside = eqx.filter_jit(score_function)(outside, family, key, 8)
    from_inside = eqx.filter_jit(score_function)(inside, family, key, 8)
    # Both log densities are the same whole numbers: what is left is a hundred roundings of 6e-8.
    jax.tree.map(
        lambda left, right: np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5),
        from_outside,
        from_inside,
    )
    with pytest.raises(ValueError, match="do not support JVP"):
        reparameterized(outside, family, key, 8)


@pytest.mark.usefixtures("x64")
def test_a_log_density_of_steps():
    """−|⌊z⌋| has slope 0 wherever it has one; its mean under a normal is a sum of normal probabilities."""
    family = MeanFieldNormal([1.3], [0.5])

    def exact_elbo(family):
        steps = jnp.arange(-20, 20)
        edges = norm.cdf(jnp.arange(-20, 21), family.loc, family.std)
        return jnp.sum(-jnp.abs(steps) * jnp.diff(edges)) + jnp.sum(family.log_scale)

    rows = gradients(score_function, lambda z: -jnp.sum(jnp.abs(jnp.floor(z))), family, 4, 20_000)
    exact = np.asarray(ravel_pytree(jax.jit(jax.grad(exact_elbo))(family))[0])
    error = rows.std(axis=0) / np.sqrt(len(rows))
    np.testing.assert_array_less(np.abs(rows.mean(axis=0) - exact), 5 * error)
    assert np.all(error < 0.05 * np.abs(exact))


@pytest.mark.parametrize("num_draws", [0, 1])
def test_one_draw_is_not_enough(num_draws):
    with pytest.raises(ValueError, match=f"num_draws must be at least 2 for score_function, got {num_draws}"):
        score_function(log_density, mean_field(), jax.random.key(0), num_draws)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_rao_blackwellization_lowers_the_variance():
    """Ten coordinates: without the factors, each parameter's weight has the noise of nine others' log q."""
    family = MeanFieldNormal(np.zeros(10), np.full(10, -0.5))
    assert isinstance(family, Factorized)
    assert not isinstance(Unfactorized(family), Factorized)

    def flat(z):
        return -0.01 * jnp.sum(z**2)

    factorized = gradients(score_function, flat, family, 4)
    unfactorized = gradients(score_function, flat, Unfactorized(family), 4)
    # log q has variance 5, of which one factor is a tenth; log p varies little.
    check_lower(factorized, unfactorized, factor=1.5)


class Raw(NamedTuple):
    gradient: Any


def raw_score_function(log_density, family, key, num_draws):
    """The paper's first formula for the gradient: the score times the weight, nothing else."""
    draws = jax.lax.stop_gradient(family.sample(key, (num_draws,)))
    weights = jax.lax.stop_gradient(jax.vmap(log_density)(draws) - family.log_prob(draws))
    return Raw(jax.grad(lambda family: jnp.mean(weights * family.log_prob(draws)))(family))


@pytest.mark.usefixtures("x64")
def test_control_variate_lowers_the_variance():
    family = full_rank()
    controlled = gradients(score_function, log_density, family, 8, offset=-50.0)
    raw = gradients(raw_score_function, log_density, family, 8, offset=-50.0)
    np.testing.assert_array_less(
        np.abs(controlled.mean(axis=0) - raw.mean(axis=0)),
        5 * np.hypot(controlled.std(axis=0), raw.std(axis=0)) / np.sqrt(len(raw)) + 1e-14,
    )
    # The raw weight is about −50 with a spread of a few: nearly all of its square is its mean.
    check_lower(controlled, raw, factor=10)


@pytest.mark.parametrize("make", [mean_field, full_rank])
def test_a_constant_in_the_log_density_changes_nothing_in_float32(make):
    """Log densities of real data lie at −10⁴; only their differences are to matter.

    With two draws, the score of the other one is at times tiny: nothing may be divided by it that is rounded
    relative to something larger.
    """
    family = make()
    plain, _ = total_variance(gradients(score_function, log_density, family, 2))
    shifted, _ = total_variance(gradients(score_function, log_density, family, 2, offset=-1e4))
    # The same draws. Values near 1e4 are rounded to 1e-3, a thousandth of their spread.
    assert shifted == pytest.approx(plain, rel=0.02)


def test_the_height_of_q_changes_nothing_in_float32():
    """A narrow family has a large log density; like any constant in the weights, it is not to matter."""

    def narrowed(scale):
        family = FullRankNormal(np.zeros(10), scale * np.eye(10))
        rows = gradients(score_function, lambda z: -0.25 * jnp.sum((z / scale - 1) ** 2), family, 2)
        return total_variance(scale * rows)[0]

    # A power of two: draws and scores scale without rounding. Weights near 140 are rounded to 1e-5.
    assert narrowed(2.0**-20) == pytest.approx(narrowed(1.0), rel=0.02)
