"""Divergences of normals against slow formulas, samples, and arithmetic of 60 digits."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dlrd import FullRankNormal, MeanFieldNormal, jeffreys, kl

pytestmark = pytest.mark.usefixtures("x64")

LOC_P, LOC_Q = np.array([0.5, -2.0, 1.0]), np.array([0.1, -1.5, 2.0])
LOG_SCALE_P, LOG_SCALE_Q = np.array([-1.0, 0.3, 0.8]), np.array([-0.5, 0.1, 1.0])
CHOLESKY_P = np.array([[1.5, 0.0, 0.0], [-0.7, 0.4, 0.0], [2.0, 1.0, 3.0]])
CHOLESKY_Q = np.array([[1.1, 0.0, 0.0], [0.2, 0.9, 0.0], [0.5, -1.0, 2.0]])

MEAN_FIELD = (MeanFieldNormal, LOG_SCALE_P, LOG_SCALE_Q)
FULL_RANK = (FullRankNormal, CHOLESKY_P, CHOLESKY_Q)
KINDS = [(p, q) for p in (MEAN_FIELD, FULL_RANK) for q in (MEAN_FIELD, FULL_RANK)]
KIND_NAMES = [f"{p[0].__name__}-{q[0].__name__}" for p, q in KINDS]


@pytest.fixture(params=KINDS, ids=KIND_NAMES)
def pair(request, x64):
    """Two normals, of every combination of kinds."""
    (kind_p, root_p, _), (kind_q, _, root_q) = request.param
    return kind_p(LOC_P, root_p), kind_q(LOC_Q, root_q)


def covariance(normal):
    root = np.asarray(normal.scale_tril)
    return root @ root.T


def slow_kl(p, q):
    """The textbook formula, with explicit inverses."""
    inverse = np.linalg.inv(covariance(q))
    shift = np.asarray(q.mean - p.mean)
    log_dets = np.linalg.slogdet(covariance(q))[1] - np.linalg.slogdet(covariance(p))[1]
    return 0.5 * (np.trace(inverse @ covariance(p)) + shift @ inverse @ shift - len(shift) + log_dets)


def test_against_explicit_inverses(pair):
    p, q = pair
    # Condition numbers of about 100 in the slow formula, times 1e-16.
    assert float(kl(p, q)) == pytest.approx(slow_kl(p, q), rel=1e-12)
    assert float(jeffreys(p, q)) == pytest.approx(slow_kl(p, q) + slow_kl(q, p), rel=1e-12)


def test_against_monte_carlo(pair):
    p, q = (stats.multivariate_normal(np.asarray(normal.mean), covariance(normal)) for normal in pair)
    num = 100_000
    from_p, from_q = p.rvs(num, random_state=0), q.rvs(num, random_state=1)
    terms_p = p.logpdf(from_p) - q.logpdf(from_p)
    terms_q = q.logpdf(from_q) - p.logpdf(from_q)
    assert abs(terms_p.mean() - kl(*pair)) < 5 * terms_p.std() / np.sqrt(num)
    error = np.hypot(terms_p.std(), terms_q.std()) / np.sqrt(num)
    assert abs(terms_p.mean() + terms_q.mean() - jeffreys(*pair)) < 5 * error


def test_jeffreys_is_symmetric_and_the_sum_of_both_kl(pair):
    p, q = pair
    assert float(jeffreys(p, q)) == pytest.approx(float(jeffreys(q, p)), rel=1e-14)
    assert float(jeffreys(p, q)) == pytest.approx(float(kl(p, q) + kl(q, p)), rel=1e-12)
    assert float(kl(p, q)) != pytest.approx(float(kl(q, p)), rel=1e-2)


@pytest.mark.parametrize("divergence", [kl, jeffreys])
@pytest.mark.parametrize(("kind", "root"), [(MeanFieldNormal, LOG_SCALE_P), (FullRankNormal, CHOLESKY_P)])
def test_zero_at_equality(divergence, kind, root):
    normal = kind(LOC_P, root)
    assert abs(divergence(normal, normal)) < 1e-14  # a sum of six terms of size 1, rounded
    gradient = jax.jit(jax.grad(divergence))(normal, normal)
    # Two sides of a difference that cancel, each of size 1 times the condition number of the root.
    assert all(np.all(np.abs(leaf) < 1e-13) for leaf in jax.tree.leaves(gradient))


def test_zero_between_kinds():
    p = MeanFieldNormal(LOC_P, LOG_SCALE_P)
    q = FullRankNormal(LOC_P, np.diag(np.exp(LOG_SCALE_P)))
    for divergence in (kl, jeffreys):
        assert abs(divergence(p, q)) < 1e-14
        assert abs(divergence(q, p)) < 1e-14


def precise_kl(p, q):
    """The textbook formula in 60 digits, from the very floats that the families hold."""

    def moments(normal):
        if isinstance(p, MeanFieldNormal) and isinstance(q, MeanFieldNormal):
            root = mpmath.diag([mpmath.exp(entry) for entry in normal.log_scale.tolist()])
        else:
            root = mpmath.matrix(normal.scale_tril.tolist())
        return mpmath.matrix(normal.mean.tolist()), root * root.T

    (loc_p, covariance_p), (loc_q, covariance_q) = moments(p), moments(q)
    ratio = mpmath.inverse(covariance_q) * covariance_p
    shift = loc_p - loc_q
    trace = mpmath.fsum(ratio[i, i] for i in range(ratio.rows))
    distance = (shift.T * mpmath.inverse(covariance_q) * shift)[0]
    return (trace - ratio.rows - mpmath.log(mpmath.det(ratio)) + distance) / 2


@pytest.mark.parametrize("is_moved", [True, False], ids=["moved", "same mean"])
@pytest.mark.parametrize("distance", [1e-3, 1e-5, 1e-8, 1e-11])
@pytest.mark.parametrize("kinds", ["mean-field", "full-rank", "flipped", "mixed"])
@pytest.mark.parametrize("name", ["kl", "jeffreys"])
def test_tiny_divergences_keep_their_digits(name, kinds, distance, is_moved):
    change = distance * np.array([[1.0, 0.0, 0.0], [-2.0, 0.5, 0.0], [0.3, 1.5, -0.7]])
    loc = LOC_P + is_moved * distance * np.array([0.2, -0.1, 0.4])
    if kinds == "mean-field":
        p = MeanFieldNormal(loc, LOG_SCALE_P + np.diagonal(change))
        q = MeanFieldNormal(LOC_P, LOG_SCALE_P)
    elif kinds == "mixed":
        q = MeanFieldNormal(LOC_P, LOG_SCALE_P)
        p = FullRankNormal(loc, np.asarray(q.scale_tril) + change)
    else:
        signs = np.array([1.0, -1.0, -1.0]) if kinds == "flipped" else 1.0
        p = FullRankNormal(loc, (CHOLESKY_P + change) * signs)
        q = FullRankNormal(LOC_P, CHOLESKY_P)
    with mpmath.workdps(60):
        exact = precise_kl(p, q) + (precise_kl(q, p) if name == "jeffreys" else 0)
        value = {"kl": kl, "jeffreys": jeffreys}[name](p, q)
        assert abs(mpmath.mpf(float(value)) / exact - 1) < 1e-10


def test_normals_far_apart():
    p, q = FullRankNormal(LOC_P, CHOLESKY_P * [1e-12, 1e6, 1.0]), FullRankNormal(LOC_Q, CHOLESKY_Q)
    narrow = FullRankNormal(LOC_Q, CHOLESKY_Q * [1e-12, 1.0, 1.0])
    with mpmath.workdps(60):
        # Sums of squares, one of which dominates: its few roundings.
        assert abs(mpmath.mpf(float(kl(p, q))) / precise_kl(p, q) - 1) < 1e-14
        assert abs(mpmath.mpf(float(jeffreys(p, q))) / (precise_kl(p, q) + precise_kl(q, p)) - 1) < 1e-14
        # Nearly all of this one is the logarithm of the smallest entry.
        assert abs(mpmath.mpf(float(kl(narrow, q))) / precise_kl(narrow, q) - 1) < 1e-14
    assert float(kl(MeanFieldNormal([0.0], [-40.0]), MeanFieldNormal.standard(1))) == pytest.approx(
        39.5, rel=1e-15
    )


@settings(max_examples=50, deadline=None)
@given(
    shift=st.floats(-1e3, 1e3),
    log_ratio=st.floats(-5, 5),
    log_scale=st.floats(-10, 10),
)
def test_one_dimension_over_a_wide_range(shift, log_ratio, log_scale):
    with jax.enable_x64(True):
        scale = np.exp(log_scale)
        p = MeanFieldNormal([shift * scale], [log_scale + log_ratio])
        q = MeanFieldNormal([0.0], [log_scale])
        value, symmetric = float(kl(p, q)), float(jeffreys(p, q))
    # log_ratio comes back from a sum of size 10 with an error of 2e-15, which exp doubles.
    expected = 0.5 * (np.expm1(2 * log_ratio) - 2 * log_ratio + shift**2)
    assert value >= 0
    assert value == pytest.approx(expected, rel=1e-13, abs=1e-13)
    expected += 0.5 * (np.expm1(-2 * log_ratio) + 2 * log_ratio + shift**2 * np.exp(-2 * log_ratio))
    assert symmetric == pytest.approx(expected, rel=1e-13, abs=1e-13)


@pytest.mark.parametrize("divergence", [kl, jeffreys])
@pytest.mark.parametrize("signs", [(-1, 1, 1), (1, -1, -1), (-1, -1, -1)])
def test_the_sign_of_cholesky_columns_does_not_matter(divergence, signs):
    p, q = FullRankNormal(LOC_P, CHOLESKY_P), FullRankNormal(LOC_Q, CHOLESKY_Q)
    flipped_p, flipped_q = (
        FullRankNormal(LOC_P, CHOLESKY_P * signs),
        FullRankNormal(LOC_Q, CHOLESKY_Q * signs),
    )
    expected = pytest.approx(float(divergence(p, q)), rel=1e-14)
    assert float(divergence(flipped_p, q)) == expected
    assert float(divergence(p, flipped_q)) == expected
    assert float(divergence(flipped_p, flipped_q)) == expected
    assert abs(divergence(flipped_p, p)) < 1e-14


@pytest.mark.parametrize("divergence", [kl, jeffreys])
def test_float32(pair, divergence):
    single = [jax.tree.map(lambda leaf: leaf.astype("float32"), normal) for normal in pair]
    value = divergence(*single)
    assert value.dtype == jnp.float32
    # Six entries, condition number of the roots below 10: 100 roundings of 6e-8.
    assert float(value) == pytest.approx(float(divergence(*pair)), rel=1e-5)


@pytest.mark.parametrize("divergence", [kl, jeffreys])
def test_compiles_and_vectorizes(pair, divergence):
    p, q = pair
    smaller = jax.tree.map(lambda leaf: 0.9 * leaf, p)
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), p, smaller)
    expected = [divergence(p, q), divergence(smaller, q)]
    np.testing.assert_allclose(jax.jit(jax.vmap(divergence, (0, None)))(stack, q), expected, rtol=1e-13)


@pytest.mark.parametrize("divergence", [kl, jeffreys])
@pytest.mark.parametrize("kind", [MeanFieldNormal, FullRankNormal])
def test_dimensions_must_agree(divergence, kind):
    with pytest.raises(ValueError, match="p and q must have the same dimension, got 2 and 3"):
        divergence(MeanFieldNormal.standard(2), kind.standard(3))
