"""Footholds: the best mean-field normal on a few draws, where modes are traps."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import dlrd
from dlrd.fitting.automatic.start.foothold import (
    MAX_NARROWINGS,
    NUM_DRAWS,
    NUM_POINTS,
    TOLERANCE,
    Foothold,
    find_foothold,
)
from dlrd.fitting.automatic.start.funnel import Funnel
from dlrd.fitting.automatic.start.mode import find_mode
from dlrd.fitting.automatic.start.objective import Objective
from dlrd.fitting.automatic.start.structure import NUM_ROUGH, Survey
from dlrd.models import FunctionModel, LogDensity

KEY = jax.random.key(0)
UNLIKELY = 10.0
"""Times its expectation, which no quadratic form of normals exceeds with a chance of more than 0.2 %."""


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


class Recorded(Objective):
    """Remembers what it was asked for."""

    def __init__(self, log_density: LogDensity, dim: int, dtype: str = "float64"):
        super().__init__(FunctionModel(log_density, (dim,)), jnp.dtype(dtype))
        self.points: list[np.ndarray] = []  # of each batch
        self.batches: list[np.ndarray] = []  # the values there
        self.surveyed: list[np.ndarray] = []  # points of products
        self.asked: list[tuple[int, int]] = []  # how many points and directions these had

    def batch(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = super().batch(points)
        self.points.append(points)
        self.batches.append(found[0])
        return found

    def products(self, points: np.ndarray, directions: np.ndarray) -> np.ndarray:
        self.surveyed.append(points)
        self.asked.append((len(points), len(directions)))
        return super().products(points, directions)


def found_from(objective: Objective, mean: np.ndarray, std: np.ndarray | None = None) -> Foothold:
    survey = Survey(objective, dlrd.MeanFieldNormal.standard(len(mean)))
    return find_foothold(objective, survey, mean, np.ones(len(mean)) if std is None else std, KEY)


def cost_of_few_draws(log_density: LogDensity, mean: np.ndarray, std: np.ndarray) -> float:
    """What the best on a few draws is expected to lack: E[½ gᵀ H⁻¹ g].

    H is the curvature of the ELBO at its optimum, g its gradient there over pairs of draws like those that
    are climbed on, each coordinate with a variance of exactly 1.
    """

    def elbo(place: jax.Array, noise: jax.Array) -> jax.Array:
        center, log_std = jnp.split(place, 2)
        offset = jnp.exp(log_std) * noise
        return 0.5 * (log_density(center + offset) + log_density(center - offset)) + jnp.sum(log_std)

    noise = np.random.default_rng(0).normal(size=(250, NUM_DRAWS // 2, len(mean)))
    noise /= np.sqrt(np.mean(noise**2, axis=1, keepdims=True))
    place, each = np.concatenate([mean, np.log(std)]), noise.reshape(-1, len(mean))
    slopes = np.asarray(jax.jit(jax.vmap(jax.grad(elbo), (None, 0)))(place, each))
    slopes = slopes.reshape(*noise.shape[:2], -1).mean(axis=1)
    curvature = -np.mean(jax.jit(jax.vmap(jax.hessian(elbo), (None, 0)))(place, each), axis=0)
    assert np.linalg.eigvalsh(curvature).min() > 0
    return float(0.5 * np.mean(np.sum(slopes.T * np.linalg.solve(curvature, slopes.T), axis=0)))


COVARIANCE = np.array([[1.0, 0.8, 0.0], [0.8, 2.0, -0.5], [0.0, -0.5, 0.3]])
MEAN = np.array([1.0, -2.0, 0.5])
PRECISION = np.linalg.inv(COVARIANCE)


def correlated(z: jax.Array) -> jax.Array:
    return -0.5 * (z - MEAN) @ PRECISION @ (z - MEAN)


NUM_ARMS = 6


def centred(z: jax.Array) -> jax.Array:
    """A hierarchy: effects z[1:], each N(0, exp(z[0])), of which nothing is known, and a prior of z[0]."""
    return -(z[0] ** 2) / 18 - 0.5 * NUM_ARMS * z[0] - 0.5 * jnp.sum(z[1:] ** 2) * jnp.exp(-z[0])


def test_independent_normals_are_found() -> None:
    """Of any scales: draws with mirror images and a variance of exactly 1 leave no noise."""
    mean, std = np.array([300.0, -2.0, 0.5, 0.0]), np.array([100.0, 1.0, 1e-2, 1e-3])
    objective = Recorded(lambda z: -0.5 * jnp.sum(((z - mean) / std) ** 2), 4)
    found = found_from(objective, np.zeros(4))
    assert found.is_found
    exact = dlrd.MeanFieldNormal(mean, np.log(std))
    assert dlrd.kl(dlrd.MeanFieldNormal(found.mean, np.log(found.std)), exact) < TOLERANCE


def test_best_mean_field_normal_of_a_correlated_one() -> None:
    """The mean has no noise, the standard deviations have that of the draws' correlations."""
    found = found_from(Recorded(correlated, 3), np.zeros(3))
    away = found.mean - MEAN
    assert 0.5 * away @ PRECISION @ away < TOLERANCE
    exact = dlrd.FullRankNormal(MEAN, np.linalg.cholesky(COVARIANCE))
    best_std = np.diagonal(PRECISION) ** -0.5
    best = dlrd.MeanFieldNormal(MEAN, np.log(best_std))
    lacks = dlrd.kl(dlrd.MeanFieldNormal(found.mean, np.log(found.std)), exact) - dlrd.kl(best, exact)
    assert 0 < lacks < TOLERANCE + UNLIKELY * cost_of_few_draws(correlated, MEAN, best_std)


