"""The search for the best normal, where the answer is known."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.bench.posteriors import optimum as optimum_module
from dlrd.bench.posteriors.optimum import Normal, elbo_gap, factorized, laplace, optimum
from dlrd.divergence import jeffreys, kl
from dlrd.families import FullRankNormal, MeanFieldNormal
from dlrd.models import LogDensity
from dlrd.paper.problems import synthetic

DIM = 4
STANDARD = [MeanFieldNormal.standard, FullRankNormal.standard]
pytestmark = pytest.mark.usefixtures("x64")


def badly_scaled() -> FullRankNormal:
    """A normal whose scales span five orders of magnitude, nearly confined to a subspace."""
    rng = np.random.default_rng(0)
    root = np.tril(rng.normal(size=(DIM, DIM)), -1) + np.diag([1.0, 0.5, 0.3, 0.1])
    return FullRankNormal(10 * rng.normal(size=DIM), np.array([[1e-2], [1.0], [10.0], [1e3]]) * root)


def mixed_log_gammas(mixing: np.ndarray) -> LogDensity:
    """z = A u with u_i the logarithms of exponential variables: skewed, and correlated by A."""
    inverse = jnp.asarray(np.linalg.inv(mixing))

    def log_density(z: jax.Array) -> jax.Array:
        u = inverse @ z
        return jnp.sum(u - jnp.exp(u))

    return log_density


def log_gamma_elbo(family: MeanFieldNormal) -> float:
    """Without mixing: E[exp u] is that of a log-normal variable."""
    loc, std = np.asarray(family.loc), np.asarray(family.std)
    return np.sum(loc - np.exp(loc + std**2 / 2) + np.log(std) + 0.5 * np.log(2 * np.pi * np.e))


def test_laplace_of_a_normal_is_itself() -> None:
    exact = badly_scaled()
    found = laplace(exact.log_prob, DIM)
    assert jeffreys(found, exact) < 1e-10


def test_full_rank_of_a_normal_is_itself() -> None:
    """Few draws are enough, since their second moments are exact."""
    exact = badly_scaled()
    nearby = FullRankNormal(exact.loc, 1.5 * exact.cholesky)
    found = optimum(exact.log_prob, nearby, 2**8)
    assert jeffreys(found.family, exact) < 1e-10  # the square of the tolerance, and rounding
    assert found.elbo == pytest.approx(0, abs=1e-8)
    assert abs(found.error) < 1e-8


def test_mean_field_of_a_normal_has_its_precisions() -> None:
    exact = badly_scaled()
    precision = np.linalg.inv(exact.covariance)
    start = MeanFieldNormal(1.1 * exact.loc, np.log(np.diagonal(precision)) / -2 + 0.3)
    found = optimum(exact.log_prob, start, 2**8)
    np.testing.assert_allclose(found.family.loc, exact.loc, rtol=1e-5)
    np.testing.assert_allclose(found.family.std, np.diagonal(precision) ** -0.5, rtol=1e-5)
    assert found.elbo == pytest.approx(-float(kl(factorized(exact), exact)), abs=1e-8)
    assert jeffreys(found.family, factorized(exact)) < 1e-10


@pytest.mark.parametrize("standard", STANDARD)
def test_skewed_density(standard: Callable[[int], Normal]) -> None:
    """The best normal for the logarithm of an exponential variable is N(−½, 1)."""
    found = optimum(mixed_log_gammas(np.eye(DIM)), standard(DIM), 2**13)
    exact = MeanFieldNormal(np.full(DIM, -0.5), np.zeros(DIM))
    # The Jeffreys divergence is about twice the loss, which is about a quarter of the error.
    assert jeffreys(found.family, exact) < 4 * found.error < 1e-3
    assert found.elbo == pytest.approx(log_gamma_elbo(exact), abs=1e-3)


def test_skewed_and_correlated_density() -> None:
    mixing = np.tril(np.random.default_rng(1).normal(size=(DIM, DIM)), -1) + np.diag([1, 10, 100, 1000])
    log_density = mixed_log_gammas(mixing)
    found = optimum(log_density, laplace(log_density, DIM), 2**13)
    exact = FullRankNormal(mixing @ np.full(DIM, -0.5), mixing)
    assert jeffreys(found.family, exact) < 4 * found.error < 1e-3


def test_the_paper_s_synthetic_problem() -> None:
    problem = synthetic(dim=20)
    found = optimum(problem.log_density, factorized(laplace(problem.log_density, 20)), 2**12)
    assert jeffreys(found.family, problem.optimum) < 4 * found.error < 1e-3


def test_the_gradient_vanishes_at_the_answer() -> None:
    """Along the draws that were given, by differences of the average itself."""
    log_density, noise = mixed_log_gammas(np.eye(2)), optimum_module._noise(2, 2**8, 0)
    indices = np.tril_indices(2)
    start = optimum_module._parameters(FullRankNormal.standard(2))
    loc, root = optimum_module._maximize(log_density, start, indices, noise)

    def average(loc: jax.Array, root: jax.Array) -> jax.Array:
        values = jax.vmap(log_density)(loc + noise @ root.T)
        return jnp.mean(values) + jnp.sum(jnp.log(jnp.diagonal(root)))

    of_loc, of_root = jax.grad(average, argnums=(0, 1))(jnp.asarray(loc), jnp.asarray(root))
    largest = 2 * optimum_module.TOLERANCE  # both roots of its coordinates are about I
    assert np.linalg.norm(of_loc) < largest
    assert np.linalg.norm(np.tril(of_root)) < largest


@pytest.mark.parametrize("size", [1e-3, 1.0])
def test_gap_to_a_normal_is_the_divergence(size: float) -> None:
    """No noise is left: the second moments of the draws are exact. A root's signs mean nothing."""
    exact = badly_scaled()
    stretch = np.eye(DIM) + size * np.tril(np.random.default_rng(2).normal(size=(DIM, DIM)))
    family = FullRankNormal(exact.loc + size * exact.std, -exact.cholesky @ stretch)
    gap, error = elbo_gap(exact.log_prob, family, exact, 2**10)
    divergence = float(kl(family, exact))
    assert gap == pytest.approx(divergence, rel=1e-3, abs=1e-9)
    assert error < 1e-3 * divergence


