"""The search for a mode, and the curvature there."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families.couplings import Couplings, couplings
from dlrd.families.curvature import DenseCurvature, LowRankCurvature
from dlrd.families.pattern import Pattern
from dlrd.families.sparse_curvature import SparseCurvature, sparse_curvature
from dlrd.fitting.automatic.start.lbfgs import driven
from dlrd.fitting.automatic.start.mode import Mode, dense_curvature, find_mode, mean_curvature, search
from dlrd.fitting.automatic.start.objective import Objective
from dlrd.models import FunctionModel


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def as_objective(log_density: Callable[[jax.Array], jax.Array]) -> Objective:
    return Objective(FunctionModel(log_density, ()), jnp.dtype("float64"))


def normal(covariance: np.ndarray, mean: np.ndarray) -> Objective:
    precision = np.linalg.inv(covariance)
    return as_objective(lambda z: -0.5 * (z - mean) @ precision @ (z - mean))


def found_mode(objective: Objective, dim: int, is_whole: bool = True) -> Mode:
    mode = find_mode(objective, np.zeros(dim), is_whole)
    assert mode is not None
    return mode


def random_covariance(condition: float, dim: int) -> np.ndarray:
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(dim, dim)))[0]
    return axes @ np.diag(np.geomspace(1, 1 / condition, dim)) @ axes.T


def test_curvature_of_a_normal_is_exact() -> None:
    covariance = random_covariance(100, 5)
    mode = found_mode(normal(covariance, np.arange(5.0)), 5)
    assert mode.is_found
    assert mode.log_density > -1e-2
    assert isinstance(mode.curvature, DenseCurvature)
    # Rounding alone: of a few dozen operations, amplified by at most the condition.
    rounding = 100 * np.finfo(float).eps * 100
    np.testing.assert_allclose(mode.curvature.hessian, np.linalg.inv(covariance), atol=rounding * 100)
    np.testing.assert_allclose(mode.curvature.root, np.linalg.cholesky(covariance), atol=rounding)


def test_a_search_that_is_cut_knows_the_curvature_that_its_steps_have_shown() -> None:
    """Of a normal in three dimensions: the way down shows nearly all; there is too little for a Hessian."""
    covariance, mean = random_covariance(10.0, 3), np.array([1.0, -2.0, 0.5])
    whole = normal(covariance, mean)
    assert found_mode(whole, 3).is_cut is False
    cut = normal(covariance, mean)
    cut.max_gradients = whole.num_gradients - 1
    mode = found_mode(cut, 3)
    assert mode.is_cut
    assert not mode.is_found
    assert cut.num_gradients == whole.num_gradients - 6
    np.testing.assert_allclose(mode.point, mean, atol=0.3)
    # In units in which the covariance is I: BFGS is exact along the latest step, and near along the others.
    root = np.linalg.cholesky(covariance)
    eigenvalues = np.linalg.eigvalsh(root.T @ np.asarray(mode.curvature.times(np.eye(3))) @ root)
    assert 0.2 < eigenvalues.min() <= eigenvalues.max() < 5
    cut.num_gradients, cut.max_gradients = 0, 2
    assert found_mode(cut, 3).is_cut  # hardly begun


def test_distance_is_in_units_of_the_curvature() -> None:
    covariance = random_covariance(100, 5)
    mode = found_mode(normal(covariance, np.arange(5.0)), 5)
    away = mode.point + np.linalg.cholesky(covariance) @ np.array([3.0, 0, 0, 4.0, 0])
    assert abs(mode.distance(away) - 5) < 1e-6


@pytest.mark.parametrize("kind", ["scales", "collinear"])
def test_condition_of_ten_to_the_ten(kind: str) -> None:
    covariance = np.diag(np.geomspace(1e-5, 1e5, 6)) if kind == "scales" else random_covariance(1e10, 6)
    mean = np.linalg.cholesky(covariance) @ np.ones(6)
    mode = found_mode(normal(covariance, mean), 6)
    assert mode.is_found
    assert isinstance(mode.curvature, DenseCurvature)
    laplace = dlrd.FullRankNormal(mode.point, mode.curvature.root)
    exact = dlrd.FullRankNormal(mean, np.linalg.cholesky(covariance))
    # A search may end 1e-2 nats from the mode; the inverse of the covariance is itself known to 1e-6.
    assert dlrd.kl(laplace, exact) < 1e-2 + 1e-3


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize(
    "log_density",
    [
        lambda z: -0.5 * z[0] ** 2 + 0.5 * z[1] ** 2,
        lambda z: z[0] - 0.5 * z[1] ** 2,
        lambda z: jnp.exp(z[0]) - 0.5 * z[1] ** 2,
        lambda z: -0.5 * z[0] ** 2,
    ],
    ids=["saddle", "slope", "explosion", "flat"],
)
def test_no_mode_is_said_to_be_none(log_density: Callable[[jax.Array], jax.Array], is_whole: bool) -> None:
    mode = find_mode(as_objective(log_density), np.array([1.0, 0.5]), is_whole)
    assert mode is not None
    assert not mode.is_found
    assert np.isfinite(mode.curvature.diagonal).all()


@pytest.mark.parametrize("is_whole", [True, False])
def test_start_without_a_finite_value_is_no_mode(is_whole: bool) -> None:
    mode = found_mode(as_objective(lambda z: jnp.where(z[0] > 1, -jnp.sum(z**2), -jnp.inf)), 2, is_whole)
    assert not mode.is_found
    assert mode.log_density == -np.inf
    assert np.isfinite(mode.curvature.diagonal).all()


@pytest.mark.parametrize("is_whole", [True, False])
def test_wall_leaves_the_curvature_finite(is_whole: bool) -> None:
    mode = found_mode(as_objective(lambda z: jnp.where(z[0] < 1, z[0] - z[1] ** 2, -jnp.inf)), 2, is_whole)
    assert abs(mode.point[0] - 1) < 1e-3
    assert np.isfinite(mode.curvature.diagonal).all()


def test_known_mode_ends_the_search() -> None:
    objective = normal(np.eye(3), np.zeros(3))
    way = search(objective, np.full(3, 9.0), True, is_known=lambda at: bool(at @ at < 1))
    assert driven(way, objective) is None


def test_low_rank_finds_the_strongest_directions() -> None:
    """Of a precision that is diagonal but for two directions, in 500 dimensions, from few gradients."""
    rng = np.random.default_rng(1)
    dim = 500
    scales = np.geomspace(0.1, 10, dim)
    axes = np.linalg.qr(rng.normal(size=(dim, 2)))[0]
    scaled = np.eye(dim) + axes @ np.diag([50.0, 200.0]) @ axes.T
    precision = scaled / np.outer(scales, scales)
    mean = scales * rng.normal(size=dim)
    objective = as_objective(lambda z: -0.5 * (z - mean) @ precision @ (z - mean))
    mode = found_mode(objective, dim, is_whole=False)
    assert mode.is_found
    assert objective.num_gradients < dim  # a dense Hessian takes two a dimension
    assert isinstance(mode.curvature, LowRankCurvature)
    # The scales are measured with few probes; the strongest directions are those beside these scales.
    own = mode.curvature.scale
    eigenvalues, vectors = np.linalg.eigh(precision * np.outer(own, own))
    for strongest in (-1, -2):
        vector = vectors[:, strongest]
        assert np.sum((mode.curvature.directions.T @ vector) ** 2) > 0.99
        stretched = np.asarray(mode.curvature.times((own * vector)[None]))[0] @ (own * vector)
        assert abs(stretched / eigenvalues[strongest] - 1) < 0.05


def test_zero_curvature_divides_nothing_by_zero() -> None:
    for hessian in (np.zeros((2, 2)), np.diag([1.0, 0.0]), np.full((2, 2), np.nan)):
        curvature, is_positive = dense_curvature(np.eye(2), hessian)
        assert not is_positive
        assert np.isfinite(curvature.hessian).all()
        assert np.isfinite(curvature.root).all()
        np.testing.assert_allclose(
            curvature.root @ curvature.root.T @ curvature.hessian, np.eye(2), atol=1e-9
        )


def test_negative_curvature_counts_by_its_size() -> None:
    curvature, is_positive = dense_curvature(np.eye(2), np.diag([4.0, -9.0]))
    assert not is_positive
    np.testing.assert_allclose(curvature.hessian, np.diag([4.0, 9.0]))
    np.testing.assert_allclose(curvature.root, np.diag([1 / 2, 1 / 3]))


def test_curvature_in_other_coordinates_is_the_same() -> None:
    precision = np.linalg.inv(random_covariance(10, 4))
    root = np.linalg.cholesky(random_covariance(30, 4))
    curvature, is_positive = dense_curvature(root, root.T @ precision @ root)
    assert is_positive
    np.testing.assert_allclose(curvature.hessian, precision)
    np.testing.assert_allclose(curvature.root @ curvature.root.T @ precision, np.eye(4), atol=1e-12)


@pytest.mark.parametrize("trust", [0.5, 1.0])
def test_mean_curvature_is_the_weighted_mean(trust: float) -> None:
    """−log p = Σ z⁴/4 has the Hessian diag(3 z²)."""
    objective = as_objective(lambda z: -jnp.sum(z**4) / 4)
    points = np.array([[1.0, 2.0], [-2.0, 1.0], [3.0, 0.5]])
    known = DenseCurvature(np.diag([4.0, 16.0]), np.diag([0.5, 0.25]))
    curvature = mean_curvature(objective, points, known, trust)
    expected = (1 - trust) * known.hessian + trust * np.diag(3 * np.mean(points**2, axis=0))
    rounding = 100 * np.finfo(float).eps
    np.testing.assert_allclose(curvature.hessian, expected, rtol=rounding, atol=rounding)
    np.testing.assert_allclose(
        curvature.root, np.diag(np.diagonal(expected) ** -0.5), rtol=rounding, atol=rounding
    )
    assert objective.num_gradients == 2 * 2 * 3


@pytest.mark.parametrize("outside", [-jnp.inf, 0.0])
def test_mean_curvature_that_is_no_good_changes_nothing(outside: float) -> None:
    objective = as_objective(lambda z: jnp.where(z[0] > 0, -jnp.sum(z**2), outside * z[1] + jnp.sum(z**2)))
    known = DenseCurvature(np.eye(2), np.eye(2))
    assert mean_curvature(objective, np.array([[-1.0, 1.0]]), known, 1.0) is known


def chain() -> Couplings:
    found = couplings(Pattern(6, np.arange(1, 6), np.arange(5)))
    assert found is not None
    return found


def chained(z: jax.Array) -> jax.Array:
    """A Hessian that is tridiagonal, and another one everywhere."""
    return -0.5 * jnp.sum(z**2) - 0.5 * jnp.sum(z[1:] ** 2 * z[:-1] ** 2)


@pytest.mark.parametrize("trust", [0.5, 1.0])
def test_mean_curvature_of_a_pattern_is_the_weighted_mean(trust: float) -> None:
    """From the products of three colours, where the whole Hessian would take those of six columns."""
    objective, points = as_objective(chained), np.random.default_rng(0).normal(size=(4, 6))
    hessians = [jax.hessian(lambda z: -chained(z))(jnp.asarray(point)) for point in points]
    measured = np.mean(hessians, axis=0)
    assert np.linalg.eigvalsh(measured).min() > 0
    known = sparse_curvature(chain(), 3 * chain().seeds(float))
    assert isinstance(known, SparseCurvature)
    curvature = mean_curvature(objective, points, known, trust)
    expected = (1 - trust) * 3 * np.eye(6) + trust * measured
    rounding = 100 * np.finfo(float).eps * np.linalg.cond(expected) * np.abs(expected).max()
    np.testing.assert_allclose(curvature.times(np.eye(6)), expected, atol=rounding)
    np.testing.assert_allclose(curvature.diagonal, expected.diagonal(), atol=rounding)
    assert objective.num_gradients == 2 * 3 * 4


def test_mean_curvature_of_a_pattern_that_is_not_positive_changes_nothing() -> None:
    objective = as_objective(lambda z: jnp.sum(z**2))
    known = SparseCurvature.unit(chain())
    assert mean_curvature(objective, np.ones((2, 6)), known, 1.0) is known
