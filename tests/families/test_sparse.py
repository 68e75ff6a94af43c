"""The normal with a sparse precision."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from scipy import stats

import dlrd
from dlrd import FullRankNormal
from dlrd.families.elimination import eliminate
from dlrd.families.pattern import Pattern
from dlrd.families.sparse import SparseNormal

NUM_LOCALS, DIM = 150, 152


def precision_matrix():
    """Of a random walk with two parameters that all of its states depend on: several levels, and a tail."""
    rng = np.random.default_rng(0)
    lower = np.diag(rng.normal(size=DIM - 1), -1)
    lower[NUM_LOCALS:, :NUM_LOCALS] = 0.3 * rng.normal(size=(2, NUM_LOCALS))
    lower[DIM - 1, DIM - 2] = 0.5
    matrix = lower + lower.T
    return matrix + np.diag(0.5 + np.abs(matrix).sum(axis=1))


def example():
    loc = np.random.default_rng(1).normal(size=DIM)
    return SparseNormal.from_precision(loc, scipy.sparse.csc_array(precision_matrix()))


@pytest.fixture(scope="module")
def q():
    with jax.enable_x64(True):
        return example()


def rounding(covariance):
    """Of a few dozen terms a sum, amplified by at most the condition number."""
    return 100 * np.finfo(float).eps * np.linalg.cond(covariance)


@pytest.mark.usefixtures("x64")
def test_the_density_is_scipys(q):
    points = np.random.default_rng(2).normal(size=(7, 3, DIM))
    expected = stats.multivariate_normal(q.loc, np.linalg.inv(precision_matrix())).logpdf(points)
    np.testing.assert_allclose(q.log_prob(jnp.asarray(points)), expected, rtol=rounding(precision_matrix()))
    assert q.log_prob(jnp.asarray(points[0, 0])).shape == ()


@pytest.mark.usefixtures("x64")
def test_moments_are_those_of_the_precision(q):
    covariance = np.linalg.inv(precision_matrix())
    tolerance = {"rtol": 0, "atol": rounding(covariance) * np.abs(covariance).max()}
    np.testing.assert_array_equal(q.mean, q.loc)
    np.testing.assert_allclose(q.covariance, covariance, **tolerance)
    np.testing.assert_allclose(q.std**2, covariance.diagonal(), **tolerance)
    np.testing.assert_allclose(q.scale_tril @ q.scale_tril.T, covariance, **tolerance)
    np.testing.assert_array_equal(jnp.triu(q.scale_tril, 1), 0)
    expected = q.mean + stats.norm.ppf(0.9) * np.sqrt(covariance.diagonal())
    np.testing.assert_allclose(q.quantiles([0.5, 0.9]), [q.mean, expected], rtol=1e-9)


@pytest.mark.usefixtures("x64")
def test_the_precision_comes_back_sparse(q):
    matrix = precision_matrix()
    assert scipy.sparse.issparse(q.precision)
    np.testing.assert_allclose(
        q.precision.toarray(), matrix, rtol=0, atol=100 * np.finfo(float).eps * np.abs(matrix).max()
    )
    assert q.precision.nnz < 0.3 * DIM**2
    dense = SparseNormal.from_precision(q.loc, matrix)
    assert eqx.tree_equal(dense, q)


@pytest.mark.usefixtures("x64")
def test_draws_have_the_mean_and_covariance(q):
    """Within 5 standard errors, those of a normal sample."""
    draws = np.asarray(eqx.filter_jit(q.sample)(jax.random.key(0), (20_000,)))
    covariance = np.linalg.inv(precision_matrix())
    variance = covariance.diagonal()
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - q.mean), 5 * np.sqrt(variance / len(draws)))
    errors = np.sqrt((np.outer(variance, variance) + covariance**2) / len(draws))
    np.testing.assert_array_less(np.abs(np.cov(draws.T) - covariance), 5 * errors)


@pytest.mark.usefixtures("x64")
def test_noise_gives_draws_and_their_density(q):
    noise = q.sample_noise(jax.random.key(0), 5)
    assert noise.shape == (5, q.noise_size) == (5, DIM)
    log_det = 0.5 * np.linalg.slogdet(precision_matrix())[1]
    expected = stats.norm.logpdf(noise).sum(axis=1) + log_det
    np.testing.assert_allclose(q.log_prob(q.from_noise(noise)), expected, rtol=rounding(precision_matrix()))
    np.testing.assert_allclose(q.log_prob_of_noise(noise), expected, rtol=rounding(precision_matrix()))
    np.testing.assert_array_equal(
        q.sample(jax.random.key(1)), q.from_noise(q.sample_noise(jax.random.key(1), 1))[0]
    )


@pytest.mark.usefixtures("x64")
def test_signs_of_columns_do_not_matter(q):
    """Only T Tᵀ does, which stays when a column changes its sign."""
    signs = jnp.asarray(np.random.default_rng(3).choice([-1.0, 1.0], DIM))
    flipped = SparseNormal(q.loc, signs * q.diagonal, signs[q.elimination.columns] * q.lower, q.elimination)
    point = jnp.arange(float(DIM))
    np.testing.assert_allclose(flipped.log_prob(point), q.log_prob(point), rtol=1e-13)
    np.testing.assert_allclose(flipped.std, q.std, rtol=1e-13)
    noise = q.sample_noise(jax.random.key(0), 2)
    np.testing.assert_allclose(flipped.from_noise(signs * noise), q.from_noise(noise), rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_divergences_see_the_same_distribution(q):
    dense = FullRankNormal(q.loc, np.linalg.cholesky(np.linalg.inv(precision_matrix())))
    assert dlrd.jeffreys(dense, q) < 1e-20


@pytest.mark.usefixtures("x64")
def test_gradients_have_no_noise_where_the_family_is_the_target(q):
    estimate = dlrd.sticking_the_landing(q.log_prob, q, jax.random.key(0), 4)
    scale = np.abs(precision_matrix()).max()
    for leaf in jax.tree.leaves(eqx.filter(estimate.gradient, eqx.is_inexact_array)):
        np.testing.assert_allclose(leaf, 0, atol=rounding(precision_matrix()) * scale)


def test_single_precision(q):
    single = jax.tree.map(lambda leaf: leaf.astype("float32") if eqx.is_inexact_array(leaf) else leaf, q)
    draws = single.sample(jax.random.key(0), (2,))
    assert draws.dtype == single.log_prob(draws).dtype == single.std.dtype == jnp.float32
    covariance = np.linalg.inv(precision_matrix())
    tolerance = 100 * np.finfo("float32").eps * np.linalg.cond(covariance) * np.sqrt(covariance.max())
    np.testing.assert_allclose(single.std, np.sqrt(covariance.diagonal()), rtol=0, atol=tolerance)


def test_standard_is_the_standard_normal_in_the_default_type(precision):
    q = SparseNormal.standard(4)
    np.testing.assert_array_equal(q.mean, np.zeros(4))
    np.testing.assert_array_equal(q.scale_tril, np.eye(4))
    np.testing.assert_array_equal(q.precision.toarray(), np.eye(4))
    floats = [leaf for leaf in jax.tree.leaves(q) if eqx.is_inexact_array(leaf)]
    assert {leaf.dtype for leaf in floats} == {precision}
    assert sum(leaf.size for leaf in floats) == 8


def test_a_hundred_thousand_dimensions_take_no_square_matrix():
    dim = 100_000  # a square matrix would take 40 GB
    elimination = eliminate(Pattern(dim, np.arange(1, dim), np.arange(dim - 1)))
    assert elimination is not None
    lower = jnp.full(elimination.num_entries, 0.1)
    q = SparseNormal(jnp.zeros(dim), jnp.ones(dim), lower, elimination)
    assert q.sample(jax.random.key(0), (2,)).shape == (2, dim)
    assert np.all(np.isfinite(np.asarray(q.std)))


def test_bad_arguments_are_refused():
    standard = SparseNormal.standard(2)
    with pytest.raises(ValueError, match="diagonal must have shape"):
        SparseNormal([0.0, 0.0], [1.0], [], standard.elimination)
    with pytest.raises(ValueError, match="lower must have the 0 entries"):
        SparseNormal([0.0, 0.0], [1.0, 1.0], [1.0], standard.elimination)
    with pytest.raises(ValueError, match="dim must be a whole number"):
        SparseNormal.standard(0)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.eye(3), "precision must have shape"),
        ([[1.0, 0.5], [0.0, 1.0]], "precision must be symmetric"),
        ([[1.0, 2.0], [2.0, 1.0]], "precision must be positive definite"),
        ([[1.0, 0.0], [0.0, 0.0]], "precision must be positive definite"),
    ],
)
def test_bad_precisions_are_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        SparseNormal.from_precision([0.0, 0.0], matrix)


def test_what_fills_too_much_is_refused():
    with pytest.raises(ValueError, match="must have a sparse Cholesky factor"):
        SparseNormal.from_precision(np.zeros(600), np.ones((600, 600)) + np.eye(600))
