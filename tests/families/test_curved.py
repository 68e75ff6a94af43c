"""The mean-field normal that carries a curvature: Newton's steps for a normal, and no noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd import MeanFieldNormal
from dlrd.families import Charted, split
from dlrd.families._limits import MAX_CHANGE, MAX_STRETCH
from dlrd.families.couplings import couplings
from dlrd.families.curvature import DenseCurvature, LowRankCurvature
from dlrd.families.curved import Curved
from dlrd.families.pattern import Pattern
from dlrd.families.sparse_curvature import SparseCurvature, sparse_curvature

pytestmark = pytest.mark.usefixtures("x64")

COVARIANCE = np.array([[1.0, 0.9], [0.9, 1.0]])
HESSIAN, ROOT = np.linalg.inv(COVARIANCE), np.linalg.cholesky(COVARIANCE)
NOISE = np.array([[0.3, -1.2], [-0.3, 1.2]])  # a draw and its mirror image


def curved(loc=(3.0, -2.0), log_scale=(0.3, 0.1), dtype: str = "float64") -> Curved:
    member = MeanFieldNormal(jnp.asarray(loc, dtype), jnp.asarray(log_scale, dtype))
    return Curved(member, DenseCurvature(HESSIAN, ROOT)).with_curvature(DenseCurvature(HESSIAN, ROOT))


def slopes(family: Curved) -> jax.Array:
    """Those of N(0, COVARIANCE) at the draws of NOISE."""
    return -family.from_noise(jnp.asarray(NOISE, family.mean.dtype)) @ jnp.asarray(HESSIAN, family.mean.dtype)


def test_curvature_takes_all_noise_away_from_a_normal_posterior():
    q = curved()
    gradient = q.natural_gradient(slopes(q), NOISE)
    np.testing.assert_allclose(gradient.member.loc, ROOT.T @ (-HESSIAN @ [3.0, -2.0]))
    expected = 0.5 * (1 - np.exp([0.6, 0.2]) * np.diagonal(HESSIAN))
    np.testing.assert_allclose(gradient.member.log_scale, expected)
    # A step of a hundredth is a hundredth of Newton's.
    there = q.moved(jax.tree.map(lambda leaf: 0.01 * leaf, gradient)).member.loc
    np.testing.assert_allclose(there, [2.97, -1.98])


def sparse() -> SparseCurvature:
    """The same curvature as one of two coordinates that are coupled."""
    pair = couplings(Pattern(2, np.array([1]), np.array([0])))
    assert pair is not None
    curvature = sparse_curvature(pair, pair.seeds(float) @ HESSIAN)
    assert curvature is not None
    return curvature


def test_a_sparse_curvature_does_the_same():
    """The coordinates that are whitened are others, as is their root; steps and lengths are the same."""
    dense, q = curved(), curved().with_curvature(sparse())
    gradient, expected = (each.natural_gradient(slopes(each), NOISE) for each in (q, dense))
    np.testing.assert_allclose(gradient.member.log_scale, expected.member.log_scale)
    small, same = (jax.tree.map(lambda leaf: 0.01 * leaf, each.member) for each in (gradient, expected))
    there, other = q.moved(Curved(small, q.curvature)), dense.moved(Curved(same, dense.curvature))
    np.testing.assert_allclose(there.mean, other.mean)
    lengths = [np.sum(each.displacement(start) ** 2) for each, start in ((there, q), (other, dense))]
    np.testing.assert_allclose(*lengths)
    coordinates = q.fisher_coordinates(gradient)
    assert coordinates is not None
    np.testing.assert_allclose(np.sum(coordinates**2), np.sum(dense.fisher_coordinates(expected) ** 2))


def test_it_knows_the_couplings_of_a_sparse_curvature_alone():
    q, curvature = curved(), sparse()
    assert q.couplings is None
    found = q.with_curvature(curvature).couplings
    assert found is not None
    np.testing.assert_array_equal(found.pattern.rows, [1])
    assert len(jax.tree.leaves(split(q.with_curvature(curvature))[0])) == 2


def test_inner_products_are_those_of_the_coordinates():
    left, right = np.random.default_rng(0).normal(size=(2, 3, 4))
    products = curved().inner_products(left, right[:2])
    np.testing.assert_allclose(products, np.einsum("ik,jk->ij", left, right[:2]))


def test_curvature_is_not_trained():
    trainable, rest = split(curved())
    assert len(jax.tree.leaves(trainable)) == 2
    np.testing.assert_array_equal(rest.curvature.hessian, HESSIAN)


def test_it_is_the_normal_that_it_carries():
    q, member = curved(), curved().member
    key, points = jax.random.key(0), jnp.asarray([[0.0, 1.0], [3.0, -2.0]])
    np.testing.assert_array_equal(q.mean, member.mean)
    np.testing.assert_array_equal(q.std, member.std)
    np.testing.assert_array_equal(q.sample(key, (3,)), member.sample(key, (3,)))
    np.testing.assert_array_equal(q.sample_noise(key, 3), member.sample_noise(key, 3))
    np.testing.assert_array_equal(q.log_prob(points), member.log_prob(points))
    np.testing.assert_array_equal(q.log_prob_factors(points), member.log_prob_factors(points))
    assert q.noise_size == member.noise_size == 2


def test_factors_make_up_the_density():
    q, points = curved(), jnp.asarray([[0.0, 1.0], [3.0, -2.0]])
    np.testing.assert_allclose(q.log_prob_factors(points).sum(axis=1), q.log_prob(points), rtol=1e-14)


def test_no_step_leaves_the_limits():
    q = curved()
    moved = q.moved(curved([1e9, -1e9], [1e9, -1e9]))
    np.testing.assert_allclose(moved.mean, q.mean + ROOT @ [MAX_CHANGE, -MAX_CHANGE])
    np.testing.assert_allclose(moved.member.log_scale, [0.3 + MAX_CHANGE, 0.1 - MAX_CHANGE])


def test_information_of_the_scales_is_two():
    coordinates = curved().fisher_coordinates(curved([1.0, 2.0], [3.0, 4.0]))
    np.testing.assert_allclose(coordinates, [1, 2, 3 * np.sqrt(2), 4 * np.sqrt(2)])


def test_a_curvature_in_few_directions_cannot_tell_the_gap():
    low_rank = LowRankCurvature(np.ones(2), np.zeros((2, 0)), np.zeros(0))
    assert curved().with_curvature(low_rank).fisher_coordinates(curved()) is None


def test_displacement_is_the_step_that_was_taken():
    before, step = curved(), curved([0.2, -0.1], [0.4, -0.3])
    now = before.moved(step)
    np.testing.assert_allclose(now.displacement(before), before.fisher_coordinates(step), rtol=1e-13)
    np.testing.assert_array_equal(now.displacement(now), 0)


def test_extrapolation_goes_on_along_the_way():
    """Means linearly, scales by factors, and the curvature with the scales."""
    before, now = curved([1.0, 0.0], [0.0, 0.0]), curved([2.0, -1.0], [0.5, -0.25])
    further = now.extrapolated(before, 2)
    np.testing.assert_allclose(further.mean, [4.0, -3.0])
    np.testing.assert_allclose(further.member.log_scale, [1.5, -0.75])
    factor = np.exp([1.0, -0.5])
    np.testing.assert_allclose(further.curvature.hessian, HESSIAN / np.outer(factor, factor))
    np.testing.assert_allclose(further.curvature.root, factor[:, None] * ROOT)


@pytest.mark.parametrize("kind", ["sparse", "low_rank"])
def test_any_curvature_goes_along_with_the_scales(kind: str):
    curvatures = {
        "sparse": sparse,
        "low_rank": lambda: LowRankCurvature(np.ones(2), np.eye(2), np.array([2.0, 3.0])),
    }
    curvature = curvatures[kind]()
    before, now = curved([1.0, 0.0], [0.0, 0.0]), curved([2.0, -1.0], [0.5, -0.25])
    further = now.with_curvature(curvature).extrapolated(before, 2)
    np.testing.assert_allclose(further.mean, [4.0, -3.0])
    factor = np.exp([1.0, -0.5])
    np.testing.assert_allclose(further.curvature.diagonal, np.asarray(curvature.diagonal) / factor**2)
    np.testing.assert_allclose(further.curvature.times(NOISE), curvature.times(NOISE / factor) / factor)


def test_extrapolated_scales_stay_within_what_numbers_can_hold():
    before, now = curved([0.0, 0.0], [0.0, 0.0]), curved([0.0, 0.0], [1.0, -1.0])
    further = now.extrapolated(before, 1000)
    np.testing.assert_allclose(further.member.log_scale, [1 + MAX_STRETCH, -1 - MAX_STRETCH])
    assert np.isfinite(further.curvature.hessian).all()


def test_another_curvature_changes_nothing_else():
    q = curved()
    other = q.with_curvature(DenseCurvature(np.eye(2), np.eye(2)))
    np.testing.assert_array_equal(other.curvature.times(NOISE), NOISE)
    assert other.member is q.member


def test_single_precision_stays_single():
    """Also where jax and the host compute in double precision."""
    q = curved(dtype="float32")
    gradient = q.natural_gradient(slopes(q), jnp.asarray(NOISE, "float32"))
    moved = q.moved(gradient)
    for family in (q, gradient, moved, moved.extrapolated(q, 2)):
        assert {leaf.dtype for leaf in jax.tree.leaves(family)} == {np.dtype("float32")}
    assert q.fisher_coordinates(gradient).dtype == np.float32


def test_coordinates_are_the_same_at_all_members():
    """So a correction is the displacement that it asks for, from wherever it begins."""
    rng = np.random.default_rng(3)
    family = curved()
    assert isinstance(family, Charted)
    assert family.is_charted
    for _ in range(2):
        step = 0.1 * rng.normal(size=4)
        moved = family.corrected(step)
        np.testing.assert_allclose(moved.displacement(family), step, rtol=1e-9)
        family = moved
