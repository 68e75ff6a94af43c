"""A sparse curvature is the matrix that it stands for."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd import FullRankNormal, LowRankNormal, MeanFieldNormal, SparseNormal
from dlrd.families import member_of, ordering
from dlrd.families.coupled import Coupled
from dlrd.families.couplings import couplings
from dlrd.families.curved import Curved
from dlrd.families.pattern import Pattern
from dlrd.families.sparse_curvature import NUM_AXES, SparseCurvature, sparse_curvature

NUM_LOCALS, DIM = 40, 42


def random_hessian(seed=0):
    """Of a random walk, all of whose states depend on two parameters."""
    rng = np.random.default_rng(seed)
    lower = np.diag(rng.normal(size=DIM - 1), -1)
    lower[NUM_LOCALS:, :NUM_LOCALS] = rng.normal(size=(2, NUM_LOCALS))
    scale = 10 ** rng.uniform(-1, 1, DIM)
    matrix = lower + lower.T
    return (matrix + np.diag(1 + np.abs(matrix).sum(axis=1))) * np.outer(scale, scale)


HESSIAN = random_hessian()
ROWS = np.random.default_rng(1).normal(size=(3, DIM))
CONDITION = np.linalg.cond(HESSIAN)


def rounding(dtype="float64"):
    """Relative, of sums of all coordinates, amplified by at most the condition number."""
    return DIM * float(np.finfo(dtype).eps) * CONDITION


def assert_close(actual, expected, dtype="float64"):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=rounding(dtype) * np.abs(expected).max())


@pytest.fixture(scope="module")
def pairs():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "SMALL_TAIL", 4)
        found = couplings(Pattern(DIM, *np.nonzero(np.tril(HESSIAN, -1))))
    assert found is not None
    assert found.elimination.num_levels > 1
    return found


@pytest.fixture(scope="module")
def curvature(pairs):
    with jax.enable_x64(True):
        return measured(pairs, HESSIAN)


def measured(pairs, hessian, **known):
    return sparse_curvature(pairs, pairs.seeds(float) @ hessian, **known)


@pytest.mark.usefixtures("x64")
def test_the_hessian(curvature):
    np.testing.assert_array_equal(curvature.diagonal, HESSIAN.diagonal())
    assert_close(curvature.times(ROWS), ROWS @ HESSIAN)
    assert_close(curvature.times(ROWS[0]), HESSIAN @ ROWS[0])


@pytest.mark.usefixtures("x64")
def test_the_root(curvature):
    """W Wᵀ is the inverse, and Wᵀ is what whitens."""
    root = np.stack([curvature.unwhiten(unit) for unit in np.eye(DIM)], axis=1)
    assert_close(root @ root.T, np.linalg.inv(HESSIAN))
    assert_close(curvature.whiten(ROWS[0]), root.T @ ROWS[0])
    log_volume = -0.5 * np.linalg.slogdet(HESSIAN)[1]
    np.testing.assert_allclose(curvature.log_volume(), log_volume, rtol=0, atol=DIM * rounding())


@pytest.mark.usefixtures("x64")
def test_the_hessian_is_the_identity_where_it_is_whitened(curvature):
    """Wᵀ H W = I."""
    images = curvature.whiten(curvature.times(curvature.unwhiten(ROWS)))
    assert_close(images, ROWS)


@pytest.mark.usefixtures("x64")
def test_the_axes_are_the_widest_of_the_inverse(curvature):
    """In units that give the Hessian a diagonal of ones."""
    axes = curvature.axes()
    np.testing.assert_allclose(axes.scale, HESSIAN.diagonal() ** -0.5, rtol=1e-15)
    scaled = np.linalg.inv(HESSIAN) / np.outer(axes.scale, axes.scale)
    assert axes.directions.shape == (DIM, NUM_AXES)
    assert_close(np.sort(axes.variances), np.linalg.eigvalsh(scaled)[-NUM_AXES:])
    assert_close(axes.directions.T @ axes.directions, np.eye(NUM_AXES))
    assert_close(scaled @ axes.directions, axes.directions * axes.variances)


@pytest.mark.usefixtures("x64")
def test_units_of_the_coordinates(curvature):
    """Of coordinates that are multiplied by factors."""
    factor = np.random.default_rng(2).uniform(0.5, 2, DIM)
    expected = HESSIAN / np.outer(factor, factor)
    rescaled = curvature.rescaled(factor)
    np.testing.assert_allclose(rescaled.diagonal, expected.diagonal(), rtol=1e-15)
    assert_close(rescaled.times(np.eye(DIM)), expected)
    assert_close(rescaled.whiten(ROWS[0]), curvature.whiten(factor * ROWS[0]))
    assert_close(rescaled.unwhiten(ROWS[0]), factor * curvature.unwhiten(ROWS[0]))
    assert rescaled.couplings is curvature.couplings


@pytest.mark.usefixtures("x64")
def test_unit(pairs):
    unit = SparseCurvature.unit(pairs)
    np.testing.assert_array_equal(unit.diagonal, 1)
    np.testing.assert_array_equal(unit.times(ROWS), ROWS)
    np.testing.assert_array_equal(unit.whiten(unit.unwhiten(ROWS[0])), ROWS[0])
    assert unit.log_volume() == 0


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("trust", [0.0, 0.25, 1.0])
def test_what_is_new_is_weighed_with_what_is_known(pairs, curvature, trust):
    new = random_hessian(3)
    found = measured(pairs, new, known=curvature, trust=trust)
    expected = trust * new + (1 - trust) * HESSIAN
    assert_close(found.diagonal, expected.diagonal())
    assert_close(found.times(np.eye(DIM)), expected)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("node", [0, DIM - 1])
def test_what_is_not_positive_definite_is_none(pairs, curvature, node):
    indefinite = HESSIAN.copy()
    indefinite[node, node] = -1
    assert measured(pairs, indefinite) is None
    assert measured(pairs, np.full_like(HESSIAN, np.nan)) is None
    # What is known makes up for it.
    shifted = 0.01 * indefinite + 0.99 * HESSIAN
    assert np.linalg.eigvalsh(shifted)[0] > 0
    assert measured(pairs, indefinite, known=curvature, trust=0.01) is not None


def test_it_is_whole_and_on_the_host(pairs, precision):
    found = measured(pairs, HESSIAN)
    assert found.is_whole
    assert isinstance(found.diagonal, np.ndarray)
    assert all(isinstance(each, np.ndarray) for each in found.factor)
    assert found.diagonal.dtype == found.factor[0].dtype == precision
    assert found.times(ROWS).dtype == found.whiten(ROWS[0]).dtype == precision
    assert_close(found.times(ROWS), ROWS @ HESSIAN, precision)


@pytest.mark.usefixtures("x64")
def test_a_family_takes_it_in_its_own_precision(curvature):
    q = MeanFieldNormal(*jnp.zeros((2, DIM), "float32"))
    curved = Curved(q, curvature).with_curvature(curvature)
    assert curved.couplings is not None
    assert eqx.tree_equal(curved.couplings, curvature.couplings)  # whole numbers stay whole
    floats = eqx.filter(curved.curvature, eqx.is_inexact_array_like)
    assert {leaf.dtype for leaf in jax.tree.leaves(floats)} == {np.dtype("float32")}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", [FullRankNormal, SparseNormal])
def test_laplaces_approximation(curvature, kind):
    start = kind.standard(DIM).at_mode(ROWS[0], curvature)
    assert isinstance(start, Coupled)
    assert start.kind is kind
    assert_close(start.normal.precision.toarray(), HESSIAN)
    np.testing.assert_array_equal(start.mean, ROWS[0])


@pytest.mark.usefixtures("x64")
def test_a_normal_of_low_rank_starts_better_than_with_the_widest_axes(curvature):
    start = member_of(LowRankNormal.standard(DIM, rank=3).at_mode(ROWS[0], curvature))
    axes = curvature.axes()
    widest = np.argsort(axes.variances)[-3:]
    scaled = axes.directions[:, widest] * np.sqrt(axes.variances[widest] - 1)
    simple = LowRankNormal(ROWS[0], np.log(axes.scale), axes.scale[:, None] * scaled)
    hessian = np.asarray(curvature.times(np.eye(DIM)))

    def divergence(normal):
        covariance = np.asarray(normal.covariance)
        return 0.5 * (np.trace(hessian @ covariance) - np.linalg.slogdet(covariance)[1])

    assert divergence(start) < divergence(simple)
