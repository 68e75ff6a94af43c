"""Automatic fits where the whole Hessian is much: with a pattern, or with the whole of it measured once."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families.curvature import MAX_WHOLE
from dlrd.fitting.automatic.fit import fit_automatically
from dlrd.fitting.automatic.judge.certificate import certify
from dlrd.fitting.automatic.plan import Plan, default_tolerance
from dlrd.fitting.request import Aim, Request, Sampling, Stepping, Watching

NUM_CHAIN, NUM_TIED = 300, 220
CHAIN_MEAN = 2 * np.sin(np.arange(NUM_CHAIN) / 10)
CHAIN = 2.2 * np.eye(NUM_CHAIN) - np.eye(NUM_CHAIN, k=1) - np.eye(NUM_CHAIN, k=-1)
TIED = np.eye(NUM_TIED) + 3 / NUM_TIED


def chained(z: jax.Array) -> jax.Array:
    """A normal whose precision is `CHAIN`."""
    away = z - jnp.asarray(CHAIN_MEAN, z.dtype)
    return -1.1 * jnp.sum(away**2) + jnp.sum(away[1:] * away[:-1])


def tied(z: jax.Array) -> jax.Array:
    """A normal whose precision is `TIED`: each coordinate with all others."""
    return -0.5 * jnp.sum((z - 1) ** 2) - 1.5 * jnp.sum(z - 1) ** 2 / NUM_TIED


def fitted(log_density: Callable[[jax.Array], jax.Array], family: Any) -> dlrd.Fit:
    return dlrd.fit(log_density, family, key=0, progress=False)


def log_evidence(precision: np.ndarray) -> float:
    return 0.5 * (len(precision) * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1])


def is_coupled_only(family: dlrd.SparseNormal, pattern: np.ndarray) -> bool:
    """Whether the precision is that of these couplings; what elimination fills in has some rounding."""
    precision = np.abs(family.precision.toarray())
    rounding = 100 * np.finfo(np.float32).eps * precision.max()
    return bool(np.all(precision[~pattern] < rounding) and np.mean(precision[pattern] > rounding) > 0.9)


NUM_ROWS, NUM_COLUMNS = 10, 80
CROSSED = np.eye(NUM_ROWS + NUM_COLUMNS, dtype=bool)
CROSSED[:NUM_ROWS, NUM_ROWS:] = CROSSED[NUM_ROWS:, :NUM_ROWS] = True


def crossed(z: jax.Array) -> jax.Array:
    """Counts in a table of two-way effects: as many colours as rows, and one, no saving in 90 dimensions."""
    logs = z[:NUM_ROWS, None] + z[NUM_ROWS:]
    counts = jnp.asarray(np.random.default_rng(0).poisson(2, logs.shape), z.dtype)
    return jnp.sum(counts * logs - jnp.exp(logs)) - 0.5 * jnp.sum(z**2)


def test_many_colours_are_fitted_by_gradients_alone() -> None:
    """The sparse answer is that of the best full-rank normal, and has the pattern of the model."""
    dim = NUM_ROWS + NUM_COLUMNS
    with jax.enable_x64(True):
        fit = fitted(crossed, dlrd.SparseNormal.standard(dim))
        assert isinstance(fit.family, dlrd.SparseNormal)
        assert fit.outcome is dlrd.Outcome.CERTIFIED
        precision = fit.family.precision.toarray()
        np.testing.assert_array_equal(precision[NUM_ROWS:, NUM_ROWS:] != 0, np.eye(NUM_COLUMNS, dtype=bool))
        # The best normal of all has the mean curvature for its precision: how far that is from it, without
        # the noise of the draws, which is not the same in both halves.
        draws = fit.family.sample(jax.random.key(1), (2, 250))
        hessians = -np.mean(jax.lax.map(jax.vmap(jax.hessian(crossed)), draws), axis=1)
        root = np.linalg.cholesky(np.asarray(fit.family.covariance))
        one, other = (root.T @ each @ root - np.eye(dim) for each in hessians)
        assert 0.25 * np.sum(one * other) < default_tolerance(dim)


@pytest.fixture(scope="module")
def sparse_chain() -> dlrd.Fit:
    return fitted(chained, dlrd.SparseNormal.standard(NUM_CHAIN))


def test_chain_is_found_exactly(sparse_chain: dlrd.Fit) -> None:
    """It is in the family, and its pattern is found: no noise is left but that of single precision."""
    exact = dlrd.FullRankNormal(CHAIN_MEAN, np.linalg.cholesky(np.linalg.inv(CHAIN)))
    assert sparse_chain.outcome is dlrd.Outcome.CERTIFIED
    assert isinstance(sparse_chain.family, dlrd.SparseNormal)
    assert is_coupled_only(sparse_chain.family, CHAIN != 0)
    assert dlrd.kl(sparse_chain.family, exact) < default_tolerance(NUM_CHAIN)
    # The ratios are sums of a thousand numbers of size 1.
    rounding = 1000 * np.finfo(np.float32).eps
    assert abs(sparse_chain.elbo - log_evidence(CHAIN)) < default_tolerance(NUM_CHAIN) + rounding


def test_correlations_of_a_chain_are_known(sparse_chain: dlrd.Fit) -> None:
    """Of neighbours and of coordinates further apart, which the precision does not couple."""
    covariance = np.linalg.inv(CHAIN)
    found = np.asarray(sparse_chain.family.covariance)
    # A quarter of ‖Σ^-½ (Σ' − Σ) Σ^-½‖² is the divergence, to the second order.
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    distance = np.linalg.norm(root @ (found - covariance) @ root.T)
    assert 0.25 * distance**2 < default_tolerance(NUM_CHAIN)


@pytest.mark.parametrize(
    ("log_density", "mean", "precision"),
    [(chained, CHAIN_MEAN, CHAIN), (tied, np.ones(NUM_TIED), TIED)],
    ids=["with a pattern", "without"],
)
def test_mean_field_is_certified(
    log_density: Callable[[jax.Array], jax.Array], mean: np.ndarray, precision: np.ndarray
) -> None:
    dim = len(mean)
    assert dim > MAX_WHOLE
    found = fitted(log_density, dlrd.MeanFieldNormal.standard(dim))
    assert found.outcome is dlrd.Outcome.CERTIFIED
    assert found.verdict is not None
    assert found.verdict.gap < found.verdict.tolerance == default_tolerance(dim)
    exact = dlrd.FullRankNormal(mean, np.linalg.cholesky(np.linalg.inv(precision)))
    best = dlrd.MeanFieldNormal(mean, -0.5 * np.log(np.diagonal(precision)))
    lacks = float(dlrd.kl(found.family, exact)) - float(dlrd.kl(best, exact))
    assert lacks < default_tolerance(dim)
    expected = log_evidence(precision) - float(dlrd.kl(found.family, exact))
    assert abs(found.elbo - expected) < 4 * found.elbo_error + 1e-3


NUM_EFFECTS = 58
OBSERVED = np.random.default_rng(0).normal(1.0, 1.5, size=NUM_EFFECTS)


def hierarchy(z: jax.Array) -> jax.Array:
    """Effects that are known to one unit, around a mean and with a spread of their own."""
    mean, log_spread, effects = z[0], z[1], z[2:]
    prior = -0.5 * (mean / 5) ** 2 - 0.5 * log_spread**2 - NUM_EFFECTS * log_spread
    level = -0.5 * jnp.sum((effects - mean) ** 2) * jnp.exp(-2 * log_spread)
    return prior + level - 0.5 * jnp.sum((jnp.asarray(OBSERVED, z.dtype) - effects) ** 2)


SHARED = dlrd.models.function(hierarchy, 2 + NUM_EFFECTS)


@pytest.fixture(scope="module")
def sparse_hierarchy() -> dlrd.Fit:
    return fitted(SHARED, dlrd.SparseNormal.standard(2 + NUM_EFFECTS))


def measured(fit: dlrd.Fit) -> tuple[float, float]:
    """The ELBO with many draws, and its standard error."""
    assert fit.model is not None
    seen = certify(fit.model, fit.family, jax.random.key(1), 2**14, fit.family)
    return seen.elbo, seen.elbo_error


def test_hierarchy_is_certified(sparse_hierarchy: dlrd.Fit) -> None:
    """The effects depend on each other by the two that they share alone."""
    assert sparse_hierarchy.outcome is dlrd.Outcome.CERTIFIED
    assert isinstance(sparse_hierarchy.family, dlrd.SparseNormal)
    pattern = np.eye(2 + NUM_EFFECTS, dtype=bool)
    pattern[:2], pattern[:, :2] = True, True
    assert is_coupled_only(sparse_hierarchy.family, pattern)


@pytest.fixture(scope="module")
def sparse_elbo(sparse_hierarchy: dlrd.Fit) -> tuple[float, float]:
    return measured(sparse_hierarchy)


@pytest.mark.parametrize("plan", [None, Plan(has_start=False)], ids=["with the pattern", "plainly"])
def test_hierarchy_is_as_good_as_with_a_full_rank_normal(
    sparse_elbo: tuple[float, float], plan: Plan | None
) -> None:
    """Fitted in the same way, and by plain natural gradients from N(0, I), which know of no pattern."""
    dim = 2 + NUM_EFFECTS
    request = Request(Aim(), Stepping(), Sampling(), Watching(progress=False))
    full = fit_automatically(SHARED, dlrd.FullRankNormal.standard(dim), jax.random.key(0), request, plan)
    assert isinstance(full.family, dlrd.FullRankNormal)
    (best_sparse, sparse_error), (best_full, full_error) = sparse_elbo, measured(full)
    lacks = best_full - best_sparse
    assert full.verdict is not None
    # Each may be a tolerance below the best; that of the plain fit is told by its gradient.
    missing = max(full.verdict.gap, 0) + 2 * full.verdict.gap_error
    error = 4 * np.hypot(sparse_error, full_error)
    assert -missing - error < lacks < default_tolerance(dim) + error
    assert error < 0.2
