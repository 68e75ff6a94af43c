"""How noisy the estimators are, far from the optimum and at it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from dlrd import FullRankNormal, MeanFieldNormal, reparameterized, score_function, sticking_the_landing

DIM = 20
NUM_DRAWS = 8
NUM_ESTIMATES = 2_000

pytestmark = pytest.mark.usefixtures("x64")


def synthetic():
    """The paper's synthetic problem, and the best mean-field normal."""
    random = np.random.default_rng(0)
    loc = random.normal(size=DIM)
    width = random.uniform(1, 5, size=DIM)
    factor = 0.1 * random.normal(size=(DIM, DIM))
    precision = np.linalg.inv(factor @ factor.T + np.eye(DIM))
    diagonal = np.diagonal(precision)
    variance = width**4 * (np.sqrt(diagonal**2 + 24 / width**4) - diagonal) / 12

    def log_density(z):
        centered = z - loc
        return -0.5 * jnp.sum((centered / width) ** 4) - 0.5 * centered @ precision @ centered

    return log_density, MeanFieldNormal(loc, 0.5 * np.log(variance))


def correlated():
    """A normal target whose neighbours correlate, and this normal."""
    random = np.random.default_rng(1)
    loc, std = random.normal(size=DIM), random.uniform(0.5, 2, size=DIM)
    distance = np.abs(np.subtract.outer(np.arange(DIM), np.arange(DIM)))
    covariance = std[:, None] * 0.9**distance * std
    precision = np.linalg.inv(covariance)

    def log_density(z):
        return -0.5 * (z - loc) @ precision @ (z - loc)

    return log_density, FullRankNormal(loc, np.linalg.cholesky(covariance))


@eqx.filter_jit
def gradients(estimator, log_density, family, keys):
    """Independent gradients as rows."""

    def one(key):
        return ravel_pytree(estimator(log_density, family, key, NUM_DRAWS).gradient)[0]

    return jax.lax.map(one, keys, batch_size=500)


def total_variances(log_density, family):
    """For each estimator the total variance of its gradient, less and plus 5 standard errors."""

    def interval(rows):
        squares = np.sum((rows - rows.mean(axis=0)) ** 2, axis=1)
        return squares.mean() + 5 * np.array([-1, 1]) * squares.std() / np.sqrt(len(squares))

    keys = jax.random.split(jax.random.key(0), NUM_ESTIMATES)
    rules = (sticking_the_landing, reparameterized, score_function)
    return [interval(np.asarray(gradients(rule, log_density, family, keys))) for rule in rules]


def check_start(log_density, standard):
    landing, plain, score = total_variances(log_density, standard)
    assert score[0] > 5 * plain[1]
    # Far from the optimum neither of the two is much better.
    assert plain[0] > landing[1] / 2
    assert landing[0] > plain[1] / 2


@pytest.mark.slow
def test_the_posterior_is_not_in_the_family():
    log_density, optimum = synthetic()
    check_start(log_density, MeanFieldNormal.standard(DIM))
    near = MeanFieldNormal(optimum.loc + 0.05, optimum.log_scale - 0.05)
    for family in (near, optimum):
        landing, plain, score = total_variances(log_density, family)
        assert score[0] > 5 * plain[1]
        assert plain[0] > 5 * landing[1]


@pytest.mark.slow
def test_the_posterior_is_in_the_family():
    log_density, optimum = correlated()
    check_start(log_density, FullRankNormal.standard(DIM))
    landing, plain, score = total_variances(log_density, optimum)
    # Where p/q is constant, only the plain gradient has noise: its score is left over.
    assert plain[0] > 10
    # 230 components, each a difference of numbers below 100 with the condition number 1e3 of the covariance.
    rounding = 230 * (100 * 1e3 * 2e-16) ** 2
    assert landing[1] < rounding
    assert score[1] < rounding