def test_gap_between_kinds() -> None:
    """A full-rank normal is better than the best mean-field one, whose optimality says nothing about it."""
    exact = badly_scaled()
    gap, error = elbo_gap(exact.log_prob, exact, factorized(exact), 2**10)
    assert gap == pytest.approx(-float(kl(factorized(exact), exact)), rel=1e-6)
    assert error < 1e-6


@pytest.mark.parametrize("size", [1e-4, 1e-3, 1e-1, 1.0])
def test_gap_near_and_far(size: float) -> None:
    """From 1e-8 nats on, within five standard errors that are a small part of it."""
    best = MeanFieldNormal(np.full(DIM, -0.5), np.zeros(DIM))
    family = MeanFieldNormal(best.loc + size, best.log_scale - size * np.arange(DIM) / DIM)
    expected = log_gamma_elbo(best) - log_gamma_elbo(family)
    gap, error = elbo_gap(mixed_log_gammas(np.eye(DIM)), family, best)
    assert error < 0.01 * expected
    assert abs(gap - expected) < 5 * error + 1e-12


def test_single_precision_is_refused() -> None:
    with jax.enable_x64(False), pytest.raises(ValueError, match=r"must be in double precision"):
        optimum(lambda z: -jnp.sum(z**2), MeanFieldNormal.standard(2))


def test_a_search_without_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimum_module, "MAX_ROUNDS", 1)
    with pytest.raises(RuntimeError, match=r"must end within 1 rounds"):
        optimum(mixed_log_gammas(np.eye(2)), MeanFieldNormal.standard(2), 2**8)
