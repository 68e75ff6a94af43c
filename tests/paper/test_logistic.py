"""Section 3.2 of the paper: the logistic regression's density, and its best full-rank normal."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

import dlrd
from dlrd.paper.problems import logistic
from dlrd.paper.references import logistic as reference_module
from dlrd.paper.references import logistic_reference
from dlrd.paper.references.logistic import elbo


def design_and_target() -> tuple[np.ndarray, np.ndarray]:
    """The features with a constant one, standardised by scikit-learn, and whether each tumour is benign."""
    features, target = load_breast_cancer(return_X_y=True)
    return np.column_stack([StandardScaler().fit_transform(features), np.ones(len(target))]), target


def both_expectations(mean: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[σ(−t)] and E[σ'(t)] for t ~ N(mean, std²), another way: integrals over a logistic variable u.

    σ(−t) is the probability of u > t, so its mean is that of P(t < u); the mean of σ' is t's density at u.
    """
    points, weights = np.polynomial.legendre.leggauss(500)
    u, weights = 45 * points, 45 * weights * expit(45 * points) * expit(-45 * points)
    noise = (u - mean[:, None]) / std[:, None]
    return stats.norm.cdf(noise) @ weights, stats.norm.pdf(noise) @ weights / std


@pytest.fixture(scope="module")
def reference() -> Iterator[dlrd.FullRankNormal]:
    with jax.enable_x64(True):
        yield logistic_reference()


def test_density_and_gradient(precision: jnp.dtype) -> None:
    design, target = design_and_target()
    z = np.random.default_rng(0).normal(size=31).astype(precision)
    value, gradient = jax.value_and_grad(logistic())(jnp.asarray(z))
    probability = expit(design @ z)
    direct = np.sum(stats.bernoulli.logpmf(target, probability)) + np.sum(stats.norm.logpdf(z, scale=10))
    rounding = 1e3 * np.finfo(precision).eps  # about 600 terms
    assert value.dtype == precision
    np.testing.assert_allclose(value, direct, rtol=rounding)
    expected = design.T @ (target - probability) - z / 100
    np.testing.assert_allclose(gradient, expected, atol=rounding * np.max(np.abs(expected)))


def test_density_far_out(x64: None) -> None:
    """No overflow where the odds are beyond all numbers: there log σ(t) is min(t, 0)."""
    design, target = design_and_target()
    z = 1e4 * np.random.default_rng(0).normal(size=31)
    odds = np.where(target == 1, 1, -1) * (design @ z)
    expected = np.sum(np.minimum(odds, 0)) + np.sum(stats.norm.logpdf(z, scale=10))
    np.testing.assert_allclose(logistic()(jnp.asarray(z)), expected, rtol=1e-9)


@pytest.mark.parametrize("std", [1.0, 10.0, 53.0])
def test_quadrature(std: float) -> None:
    log_odds, weights = reference_module._nodes(np.ones((1, 1)), np.array([0.7]), np.array([[std]]))
    slope, curvature = both_expectations(np.array([0.7]), np.array([std]))
    np.testing.assert_allclose(expit(-log_odds) @ weights, slope, rtol=1e-12)
    np.testing.assert_allclose((expit(log_odds) * expit(-log_odds)) @ weights, curvature, rtol=1e-12)


def test_reference_is_stationary(x64: None, reference: dlrd.FullRankNormal) -> None:
    design, target = design_and_target()
    signed = np.where(target == 1, 1, -1)[:, None] * design
    mean, covariance = np.asarray(reference.mean), np.asarray(reference.covariance)
    std = np.sqrt(np.einsum("ni,ij,nj->n", signed, covariance, signed))
    slope, curvature = both_expectations(signed @ mean, std)
    root = np.asarray(reference.scale_tril)
    precision = signed.T @ (curvature[:, None] * signed) + np.eye(31) / 100
    assert np.linalg.norm(root.T @ (signed.T @ slope - mean / 100)) < 1e-10
    assert np.linalg.norm(root.T @ precision @ root - np.eye(31)) < 1e-10


def test_nodes_are_enough(x64: None, reference: dlrd.FullRankNormal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_module, "SPACING", reference_module.SPACING / 2)
    finer = logistic_reference()
    np.testing.assert_allclose(finer.mean, reference.mean, atol=1e-10)
    np.testing.assert_allclose(finer.cholesky, reference.cholesky, atol=1e-10)
    np.testing.assert_allclose(elbo(reference), elbo(finer), rtol=1e-13)


def test_elbo(x64: None, reference: dlrd.FullRankNormal) -> None:
    """Against a plain average over draws, within five standard errors, and whatever the signs in L."""
    log_density = logistic()
    for family in (reference, dlrd.FullRankNormal.standard(31)):
        draws = family.sample(jax.random.key(0), (10_000,))
        terms = jax.vmap(log_density)(draws) - family.log_prob(draws)
        assert abs(elbo(family) - jnp.mean(terms)) < 5 * jnp.std(terms) / np.sqrt(len(terms))
    mirrored = dlrd.FullRankNormal(reference.loc, -reference.cholesky)
    assert elbo(mirrored) == pytest.approx(elbo(reference), rel=1e-14)


@pytest.mark.parametrize("size", [1e-4, 1e-2, 1.0])
def test_reference_is_best(x64: None, reference: dlrd.FullRankNormal, size: float) -> None:
    rng = np.random.default_rng(0)
    best = elbo(reference)
    for _ in range(5):
        shift, stretch = rng.normal(size=31), np.tril(rng.normal(size=(31, 31)))
        root = reference.cholesky @ (np.eye(31) + size * stretch / 31)
        nearby = dlrd.FullRankNormal(reference.loc + size * reference.cholesky @ shift / 31, root)
        assert elbo(nearby) < best
