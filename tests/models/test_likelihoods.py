"""Likelihoods, against SciPy's normal density."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dlrd.models.likelihoods import Custom, Gaussian, OwnDensity
from dlrd.simulation import Misfit

pytestmark = pytest.mark.usefixtures("x64")
DATA = np.array([1.0, 2.0, -1.0])
OUTPUTS = np.array([[0.5, 2.5, 0.5], [1.0, 1.0, 1.0]])
LEVELS = np.array([0.3, 2.0])


def test_a_level_that_is_unknown() -> None:
    likelihood = Gaussian(Misfit(DATA, 1.0), "s")
    expected = stats.norm(DATA, LEVELS[:, None]).logpdf(OUTPUTS)
    np.testing.assert_allclose(likelihood.pointwise(OUTPUTS, {"s": LEVELS}), expected)
    for outputs, level, own in zip(OUTPUTS, LEVELS, expected, strict=True):
        given = jnp.asarray(-likelihood.misfit.value(outputs))
        np.testing.assert_allclose(likelihood.log_density(given, {"s": jnp.asarray(level)}), own.sum())


def test_correlated_data_have_one_likelihood() -> None:
    covariance = np.array([[1.0, 0.5, 0], [0.5, 2.0, 0.1], [0, 0.1, 0.7]])
    likelihood = Gaussian(Misfit(DATA, covariance), None)
    expected = stats.multivariate_normal(DATA, covariance).logpdf(OUTPUTS)
    np.testing.assert_allclose(likelihood.pointwise(OUTPUTS, {"k": LEVELS}), expected)


def test_new_data_have_the_noise() -> None:
    likelihood = Gaussian(Misfit(DATA, [0.1, 1.0, 2.0]), "s")
    num = 20_000
    outputs, levels = np.tile(OUTPUTS[0], (num, 1)), np.full(num, 3.0)
    made = likelihood.data_of(outputs, {"s": levels}, np.random.default_rng(0)) - OUTPUTS[0]
    # Five standard errors of a standard deviation.
    np.testing.assert_allclose(made.std(axis=0), [0.3, 3.0, 6.0], rtol=5 / np.sqrt(2 * num))


def test_functions_of_the_users_own() -> None:
    likelihood = Custom(lambda outputs, variables: -jnp.sum(jnp.abs(outputs)) * variables["s"])
    assert likelihood.log_density(jnp.asarray(OUTPUTS[1]), {"s": jnp.asarray(2.0)}) == -6
    assert OwnDensity().log_density(jnp.asarray(3.0), {}) == 3
    for each in (likelihood, OwnDensity()):
        assert each.data_of(OUTPUTS, {}, np.random.default_rng(0)) is None
        with pytest.raises(TypeError, match="the likelihood of each datum is known where data and noise are"):
            each.pointwise(OUTPUTS, {})
