"""The normal with any covariance: what is free in its root changes nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd import FullRankNormal
from dlrd.families import member_of
from dlrd.families.curvature import MAX_WHOLE, DenseCurvature, diagonal_curvature

pytestmark = pytest.mark.usefixtures("x64")

LOC = np.array([0.5, -2.0, 3.0])
CHOLESKY = np.array([[1.5, 0.0, 0.0], [-0.7, 0.4, 0.0], [2.0, 1.0, 3.0]])
SIGNS = np.array([-1.0, 1.0, -1.0])

# A few operations on numbers of size 1 to 10, each rounded once, with a condition number below 100.
ROUNDING = {"rtol": 1e-13, "atol": 1e-13}


def points(num):
    return np.random.default_rng(0).normal(scale=3, size=(num, 3))


def test_covariance():
    np.testing.assert_allclose(FullRankNormal(LOC, CHOLESKY).covariance, CHOLESKY @ CHOLESKY.T, **ROUNDING)


def test_the_sign_of_cholesky_columns_does_not_matter():
    flipped = FullRankNormal(LOC, CHOLESKY * SIGNS)
    q = FullRankNormal(LOC, CHOLESKY)
    np.testing.assert_allclose(flipped.log_prob(points(20)), q.log_prob(points(20)), rtol=1e-14)
    np.testing.assert_array_equal(flipped.std, q.std)
    np.testing.assert_array_equal(flipped.covariance, q.covariance)
    np.testing.assert_array_equal(flipped.from_noise(SIGNS * points(20)), q.from_noise(points(20)))


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

    cholesky = np.asarray(gradient(FullRankNormal(LOC, CHOLESKY)).cholesky)
    np.testing.assert_array_equal(np.triu(cholesky, 1), 0)
    assert np.all(cholesky[np.tril_indices(3)] != 0)


def test_entries_above_the_diagonal_are_ignored_when_a_transformation_puts_them_there():
    q = jax.tree.map(lambda leaf: leaf + 1.0, FullRankNormal(LOC, CHOLESKY))
    clean = FullRankNormal(LOC + 1, np.tril(CHOLESKY + 1))
    np.testing.assert_array_equal(q.scale_tril, clean.cholesky)
    np.testing.assert_array_equal(q.covariance, clean.covariance)
    np.testing.assert_array_equal(q.log_prob(points(5)), clean.log_prob(points(5)))
    key = jax.random.key(0)
    np.testing.assert_array_equal(q.sample(key, (5,)), clean.sample(key, (5,)))


def test_laplaces_approximation():
    """With all of the curvature; of many independent coordinates none has more than its scale."""
    whole = DenseCurvature(np.linalg.inv(CHOLESKY @ CHOLESKY.T), CHOLESKY)
    start = member_of(FullRankNormal.standard(3).at_mode(LOC, whole))
    np.testing.assert_array_equal(start.mean, LOC)
    np.testing.assert_array_equal(start.cholesky, CHOLESKY)
    scale = np.geomspace(0.1, 10, MAX_WHOLE + 1)
    apart = diagonal_curvature(scale)
    assert not isinstance(apart, DenseCurvature)
    start = member_of(FullRankNormal.standard(len(scale)).at_mode(np.log(scale), apart))
    assert isinstance(start, FullRankNormal)
    np.testing.assert_array_equal(start.mean, np.log(scale))
    np.testing.assert_allclose(start.cholesky, np.diag(scale), rtol=1e-14)


def test_displacement_is_the_step_that_was_taken():
    """In units of where it leads to: L⁻¹ Δμ and L⁻¹ ΔL, whose diagonal has information 2."""
    before, now = FullRankNormal(LOC - 0.1, CHOLESKY + 0.2 * np.eye(3)), FullRankNormal(LOC, CHOLESKY)
    inverse = np.tril(np.linalg.inv(CHOLESKY))
    step = FullRankNormal(inverse @ np.full(3, 0.1), -0.2 * inverse)
    np.testing.assert_allclose(now.displacement(before), now.fisher_coordinates(step), **ROUNDING)
    np.testing.assert_array_equal(now.displacement(now), 0)


def test_the_way_to_a_singular_root_is_infinitely_long():
    singular = FullRankNormal(LOC, CHOLESKY * [1.0, 0.0, 1.0])
    coordinates = singular.displacement(FullRankNormal(LOC, CHOLESKY))
    assert np.sum(coordinates**2) == np.inf


def test_inner_products_are_those_of_the_coordinates():
    left, right = np.random.default_rng(1).normal(size=(2, 4, 15))
    products = FullRankNormal(LOC, CHOLESKY).inner_products(left, right[:3])
    np.testing.assert_allclose(products, np.einsum("ik,jk->ij", left, right[:3]), **ROUNDING)


def test_whole_numbers_become_floats():
    q = FullRankNormal([1, 2], [[1, 0], [1, 1]])
    assert q.loc.dtype == q.cholesky.dtype == jnp.float64


def test_made_inside_a_compiled_function():
    @jax.jit
    def log_prob(cholesky):
        return FullRankNormal(LOC, cholesky).log_prob(jnp.zeros(3))

    np.testing.assert_allclose(
        log_prob(CHOLESKY), FullRankNormal(LOC, CHOLESKY).log_prob(jnp.zeros(3)), rtol=1e-14
    )


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
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
        (lambda: FullRankNormal.standard(-2), ValueError, "dim must be.*at least 1, got int -2"),
        (lambda: FullRankNormal.standard(2.0), ValueError, r"dim must be.*at least 1, got float 2\.0"),
    ],
)
def test_errors_name_the_argument_and_the_value(make, error, message):
    with pytest.raises(error, match=message):
        make()
