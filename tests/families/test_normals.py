"""The two normal families: their numbers against numpy and scipy, and their errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from dlrd import FullRankNormal, MeanFieldNormal

pytestmark = pytest.mark.usefixtures("x64")

LOC = np.array([0.5, -2.0, 3.0])
LOG_SCALE = np.array([-1.0, 0.3, 2.0])
CHOLESKY = np.array([[1.5, 0.0, 0.0], [-0.7, 0.4, 0.0], [2.0, 1.0, 3.0]])
SIGNS = np.array([-1.0, 1.0, -1.0])
COVARIANCES = {MeanFieldNormal: np.diag(np.exp(2 * LOG_SCALE)), FullRankNormal: CHOLESKY @ CHOLESKY.T}

# A few operations on numbers of size 1 to 10, each rounded once, with a condition number below 100.
ROUNDING = {"rtol": 1e-13, "atol": 1e-13}


def normal(kind):
    return kind(LOC, LOG_SCALE if kind is MeanFieldNormal else CHOLESKY)


def points(num):
    return np.random.default_rng(0).normal(scale=3, size=(num, 3))


def check_covariance(draws, mean, covariance):
    """Sample mean and covariance within 5 standard errors, those of a normal sample."""
    num = len(draws)
    variance = np.diagonal(covariance)
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - mean), 5 * np.sqrt(variance / num))
    error = np.abs(np.cov(draws.T) - covariance)
    np.testing.assert_array_less(error, 5 * np.sqrt((np.outer(variance, variance) + covariance**2) / num))


@pytest.mark.parametrize("kind", COVARIANCES)
def test_moments(kind):
    q = normal(kind)
    np.testing.assert_array_equal(q.mean, LOC)
    np.testing.assert_allclose(q.std, np.sqrt(np.diagonal(COVARIANCES[kind])), **ROUNDING)
    np.testing.assert_allclose(q.scale_tril @ q.scale_tril.T, COVARIANCES[kind], **ROUNDING)
    np.testing.assert_array_equal(jnp.triu(q.scale_tril, 1), 0)


def test_covariance_of_full_rank():
    np.testing.assert_allclose(normal(FullRankNormal).covariance, CHOLESKY @ CHOLESKY.T, **ROUNDING)


@pytest.mark.parametrize("kind", COVARIANCES)
def test_log_prob_is_scipys(kind):
    expected = stats.multivariate_normal(LOC, COVARIANCES[kind]).logpdf(points(20))
    # The quadratic form reaches 1e4 far from the mean, so rounding is relative to that.
    np.testing.assert_allclose(normal(kind).log_prob(points(20)), expected, rtol=1e-12)


@pytest.mark.parametrize("q", [([0.7], [-0.4]), ([0.7], [[-0.4]])])
def test_log_prob_integrates_to_one(q):
    q = MeanFieldNormal(*q) if np.ndim(q[1]) == 1 else FullRankNormal(*q)
    # The trapezium rule is exact to rounding for a smooth density with steps below its standard deviation
    # (0.67 and 0.4), which is negligible at the ends.
    grid = np.linspace(-9.3, 10.7, 201)
    assert integrate.trapezoid(np.exp(q.log_prob(grid[:, None])), grid) == pytest.approx(1, abs=1e-13)


def test_log_prob_factors_are_the_coordinates_densities():
    q = normal(MeanFieldNormal)
    factors = q.log_prob_factors(points(20))
    np.testing.assert_allclose(
        factors, stats.norm(LOC, np.exp(LOG_SCALE)).logpdf(points(20)), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(factors.sum(axis=-1), q.log_prob(points(20)), rtol=1e-14)


@pytest.mark.parametrize("kind", COVARIANCES)
def test_draws_have_the_mean_and_covariance(kind):
    draws = np.asarray(normal(kind).sample(jax.random.key(0), (50_000,)))
    check_covariance(draws, LOC, COVARIANCES[kind])


@pytest.mark.parametrize("kind", COVARIANCES)
def test_an_empty_batch_of_draws(kind):
    draws = normal(kind).sample(jax.random.key(0), (0,))
    assert draws.shape == (0, 3)
    assert normal(kind).log_prob(draws).shape == (0,)


def test_the_sign_of_cholesky_columns_does_not_matter():
    flipped = FullRankNormal(LOC, CHOLESKY * SIGNS)
    q = normal(FullRankNormal)
    np.testing.assert_allclose(flipped.log_prob(points(20)), q.log_prob(points(20)), rtol=1e-14)
    np.testing.assert_array_equal(flipped.std, q.std)
    np.testing.assert_array_equal(flipped.covariance, q.covariance)
    check_covariance(
        np.asarray(flipped.sample(jax.random.key(1), (50_000,))), LOC, COVARIANCES[FullRankNormal]
    )


def test_gradients_through_a_negative_diagonal_are_those_of_the_positive_one():
    @jax.jit
    @jax.grad
    def gradient(cholesky):
        return FullRankNormal(LOC, cholesky).log_prob(points(1)[0])

    np.testing.assert_allclose(gradient(CHOLESKY * SIGNS), gradient(CHOLESKY) * SIGNS, **ROUNDING)


def test_entries_above_the_diagonal_get_no_gradient():
    @jax.jit
    @jax.grad
    def gradient(q):
        return jnp.sum(q.log_prob(q.sample(jax.random.key(0), (5,)) ** 2))

    cholesky = np.asarray(gradient(normal(FullRankNormal)).cholesky)
    np.testing.assert_array_equal(np.triu(cholesky, 1), 0)
    assert np.all(cholesky[np.tril_indices(3)] != 0)


def test_entries_above_the_diagonal_are_ignored_when_a_transformation_puts_them_there():
    q = jax.tree.map(lambda leaf: leaf + 1.0, normal(FullRankNormal))
    clean = FullRankNormal(LOC + 1, np.tril(CHOLESKY + 1))
    np.testing.assert_array_equal(q.scale_tril, clean.cholesky)
    np.testing.assert_array_equal(q.covariance, clean.covariance)
    np.testing.assert_array_equal(q.log_prob(points(5)), clean.log_prob(points(5)))
    key = jax.random.key(0)
    np.testing.assert_array_equal(q.sample(key, (5,)), clean.sample(key, (5,)))


@pytest.mark.parametrize("kind", COVARIANCES)
def test_standard_is_the_standard_normal_in_the_default_type(kind, precision):
    q = kind.standard(4)
    np.testing.assert_array_equal(q.mean, np.zeros(4))
    np.testing.assert_array_equal(q.scale_tril, np.eye(4))
    assert {leaf.dtype for leaf in jax.tree.leaves(q)} == {precision}
    # log(2π) is rounded, summed and scaled: a handful of roundings.
    origin = float(q.log_prob(jnp.zeros(4)))
    assert origin == pytest.approx(-2 * np.log(2 * np.pi), rel=5 * float(jnp.finfo(precision).eps))


@pytest.mark.parametrize("kind", COVARIANCES)
def test_float32_stays_float32_while_float64_is_on(kind):
    q = jax.tree.map(lambda leaf: leaf.astype("float32"), normal(kind))
    draws = q.sample(jax.random.key(0), (2,))
    assert draws.dtype == q.log_prob(draws).dtype == q.std.dtype == q.scale_tril.dtype == jnp.float32


def test_whole_numbers_become_floats():
    q = MeanFieldNormal([1, 2], [0, 0])
    assert q.loc.dtype == q.log_scale.dtype == jnp.float64
    q = FullRankNormal([1, 2], [[1, 0], [1, 1]])
    assert q.loc.dtype == q.cholesky.dtype == jnp.float64


def test_made_inside_a_compiled_function():
    @jax.jit
    def log_prob(cholesky):
        return FullRankNormal(LOC, cholesky).log_prob(jnp.zeros(3))

    np.testing.assert_allclose(log_prob(CHOLESKY), normal(FullRankNormal).log_prob(jnp.zeros(3)), rtol=1e-14)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: MeanFieldNormal(0.0, 0.0), ValueError, r"loc must be a vector.*got shape \(\)"),
        (lambda: MeanFieldNormal([], []), ValueError, r"loc must be a vector.*got shape \(0,\)"),
        (lambda: MeanFieldNormal([[0.0]], [[0.0]]), ValueError, r"loc must be a vector.*got shape \(1, 1\)"),
        (
            lambda: MeanFieldNormal([0.0, 1.0], [0.0]),
            ValueError,
            r"log_scale must have shape \(2,\).*got \(1,\)",
        ),
        (lambda: MeanFieldNormal([1j], [0.0]), TypeError, "loc must be real, got.*complex128"),
        (lambda: MeanFieldNormal([0.0], [1j]), TypeError, "log_scale must be real, got.*complex128"),
        (lambda: FullRankNormal(0.0, [[1.0]]), ValueError, r"loc must be a vector.*got shape \(\)"),
        (
            lambda: FullRankNormal([0.0, 1.0], [1.0, 1.0]),
            ValueError,
            r"cholesky must have shape \(2, 2\).*got \(2,\)",
        ),
        (
            lambda: FullRankNormal([0.0, 1.0], np.eye(3)),
            ValueError,
            r"cholesky must have shape \(2, 2\).*got \(3, 3\)",
        ),
        (
            lambda: FullRankNormal([0.0, 1.0], [[1.0, 0.5], [0.0, 1.0]]),
            ValueError,
            "cholesky must be zero above its diagonal, got",
        ),
        (lambda: FullRankNormal([0.0], [[1j]]), TypeError, "cholesky must be real, got.*complex128"),
        (lambda: MeanFieldNormal.standard(0), ValueError, "dim must be.*at least 1, got int 0"),
        (lambda: FullRankNormal.standard(-2), ValueError, "dim must be.*at least 1, got int -2"),
        (lambda: FullRankNormal.standard(2.0), ValueError, r"dim must be.*at least 1, got float 2\.0"),
        (lambda: MeanFieldNormal.standard(True), ValueError, "dim must be.*at least 1, got bool True"),
    ],
)
def test_errors_name_the_argument_and_the_value(make, error, message):
    with pytest.raises(error, match=message):
        make()
