"""What a fit gives to samplers."""

from collections.abc import Callable

import flowjax.distributions
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.fitting import chains

Ended = Callable[..., dlrd.Fit]


def test_starts_are_draws(ended: Ended) -> None:
    fit = ended(dlrd.FullRankNormal.standard(2))
    np.testing.assert_array_equal(fit.inits(3, key=5), fit.sample(5, 3))


def test_starts_are_in_the_form_of_the_models_library(counties_fit: dlrd.Fit) -> None:
    starts = counties_fit.inits(2)
    flat = counties_fit.unconstrained_draws(0, 2)
    assert [set(start) for start in starts] == 2 * [{"log_sigma", "level"}]
    np.testing.assert_array_equal([start["level"] for start in starts], flat[:, 1:])


def test_a_chain_at_least(ended: Ended) -> None:
    with pytest.raises(ValueError, match="num_chains must be a whole number of at least 1, got int 0"):
        ended(dlrd.FullRankNormal.standard(2)).inits(0)


def test_covariance_is_the_inverse_mass(ended: Ended) -> None:
    root = np.array([[2.0, 0.0], [30.0, 40.0]])
    full = ended(dlrd.FullRankNormal([1.0, 2.0], root))
    np.testing.assert_allclose(full.inverse_mass_matrix(), root @ root.T, rtol=1e-6)
    low_rank = ended(dlrd.LowRankNormal([1.0, 2.0], np.log([0.5, 0.25]), [[1.0], [2.0]]))
    np.testing.assert_allclose(low_rank.inverse_mass_matrix(), [[1.25, 2.0], [2.0, 4.0625]], rtol=1e-6)


def test_variances_where_there_is_no_covariance(ended: Ended) -> None:
    mean_field = ended(dlrd.MeanFieldNormal([1.0, 2.0], np.log([0.5, 3.0])))
    np.testing.assert_allclose(mean_field.inverse_mass_matrix(), [0.25, 9.0], rtol=1e-6)


def test_large_covariances_are_not_made(ended: Ended, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "MAX_DENSE", 1)
    fit = ended(dlrd.FullRankNormal([1.0, 2.0], [[2.0, 0.0], [3.0, 4.0]]))
    np.testing.assert_allclose(fit.inverse_mass_matrix(), [4.0, 25.0], rtol=1e-6)


def test_variances_of_a_family_without_moments_are_those_of_draws(ended: Ended) -> None:
    fit = ended(flowjax.distributions.Normal(jnp.zeros(2), jnp.array([0.5, 3.0])))
    # Five standard errors of a variance of 10,000 draws.
    np.testing.assert_allclose(fit.inverse_mass_matrix(), [0.25, 9.0], rtol=5 * np.sqrt(2 / 10_000))
