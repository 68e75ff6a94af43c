"""The Fisher metric of a diagonal and low-rank normal, against the whole matrix and the gap that there is."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import dlrd
from dlrd import LowRankNormal
from dlrd.families import Certifiable
from dlrd.families.low_rank_geometry import LEAST, nearest_rotation

SHAPES = [(5, 1), (6, 2), (8, 3), (40, 2)]
TOO_MANY = [(3, 2), (3, 3), (2, 2), (1, 1)]
"""More parameters than a covariance has: the metric is singular not only along rotations."""


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def example(dim: int, rank: int, length: float = 1.0, seed: int = 0) -> LowRankNormal:
    rng = np.random.default_rng(seed)
    factor = length * rng.normal(size=(dim, rank))
    return LowRankNormal(rng.normal(size=dim), 0.5 * rng.normal(size=dim), factor)


def flat(family: LowRankNormal) -> np.ndarray:
    return np.asarray(ravel_pytree(family)[0])


@jax.jit
def jacobian_in_jax(family: LowRankNormal) -> jax.Array:
    parameters, unflat = ravel_pytree(family)
    return jax.jacobian(lambda vector: unflat(vector).covariance)(parameters)


def jacobian(family: LowRankNormal) -> np.ndarray:
    """Of the covariance with respect to all parameters."""
    return np.asarray(jacobian_in_jax(family))


def information(family: LowRankNormal) -> np.ndarray:
    """The whole Fisher information, by its definition."""
    precision, change = np.linalg.inv(family.covariance), jacobian(family)
    relative = np.einsum("ij,jkn->ikn", precision, change)
    whole = 0.5 * np.einsum("ijn,jim->nm", relative, relative)
    whole[: len(precision), : len(precision)] += precision
    return whole


def gradients(family: LowRankNormal, num: int = 4) -> np.ndarray:
    """Of functions of the distribution: along rotations of F they vanish."""
    rng, dim = np.random.default_rng(1), len(family.loc)
    symmetric = rng.normal(size=(num, dim, dim))
    rows = np.einsum("bij,ijn->bn", symmetric + symmetric.transpose(0, 2, 1), jacobian(family))
    rows[:, :dim] = rng.normal(size=(num, dim))
    return rows


def assert_same(seen: np.ndarray, expected: np.ndarray, rounding: float = 1e-10) -> None:
    np.testing.assert_allclose(seen, expected, rtol=0, atol=rounding * np.max(np.abs(expected)))


@pytest.mark.parametrize(("dim", "rank"), SHAPES + TOO_MANY)
def test_inner_products_are_those_of_the_inverse_information(dim: int, rank: int) -> None:
    family = example(dim, rank)
    rows = gradients(family)
    inverse = np.linalg.pinv(information(family), rcond=1e-11, hermitian=True)
    assert_same(family.inner_products(rows, rows), rows @ inverse @ rows.T)
    assert_same(family.inner_products(rows, rows[:2].copy()), rows @ inverse @ rows[:2].T)


@pytest.mark.parametrize("length", [0.01, 30.0])
def test_lengths_of_columns_do_not_matter(length: float) -> None:
    """Far shorter or longer than the scales; of the matrix for comparison, the square is the condition."""
    family = example(7, 2, length)
    rows = gradients(family)
    inverse = np.linalg.pinv(information(family), rcond=1e-12, hermitian=True)
    assert_same(family.inner_products(rows, rows), rows @ inverse @ rows.T, 1e-7)


def test_one_coordinate_may_be_all_but_a_factor() -> None:
    """Its leverage is nearly 1, of those of the others none is small."""
    factor = np.array([[50.0, 0.0], [0.3, 1.0], [0.2, -1.0], [0.1, 0.5], [0.3, 0.2]])
    family = LowRankNormal(np.zeros(5), np.zeros(5), factor)
    rows = gradients(family)
    inverse = np.linalg.pinv(information(family), rcond=1e-13, hermitian=True)
    assert_same(family.inner_products(rows, rows), rows @ inverse @ rows.T, 1e-6)


def rotated(family: LowRankNormal, seed: int = 2) -> tuple[LowRankNormal, np.ndarray]:
    rank = family.factor.shape[1]
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(rank, rank)))[0]
    return LowRankNormal(family.loc, family.log_scale, family.factor @ rotation), rotation


def test_rotations_of_the_factor_change_nothing() -> None:
    family = example(8, 3)
    same, rotation = rotated(family)
    rows = gradients(family)
    turned = np.concatenate([rows[:, :16], (rows[:, 16:].reshape(-1, 8, 3) @ rotation).reshape(4, -1)], 1)
    assert_same(same.inner_products(turned, turned), family.inner_products(rows, rows))


def test_what_points_along_a_rotation_is_left_out() -> None:
    """No gradient does, but its noise may, and the metric is zero there."""
    axes = np.linalg.qr(np.random.default_rng(3).normal(size=(8, 2)))[0]
    family = LowRankNormal(np.zeros(8), np.zeros(8), 1.7 * axes)
    rotation = axes @ np.array([[0.0, 1.0], [-1.0, 0.0]])
    row = np.concatenate([np.zeros(16), rotation.ravel()])[None]
    np.testing.assert_allclose(information(family) @ row[0], 0, atol=1e-14)
    assert family.inner_products(row, row)[0, 0] < 1e-28


divergence_and_slope = jax.jit(jax.value_and_grad(dlrd.kl))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dim", [5, 8])
def test_half_the_square_of_the_gradient_is_the_gap(dim: int, rank: int) -> None:
    """Of a normal slightly off the optimum, which is in the family; the divergence has a closed form."""
    best = example(dim, rank)
    exact = dlrd.FullRankNormal(best.loc, np.linalg.cholesky(best.covariance))
    rng, size = np.random.default_rng(dim + rank), 1e-4
    for _ in range(4):
        family = LowRankNormal(
            best.loc + size * best.std * rng.normal(size=dim),
            best.log_scale + size * rng.normal(size=dim),
            best.factor + size * best.std[:, None] * rng.normal(size=(dim, rank)),
        )
        gap, slope = divergence_and_slope(family, exact)
        row = flat(slope)[None]
        # The next term of the series is smaller by the size of the changes: dim (2 + rank) of them.
        predicted = 0.5 * family.inner_products(row, row)[0, 0]
        np.testing.assert_allclose(predicted, gap, rtol=size * dim * (2 + rank))


def test_natural_gradients_give_the_gap() -> None:
    """From draws to products: coordinates are those of the gradient of the ELBO, but for noise."""
    best, family = example(5, 2), example(5, 2, seed=4)
    exact = dlrd.FullRankNormal(best.loc, np.linalg.cholesky(best.covariance))
    expected = -flat(jax.grad(lambda family: dlrd.kl(family, exact))(family))

    @jax.jit
    def block(key: jax.Array) -> jax.Array:
        noise = family.sample_noise(key, 512)
        slopes = jax.vmap(jax.grad(exact.log_prob))(family.from_noise(noise))
        return family.fisher_coordinates(family.natural_gradient(slopes, noise))

    rows = np.stack([block(key) for key in jax.random.split(jax.random.key(0), 64)])
    error = np.std(rows, axis=0, ddof=1) / 8
    np.testing.assert_array_less(np.abs(np.mean(rows, axis=0) - expected), 5 * error)


def test_nearly_zero_columns_have_nearly_no_noise() -> None:
    """In units of the metric, a column a hundred times as short has no more noise than before."""

    def noise_of(length: float) -> float:
        family = LowRankNormal(np.zeros(6), np.zeros(6), length * np.ones((6, 1)) / 6**0.5)
        noise = family.sample_noise(jax.random.key(0), 64 * 32).reshape(64, 32, 7)
        slopes = jnp.sin(3 * family.from_noise(noise))
        found = jax.vmap(lambda each, own: family.fisher_coordinates(family.natural_gradient(each, own)))
        rows = np.array(found(slopes, noise))
        rows[:, :12] = 0  # F alone
        rows -= rows.mean(axis=0)
        return float(np.mean(np.diagonal(family.inner_products(rows, rows))))

    assert noise_of(0.01) < 2 * noise_of(1.0)


def test_columns_that_are_negligible_are_left_out() -> None:
    """The products are those of the family without them, and finite at zero."""
    family = example(6, 2)
    rows = gradients(family)
    expected = family.inner_products(rows, rows)
    for length in (0.0, 1e-30, 0.1 * LEAST):
        column = length * np.ones((6, 1)) / 6**0.5 * np.exp(family.log_scale)[:, None]
        longer = LowRankNormal(family.loc, family.log_scale, np.hstack([family.factor, column]))
        factor = rows[:, 12:].reshape(-1, 6, 2)
        padded = np.concatenate([factor, np.ones((4, 6, 1))], axis=2).reshape(4, -1)
        wider = np.concatenate([rows[:, :12], padded], axis=1)
        assert_same(longer.inner_products(wider, wider), expected, LEAST)  # it turns the axes by its length
    alone = LowRankNormal(np.zeros(2), np.zeros(2), np.zeros((2, 1)))
    row = np.array([[1.0, 2.0, 3.0, 4.0, 0.0, 0.0]])
    np.testing.assert_allclose(alone.inner_products(row, row), [[1 + 4 + (9 + 16) / 2]])


@pytest.mark.parametrize(("dim", "rank"), SHAPES + TOO_MANY)
def test_displacement_times_a_gradient_is_the_slope_along_the_way(dim: int, rank: int) -> None:
    now, rng = example(dim, rank), np.random.default_rng(5)
    way = LowRankNormal(*(0.1 * rng.normal(size=leaf.shape) for leaf in jax.tree.leaves(now)))
    before = jax.tree.map(lambda end, part: end - part, now, way)
    std = np.asarray(now.std)[:, None]
    turn = nearest_rotation(np.asarray(now.factor) / std, np.asarray(before.factor) / std)
    nearest = LowRankNormal(way.loc, way.log_scale, now.factor - before.factor @ turn)
    assert_same(now.displacement(before), information(now) @ flat(nearest))
    rows = gradients(now)
    assert_same(now.inner_products(rows, now.displacement(before)[None])[:, 0], rows @ flat(nearest))
    # Turning the earlier factor makes no other way of it.
    assert_same(now.displacement(rotated(before)[0]), now.displacement(before))
    np.testing.assert_allclose(now.displacement(now), 0, atol=1e-12)


def test_nearest_rotation_is_found() -> None:
    family, rng = example(8, 3), np.random.default_rng(6)
    factor = np.asarray(family.factor)
    turned, rotation = rotated(family)
    np.testing.assert_allclose(nearest_rotation(np.asarray(turned.factor), factor), rotation, atol=1e-13)
    other = rng.normal(size=(8, 3))
    best = np.linalg.norm(other - factor @ nearest_rotation(other, factor))
    for seed in range(20):
        assert best <= np.linalg.norm(other - np.asarray(rotated(family, seed)[0].factor))


def test_extrapolated_goes_on_in_the_same_way() -> None:
    before, rng = example(6, 2), np.random.default_rng(7)
    way = LowRankNormal(*(1e-5 * rng.normal(size=leaf.shape) for leaf in jax.tree.leaves(before)))
    now = jax.tree.map(jnp.add, before, way)
    further = now.extrapolated(rotated(before)[0], 3.0)
    np.testing.assert_allclose(further.loc - now.loc, 3 * way.loc, rtol=1e-9)
    np.testing.assert_allclose(further.log_scale - now.log_scale, 3 * way.log_scale, rtol=1e-9)
    change = np.asarray(now.covariance - before.covariance)
    assert_same(further.covariance - now.covariance, 3 * change, 1e-4)  # but for the square of the way
    same = now.extrapolated(now, 8.0)
    np.testing.assert_allclose(same.covariance, now.covariance, rtol=1e-12)


def test_extrapolated_changes_all_scales_by_factors() -> None:
    """Where all shrinks, correlations stay, where a linear change would turn the factor round."""
    before = example(6, 2)
    now = LowRankNormal(before.loc, before.log_scale - 1, before.factor * np.exp(-1))
    further = now.extrapolated(before, 4.0)
    np.testing.assert_allclose(further.covariance, before.covariance * np.exp(-10), rtol=1e-10)


def test_extrapolated_stays_within_bounds() -> None:
    before, now = example(6, 2), example(6, 2, length=3.0, seed=8)
    further = now.extrapolated(before, 64.0)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(further))
    assert np.all(np.linalg.norm(further.factor, axis=1) <= 1.001 * now.std * np.exp(20.0))


def test_extrapolated_scales_do_not_vanish() -> None:
    """Where one of them shrinks beside F; one that is smaller already stays as it is."""
    log_scales = np.array([0.0, 0.0, -9.0])
    before = LowRankNormal(np.zeros(3), log_scales, np.ones((3, 1)))
    now = LowRankNormal(np.zeros(3), log_scales - [1.0, 0.0, 1.0], np.ones((3, 1)))
    further = now.extrapolated(before, 16.0)
    share = np.asarray(np.exp(further.log_scale) / further.std)
    assert 0.009 < share[0] < 0.011  # but for the standard deviation's own share of σ²
    np.testing.assert_allclose(further.log_scale[1:], [0.0, -10.0], atol=1e-12)


def test_no_gradient_no_gap() -> None:
    family = example(8, 3)
    nothing = np.zeros((2, 8 * 5))
    np.testing.assert_array_equal(family.inner_products(nothing, nothing), 0)


def test_single_precision_gives_the_same_numbers() -> None:
    family = example(8, 3)
    single = jax.tree.map(lambda leaf: leaf.astype("float32"), family)
    rows = gradients(family)
    seen = single.inner_products(rows.astype("float32"), rows.astype("float32"))
    assert seen.dtype == float
    # Rounded rows are off by 6e-8, and what is left of them along small directions by more.
    assert_same(seen, family.inner_products(rows, rows), 1e-4)
    before = jax.tree.map(lambda leaf: 0.9 * leaf, single)
    assert np.isfinite(single.displacement(before)).all()
    assert {leaf.dtype for leaf in jax.tree.leaves(single.extrapolated(before, 1.0))} == {np.dtype("float32")}
    assert single.fisher_coordinates(single).dtype == np.float32


def test_beyond_all_bounds_nothing_is_raised() -> None:
    family = example(5, 2)
    huge = np.full((2, 20), 1e300)
    assert not np.isfinite(family.inner_products(huge, huge)).any()
    lost = LowRankNormal(family.loc, family.log_scale, jnp.full((5, 2), jnp.nan))
    rows = gradients(family)
    assert np.isnan(lost.inner_products(rows, rows)).all()
    assert np.isnan(lost.displacement(family)).any()
    assert np.isnan(lost.extrapolated(family, 1.0).factor).all()


def test_families_of_low_rank_can_be_certified() -> None:
    assert isinstance(example(3, 1), Certifiable)
