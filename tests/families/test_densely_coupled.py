"""The normal with a pattern that is fitted by gradients alone: noise by pairs, and back to the pattern."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd import FullRankNormal, SparseNormal
from dlrd.families import Correctable, HasCouplings, Settling, member_of, ordering, settled, split
from dlrd.families.couplings import couplings
from dlrd.families.densely_coupled import DenselyCoupled
from dlrd.families.pattern import Pattern
from dlrd.families.sparse_curvature import sparse_curvature

pytestmark = pytest.mark.usefixtures("x64")

DIM, MANY = 19, 15
PAIRS = np.array([(i, j) for i in range(MANY, DIM) for j in range(MANY)])
"""Each of the first ones depends on each of the last: two-way effects."""
EPS = float(np.finfo(float).eps)
DESIGN = np.sqrt(DIM) * np.concatenate([np.eye(DIM), -np.eye(DIM)])
"""Noise whose means of quadratic functions are exact."""


def random_precision(seed):
    rng = np.random.default_rng(seed)
    matrix = np.zeros((DIM, DIM))
    matrix[PAIRS[:, 0], PAIRS[:, 1]] = rng.normal(size=len(PAIRS))
    matrix += matrix.T
    return matrix + np.diag(1 + np.abs(matrix).sum(axis=1))


@pytest.fixture(scope="module")
def make():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "SMALL_TAIL", 2)
        found = couplings(Pattern(DIM, *PAIRS.T))
    assert found is not None
    assert found.is_for_gradients
    assert found.is_sparse

    def densely_coupled(loc, precision, kind=SparseNormal, log_noise=None):
        curvature = sparse_curvature(found, found.seeds(float) @ precision)
        assert curvature is not None
        family = DenselyCoupled.at(loc, curvature, "float64", kind)
        return family if log_noise is None else eqx.tree_at(lambda q: q.log_noise, family, log_noise)

    with jax.enable_x64(True):
        yield densely_coupled


def slopes_of(family, noise, target, precision):
    return -(np.asarray(family.from_noise(noise)) - target) @ precision


@pytest.mark.parametrize("kind", [SparseNormal, FullRankNormal])
def test_users_get_the_same_normal(make, kind):
    precision = random_precision(0)
    family = make(np.arange(DIM), precision, kind)
    member = member_of(family)
    assert isinstance(member, kind)
    limit = DIM * EPS * np.linalg.cond(precision)
    np.testing.assert_allclose(np.linalg.inv(member.covariance), precision, atol=limit * precision.max())
    np.testing.assert_allclose(family.std, member.std, rtol=limit)
    points = np.random.default_rng(1).normal(size=(3, DIM))
    draws = family.from_noise(points)
    np.testing.assert_allclose(family.log_prob(draws), member.log_prob(draws), rtol=limit * 100)
    np.testing.assert_allclose(family.log_prob_of_noise(points), member.log_prob(draws), rtol=limit * 100)


def test_is_what_fits_ask_for(make):
    family = make(np.zeros(DIM), random_precision(0))
    for capability in (Correctable, HasCouplings, Settling):
        assert isinstance(family, capability)
    plain = FullRankNormal.standard(2)
    assert settled(plain) is plain


@pytest.mark.parametrize("seed", [None, 5])
def test_gap_and_correction_for_a_normal_target(make, seed):
    """To the second order in the distance, however the two halves of M are weighed."""
    log_noise = None if seed is None else jnp.asarray(np.random.default_rng(seed).normal(size=DIM))
    precision = random_precision(0)
    family = make(np.zeros(DIM), precision, log_noise=log_noise)
    wanted, target = precision + 0.02 * random_precision(1), np.full(DIM, 0.01)
    gradient = family.natural_gradient(slopes_of(family, DESIGN, target, wanted), jnp.asarray(DESIGN))
    coordinates = np.asarray(family.fisher_coordinates(gradient))
    exact = SparseNormal.from_precision(target, wanted)
    gap = float(dlrd.kl(family.member, exact))
    size = np.linalg.norm(np.linalg.solve(precision, wanted - precision))
    assert size < 0.3
    actual = 0.5 * family.inner_products(coordinates[None], coordinates[None])[0, 0]
    np.testing.assert_allclose(actual, gap, rtol=size)
    better = family.corrected(coordinates)
    assert dlrd.kl(better.member, exact) < size**2 * gap
    assert dlrd.kl(settled(family.moved(gradient)).member, exact) < size**2 * gap
    # The way to it, seen from here, is that gradient backwards.
    along = family.inner_products(coordinates[None], family.displacement(better)[None])[0, 0]
    np.testing.assert_allclose(along, -2 * actual, rtol=size)
    again = better.extrapolated(family, 0.0)
    np.testing.assert_allclose(again.root, better.root, atol=DIM * EPS * np.linalg.cond(precision))


def test_steps_may_leave_the_pattern_and_settling_returns(make):
    family = make(np.zeros(DIM), random_precision(0))
    noise = np.random.default_rng(2).normal(size=(4, DIM))
    step = family.natural_gradient(slopes_of(family, noise, np.ones(DIM), random_precision(3)), noise)
    moved = family.moved(step)
    there = settled(moved)
    kept = member_of(there).precision.toarray()
    np.testing.assert_array_equal(kept[:MANY, :MANY] != 0, np.eye(MANY, dtype=bool))
    half = np.asarray(moved.root)[moved.elimination.position]
    left = np.linalg.inv(half @ half.T)[:MANY, :MANY]
    assert np.abs(left - np.diag(left.diagonal())).max() > 0.01
    same = settled(there)
    np.testing.assert_allclose(same.root, there.root, atol=DIM * EPS * np.linalg.cond(kept))


def test_the_noisier_half_of_each_pair_counts_less(make):
    """Residuals of one coordinate are a hundred times larger: without weights, all its pairs are as noisy."""
    family = make(np.zeros(DIM), np.eye(DIM))
    sizes = np.ones(DIM)
    sizes[3] = 100.0

    def gradients(family):
        keys = jax.random.split(jax.random.key(0), 200)
        return jax.jit(jax.vmap(lambda key: split(one(family, key))[0]))(keys)

    def one(family, key):
        noise = jax.random.normal(key, (8, DIM))
        residual = family.elimination.permuted(jnp.asarray(sizes)) * jnp.sin(7 * noise)
        slopes = family.elimination.unpermuted(residual - noise)  # R is the identity
        return family.natural_gradient(slopes, noise)

    assert np.asarray(family.root).tolist() == np.eye(DIM).tolist()
    before, learn = gradients(family), jax.jit(lambda q, key: q.moved(one(q, key)).log_noise)
    for key in jax.random.split(jax.random.key(1), 50):
        family = eqx.tree_at(lambda q: q.log_noise, family, learn(family, key))
    after = gradients(family)
    place = int(family.elimination.position[3])
    pairs = np.delete(np.arange(DIM), place)
    ends = np.minimum(place, pairs), np.maximum(place, pairs)
    noise = [np.std(each.root[:, *ends]) for each in (before, after)]
    assert noise[1] < 0.1 * noise[0]
