"""The low-rank normal that carries a curvature: exact gradients for a normal, and steps that stay bounded."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import dlrd
from dlrd import LowRankNormal
from dlrd.families import Certifiable, Refinable, split
from dlrd.families.couplings import couplings
from dlrd.families.curvature import Curvature, DenseCurvature, LowRankCurvature
from dlrd.families.curved_low_rank import MIN_SHARE, CurvedLowRank
from dlrd.families.pattern import Pattern
from dlrd.families.sparse_curvature import sparse_curvature

pytestmark = pytest.mark.usefixtures("x64")

DIM, RANK = 5, 2
RNG = np.random.default_rng(0)
ROOT = np.eye(DIM) + 0.4 * np.tril(RNG.normal(size=(DIM, DIM)))
COVARIANCE = ROOT @ ROOT.T
HESSIAN = np.linalg.inv(COVARIANCE)
FEW = LowRankCurvature(np.ones(DIM), np.zeros((DIM, 0)), np.zeros(0))


def dense(hessian: np.ndarray) -> DenseCurvature:
    return DenseCurvature(hessian, np.linalg.cholesky(np.linalg.inv(hessian)))


def curved(curvature: Curvature | None = None, length: float = 1.0, seed: int = 1) -> CurvedLowRank:
    rng = np.random.default_rng(seed)
    factor = length * rng.normal(size=(DIM, RANK))
    member = LowRankNormal(rng.normal(size=DIM), 0.3 * rng.normal(size=DIM), factor)
    curvature = dense(HESSIAN) if curvature is None else curvature
    return CurvedLowRank(member, curvature).with_curvature(curvature)


@eqx.filter_jit
def gradient_of(family: CurvedLowRank, hessian: np.ndarray = HESSIAN) -> CurvedLowRank:
    """From a draw and its mirror image, for N(0, H⁻¹)."""
    noise = family.sample_noise(jax.random.key(0), 2)
    return family.natural_gradient(-family.from_noise(noise) @ hessian, noise)


slope_of_kl = jax.jit(jax.grad(dlrd.kl))


def exact_gradient(member: LowRankNormal, hessian: np.ndarray = HESSIAN) -> np.ndarray:
    """Of the ELBO, with respect to all parameters."""
    exact = dlrd.FullRankNormal(np.zeros(len(hessian)), np.linalg.cholesky(np.linalg.inv(hessian)))
    return -np.asarray(ravel_pytree(slope_of_kl(member, exact))[0])


def sparse() -> Curvature:
    pair = couplings(Pattern(DIM, *np.tril_indices(DIM, -1)))
    assert pair is not None
    curvature = sparse_curvature(pair, pair.seeds(float) @ HESSIAN)
    assert curvature is not None
    return curvature


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_curvature_takes_all_noise_away_from_a_normal_posterior(kind: str) -> None:
    q = curved(sparse() if kind == "sparse" else None)
    expected = exact_gradient(q.member)
    np.testing.assert_allclose(q.fisher_coordinates(gradient_of(q)), expected, rtol=1e-9, atol=1e-9)


def narrow(dim: int = 30) -> np.ndarray:
    """Of a posterior whose coordinates have a sum of nearly zero, with two wide directions."""
    wide = np.linalg.qr(np.stack([np.ones(dim), np.arange(dim), np.arange(dim) ** 2.0], axis=1))[0]
    return np.eye(dim) + wide @ np.diag([1e4, -0.97, -0.9]) @ wide.T


def test_steps_of_the_usual_rate_bear_narrow_directions() -> None:
    """In units of Σ alone, steps of 0.3 would be thousands of times too long there."""
    hessian = narrow()
    q: Any = LowRankNormal.standard(len(hessian), 2).at_mode(np.full(30, 0.01), dense(np.eye(30)))
    q = q.with_curvature(dense(hessian))
    exact = dlrd.FullRankNormal(np.zeros(30), np.linalg.cholesky(np.linalg.inv(hessian)))
    best = LowRankNormal.standard(30, 2).at_mode(np.zeros(30), dense(hessian)).member

    @jax.jit
    def after(q: CurvedLowRank) -> CurvedLowRank:
        return jax.lax.fori_loop(
            0,
            400,
            lambda _, now: now.moved(jax.tree.map(lambda leaf: 0.3 * leaf, gradient_of(now, hessian))),
            q,
        )

    left = float(dlrd.kl(after(q).member, exact) - dlrd.kl(best, exact))
    assert left < 1e-3  # as exact as the search for the best one is
    assert float(dlrd.kl(q.member, exact) - dlrd.kl(best, exact)) > 1.0


@pytest.mark.parametrize("length", [0.1, 1.0, 30.0])
def test_the_bound_is_one(length: float) -> None:
    """On the second derivatives along log σ of ½ tr(HΣ) − ½ log |Σ|."""
    q = curved(length=length)

    def loss(log_scale: jax.Array) -> jax.Array:
        member = LowRankNormal(q.member.loc, log_scale, q.member.factor)
        return 0.5 * jnp.sum(HESSIAN * member.covariance) - 0.5 * jnp.linalg.slogdet(member.covariance)[1]

    bends = jax.jit(jax.hessian(loss))(q.member.log_scale)
    excess = np.linalg.eigvalsh(np.diag(q._balance()[2]) - bends)
    assert excess.min() > -1e-6 * np.abs(bends).max()


def test_a_scale_that_vanishes_gains_half_its_slope() -> None:
    """F has all of the first coordinate, and Fisher's metric is zero along its log σ."""
    member = LowRankNormal(np.zeros(2), [-4.0, 0.0], [[1.0], [0.0]])
    q = CurvedLowRank(member, dense(np.eye(2)))
    row = np.array([[0.0, 0.0, -0.3, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(0.5 * q.gap_products(row), 0.5 * 0.3)
    other = np.array([[0.0, 0.0, 0.0, 0.2, 0.0, 0.0]])
    np.testing.assert_allclose(0.5 * q.gap_products(other), 0.5 * 0.2**2 / 2)


def test_means_have_the_metric_of_the_curvature() -> None:
    q = curved()
    row = np.concatenate([RNG.normal(size=DIM), np.zeros(DIM * (1 + RANK))])[None]
    np.testing.assert_allclose(q.gap_products(row), row[:, :DIM] @ COVARIANCE @ row[:, :DIM].T, rtol=1e-9)


def test_displacement_times_a_gradient_is_the_slope_along_the_way() -> None:
    now, before = curved(), curved(seed=2)
    rows = exact_gradient(now.member)[None]
    way = np.concatenate([part.ravel() for part in now.member.way_from(before.member)])
    slope = now.inner_products(rows, now.displacement(before)[None])
    np.testing.assert_allclose(slope[0, 0], rows[0] @ way, rtol=1e-9)


def test_without_a_whole_curvature_it_is_the_normal_alone() -> None:
    q = curved(FEW)
    noise = q.sample_noise(jax.random.key(0), 4)
    slopes = jnp.sin(q.from_noise(noise))
    ours, plain = q.natural_gradient(slopes, noise), q.member.natural_gradient(slopes, noise)
    for left, right in ((ours.member, plain), (q.moved(ours).member, q.member.moved(plain))):
        for leaf, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
            np.testing.assert_array_equal(leaf, other)
    np.testing.assert_array_equal(q.fisher_coordinates(ours), q.member.fisher_coordinates(plain))
    np.testing.assert_array_equal(
        q.displacement(curved(FEW, seed=2)), q.member.displacement(curved(seed=2).member)
    )


def test_it_is_the_normal_that_it_carries() -> None:
    q, key = curved(), jax.random.key(0)
    points, noise = q.sample(key, (3,)), q.sample_noise(key, 3)
    np.testing.assert_array_equal(points, q.member.sample(key, (3,)))
    np.testing.assert_array_equal(q.log_prob(points), q.member.log_prob(points))
    np.testing.assert_array_equal(q.log_prob_of_noise(noise), q.member.log_prob_of_noise(noise))
    np.testing.assert_array_equal([q.mean, q.std], [q.member.mean, q.member.std])
    assert q.noise_size == DIM + RANK
    assert isinstance(q, Certifiable)
    assert isinstance(q, Refinable)
    assert len(jax.tree.leaves(split(q)[0])) == 3


def test_extrapolation_takes_the_curvature_along() -> None:
    now, before = curved(), curved(seed=2)
    further = now.extrapolated(before, 0.5)
    factor = np.asarray(further.std / now.std)
    np.testing.assert_allclose(further.curvature.diagonal, np.diagonal(HESSIAN) / factor**2)
    np.testing.assert_array_equal(further.member.loc, now.member.extrapolated(before.member, 0.5).loc)


def test_no_step_leaves_the_limits() -> None:
    q = curved()
    far = q.moved(jax.tree.map(lambda leaf: 1e9 * leaf, gradient_of(q)))
    shift, change = np.asarray(far.mean - q.mean), np.asarray(far.member.factor - q.member.factor)
    assert np.sqrt(shift @ HESSIAN @ shift) <= 0.5 * DIM**0.5 * (1 + 1e-9)
    assert np.sqrt(np.sum(change * (HESSIAN @ change))) <= 0.5 * (1 + 1e-9)
    assert np.abs(far.member.log_scale - q.member.log_scale).max() <= 0.5 * (1 + 1e-9)


def test_steps_take_no_scale_to_zero() -> None:
    """Nor do they bring one up that is small already."""
    q = CurvedLowRank(LowRankNormal(np.zeros(2), [-4.5, -9.0], np.eye(2)), dense(np.eye(2)))
    down = CurvedLowRank(LowRankNormal(np.zeros(2), [-9.0, -9.0], np.zeros((2, 2))), q.curvature)
    np.testing.assert_allclose(q.moved(down).member.log_scale, [np.log(MIN_SHARE), -9.0])


@pytest.mark.parametrize("is_many", [False, True])
def test_a_start_has_its_own_precision_for_a_curvature(is_many: bool) -> None:
    q = LowRankNormal.standard(300 if is_many else 4, 2).as_start()
    assert q.curvature.is_whole is not is_many
    if not is_many:
        np.testing.assert_allclose(q.curvature.times(q.member.covariance), np.eye(4), atol=1e-12)


def test_single_precision_stays_single() -> None:
    q = curved()
    single = CurvedLowRank(jax.tree.map(lambda leaf: leaf.astype("float32"), q.member), q.curvature)
    single = single.with_curvature(q.curvature)
    noise = jnp.asarray(RNG.normal(size=(2, DIM + RANK)), "float32")
    gradient = single.natural_gradient(jnp.sin(single.from_noise(noise)), noise)
    for each in (single, gradient, single.moved(gradient), single.extrapolated(single, 1.0)):
        assert {leaf.dtype for leaf in jax.tree.leaves(each)} == {np.dtype("float32")}