def test_curvature_of_a_normal_is_exact() -> None:
    found = found_from(Recorded(correlated, 3), np.zeros(3))
    rounding = 100 * np.finfo(float).eps * np.linalg.cond(PRECISION)
    np.testing.assert_allclose(found.curvature.times(np.eye(3)), PRECISION, atol=rounding * PRECISION.max())
    assert found.funnel is None


def test_curvature_is_the_mean_over_draws_of_the_foothold() -> None:
    """Others than those that it was climbed on: of −log p = cosh z in each coordinate, the mean of cosh z."""
    objective = Recorded(lambda z: -jnp.sum(jnp.cosh(z)), 3)
    found = found_from(objective, np.zeros(3))
    *_, first, rest = objective.surveyed
    points = np.concatenate([first, rest])
    np.testing.assert_allclose(found.curvature.diagonal, np.mean(np.cosh(points), axis=0), rtol=1e-14)
    noise = (points - found.mean) / found.std
    np.testing.assert_allclose(noise[::2], -noise[1::2], rtol=1e-12)
    # Of each of three coordinates, the mean over four squares: five standard errors of twelve of them.
    assert abs(np.mean(noise**2) - 1) < 5 * np.sqrt(2 / (3 * NUM_POINTS // 2))
    assert not np.isin(np.abs(noise), np.abs(objective.points[0])).any()


@pytest.mark.parametrize("log_density", [correlated, centred], ids=["normal", "hierarchy"])
def test_best_on_its_draws_to_the_tolerance(log_density: LogDensity) -> None:
    """As another program finds it; the draws are those at N(0, I), where the way begins."""
    dim = 3 if log_density is correlated else 1 + NUM_ARMS
    objective = Recorded(log_density, dim)
    found = found_from(objective, np.zeros(dim))
    noise = objective.points[0]
    np.testing.assert_allclose(np.mean(noise, axis=0), 0, atol=1e-15)
    np.testing.assert_allclose(np.mean(noise**2, axis=0), 1, rtol=1e-14)

    @jax.jit
    def loss(place: jax.Array) -> jax.Array:
        mean, log_std = jnp.split(place, 2)
        return -jnp.mean(jax.vmap(log_density)(mean + jnp.exp(log_std) * noise)) - jnp.sum(log_std)

    place = np.concatenate([found.mean, np.log(found.std)])
    best = scipy.optimize.minimize(jax.value_and_grad(loss), place, jac=True, method="BFGS", tol=1e-8)
    assert best.fun <= loss(place) < best.fun + TOLERANCE


def centred_elbo(mean: np.ndarray, std: np.ndarray) -> float:
    """Of a mean-field normal, but for a constant."""
    arms = 0.5 * np.sum(std[1:] ** 2 + mean[1:] ** 2) * np.exp(-mean[0] + std[0] ** 2 / 2)
    return -(mean[0] ** 2 + std[0] ** 2) / 18 - 0.5 * NUM_ARMS * mean[0] - arms + np.sum(np.log(std))


def test_neck_of_a_centred_hierarchy_is_left_alone() -> None:
    """The mode is in it, nine prior standard deviations away; the best mean-field normal is around 0."""
    dim, objective = 1 + NUM_ARMS, Recorded(centred, 1 + NUM_ARMS)
    start = np.full(dim, 0.5)
    trap = find_mode(objective, start, is_whole=True)
    assert trap is not None
    assert abs(trap.point[0] + 9 * NUM_ARMS / 2) < 0.5  # as far from the mode as a search may end
    found = found_from(objective, start)
    assert found.is_found
    variance = 1 / (1 / 9 + NUM_ARMS / 2)
    best = np.zeros(dim), np.sqrt([variance, *[np.exp(-variance / 2)] * NUM_ARMS])
    lacks = centred_elbo(*best) - centred_elbo(found.mean, found.std)
    assert found.funnel == Funnel(neck=0, others=tuple(range(1, dim)))
    assert -1e-12 < lacks < TOLERANCE + UNLIKELY * cost_of_few_draws(centred, *best)


SHAPE, STEEPNESS = 10.0, 60.0


def steep(z: jax.Array) -> jax.Array:
    """The logarithms of gamma variates, in units of 1/60: beyond 1.5 their exponential overflows."""
    return jnp.sum(SHAPE * STEEPNESS * z - jnp.exp(STEEPNESS * z))


def test_begins_narrower_where_the_density_overflows() -> None:
    objective = Recorded(steep, 3, "float32")
    found = found_from(objective, np.zeros(3))
    assert not np.isfinite(objective.batches[0]).all()  # at N(0, I)
    assert np.isfinite(objective.batches[1]).all()  # at a quarter of its width
    assert found.is_found
    # E log p − log q is a m − exp(m + s²/2) + log s in units of 1/60: best at s² = 1/a, m = log a − s²/2.
    mean, std = STEEPNESS * found.mean, STEEPNESS * found.std
    best = np.log(SHAPE) - 0.5 / SHAPE, SHAPE**-0.5

    def elbo(mean: np.ndarray | float, std: np.ndarray | float) -> np.ndarray:
        return np.sum(SHAPE * mean - np.exp(mean + 0.5 * std**2) + np.log(std) + np.zeros(3))

    few = cost_of_few_draws(steep, *(np.full(3, each) / STEEPNESS for each in best))
    assert elbo(*best) - elbo(mean, std) < TOLERANCE + UNLIKELY * few


def test_not_found_where_the_density_is_nowhere_finite() -> None:
    objective = Recorded(lambda z: -jnp.inf + 0 * jnp.sum(z), 3)
    found = found_from(objective, np.zeros(3))
    assert not found.is_found
    assert objective.num_gradients == (MAX_NARROWINGS + 1) * NUM_DRAWS
    assert objective.asked == []


@pytest.mark.parametrize("log_density", [correlated, centred], ids=["normal", "hierarchy"])
def test_gradients_are_counted(log_density: Callable[[jax.Array], jax.Array]) -> None:
    """One for each draw of each evaluation, and two for each product; at the end at all points."""
    dim = 3 if log_density is correlated else 1 + NUM_ARMS
    objective = Recorded(log_density, dim)
    found_from(objective, np.zeros(dim))
    assert {len(values) for values in objective.batches} == {NUM_DRAWS}
    *between, first, rest = objective.asked
    assert all(each == (NUM_ROUGH, dim) for each in between)
    assert [first, rest] == [(NUM_ROUGH, dim), (NUM_POINTS - NUM_ROUGH, dim)]
    num_products = sum(points * directions for points, directions in objective.asked)
    assert objective.num_gradients == NUM_DRAWS * len(objective.batches) + 2 * num_products


def test_depends_on_the_key_alone() -> None:
    first, again = (found_from(Recorded(centred, 1 + NUM_ARMS), np.zeros(1 + NUM_ARMS)) for _ in range(2))
    np.testing.assert_array_equal(first.mean, again.mean)
    np.testing.assert_array_equal(first.std, again.std)
    objective = Recorded(centred, 1 + NUM_ARMS)
    survey = Survey(objective, dlrd.MeanFieldNormal.standard(1 + NUM_ARMS))
    other = find_foothold(objective, survey, *np.full((2, 1 + NUM_ARMS), [[0.0], [1.0]]), jax.random.key(1))
    assert np.all(other.std != first.std)
