"""The descent to a mode: known minima, few gradients, and walls that it does not cross."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.families.curvature import DenseCurvature
from dlrd.fitting.automatic.start.lbfgs import descend, descent, driven_together
from dlrd.fitting.automatic.start.objective import Objective, SpentError
from dlrd.models import FunctionModel

TOLERANCE = 1e-8


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def as_objective(log_density: Callable[[jax.Array], jax.Array]) -> Objective:
    return Objective(FunctionModel(log_density, ()), jnp.dtype("float64"))


def quadratic(condition: float, dim: int = 10) -> tuple[Objective, np.ndarray, np.ndarray]:
    """−log p with its Hessian, whose eigenvalues span `condition`, and its minimum."""
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    hessian = axes @ np.diag(np.geomspace(1, condition, dim)) @ axes.T
    minimum = rng.normal(size=dim)
    return as_objective(lambda z: -0.5 * (z - minimum) @ hessian @ (z - minimum)), hessian, minimum


def rosenbrock(z: jax.Array) -> jax.Array:
    return -((1 - z[0]) ** 2) - 100 * (z[1] - z[0] ** 2) ** 2


def test_quadratic_in_few_gradients() -> None:
    objective, hessian, minimum = quadratic(condition=100)
    descent = descend(objective, np.zeros(10), None, TOLERANCE)
    assert descent.is_at_rest
    assert objective.num_gradients < 50  # steepest descent needs about condition · log(1/tolerance)
    left = 0.5 * (descent.point - minimum) @ hessian @ (descent.point - minimum)
    assert left < 10 * TOLERANCE  # what is left is estimated with an approximate Hessian
    np.testing.assert_allclose(descent.value, left, atol=1e-15)
    np.testing.assert_allclose(descent.slope, hessian @ (descent.point - minimum), atol=1e-12)


def test_a_steep_direction_does_not_hide_the_others() -> None:
    """The first step goes along it; its curvature alone would promise that little is left."""
    curvatures = np.append(1e6, np.ones(500))
    objective = as_objective(lambda z: -0.5 * jnp.sum(curvatures * z**2))
    descent = descend(objective, np.append(1.0, np.full(500, 0.5)), None, TOLERANCE)
    assert descent.is_at_rest
    assert descent.value < 10 * TOLERANCE


def test_rosenbrock() -> None:
    objective = as_objective(rosenbrock)
    descent = descend(objective, np.array([-1.2, 1.0]), None, TOLERANCE)
    assert descent.is_at_rest
    np.testing.assert_allclose(descent.point, [1, 1], atol=1e-3)  # the valley's curvature is 0.4
    assert objective.num_gradients < 100


def test_values_only_fall() -> None:
    objective = as_objective(rosenbrock)
    path = descend(objective, np.array([-1.2, 1.0]), None, TOLERANCE).path
    np.testing.assert_array_equal(path[0], [-1.2, 1.0])
    values = [objective(point)[0] for point in path]
    assert np.all(np.diff(values) < 0)


@pytest.mark.parametrize("value", [-np.inf, np.nan])
def test_start_without_a_finite_value(value: float) -> None:
    objective = as_objective(lambda z: jnp.where(z[0] > 0, -jnp.sum(z**2), value))
    start = np.array([-1.0, 2.0])
    descent = descend(objective, start, None, TOLERANCE)
    assert not descent.is_at_rest
    assert not np.isfinite(descent.value)
    np.testing.assert_array_equal(descent.path, [start])
    assert objective.num_gradients == 1


def test_steps_into_a_region_without_values_are_shortened() -> None:
    """The coordinates promise far too long a step, to where there is no density."""
    objective = as_objective(lambda z: jnp.where(jnp.all(z < 1.5), -0.5 * jnp.sum((z - 1) ** 2), -jnp.inf))
    too_long = DenseCurvature(np.eye(2) / 1e4, np.eye(2) * 100)
    descent = descend(objective, np.array([-3.0, -2.0]), too_long, TOLERANCE)
    assert descent.is_at_rest
    np.testing.assert_allclose(descent.point, 1, atol=1e-3)
    assert all(np.isfinite(objective(point)[0]) for point in descent.path)


def test_whitened_coordinates_are_as_fast_as_newton() -> None:
    """A first step of limited length, a second one that is Newton's, and the look that there is rest."""
    plain, hessian, minimum = quadratic(condition=1e6)
    whitening = DenseCurvature(hessian, np.linalg.cholesky(np.linalg.inv(hessian)))
    start = minimum + whitening.root @ np.full(10, 1.0)
    descend(plain, start, None, TOLERANCE)
    whitened, _, _ = quadratic(condition=1e6)
    descent = descend(whitened, start, whitening, TOLERANCE)
    assert descent.is_at_rest
    assert descent.value < TOLERANCE
    assert whitened.num_gradients <= 3 < plain.num_gradients


def test_descents_together_are_those_alone() -> None:
    loss = Objective(FunctionModel(lambda z: -jnp.sum(jnp.cosh(z)), (2,)), jnp.dtype("float64"))
    starts = [np.array([3.0, 1.0]), np.array([0.1, -0.2]), np.array([-5.0, 4.0])]
    alone = [descend(loss, start, None, 1e-8) for start in starts]
    together = driven_together([descent(loss.dtype, start, None, 1e-8) for start in starts], loss.answers)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one.point, other.point, atol=1e-6)
        assert len(one.path) == len(other.path)


def test_a_descent_ends_where_it_is_when_the_budget_does() -> None:
    loss = Objective(FunctionModel(lambda z: -jnp.sum(jnp.cosh(z)), (2,)), jnp.dtype("float64"))
    loss.max_gradients = 4
    cut = descend(loss, np.array([3.0, 1.0]), None, 1e-8)
    assert not cut.is_at_rest
    assert loss.num_gradients == 4
    values = [np.sum(np.cosh(point)) for point in cut.path]
    np.testing.assert_allclose(cut.value, min(values))
    loss.max_gradients = 0
    with pytest.raises(SpentError):
        descend(loss, np.array([3.0, 1.0]), None, 1e-8)


def test_is_known_ends_it() -> None:
    def is_known(point: np.ndarray) -> bool:
        return point[0] > -0.5

    descent = descend(as_objective(rosenbrock), np.array([-1.2, 1.0]), None, TOLERANCE, is_known=is_known)
    assert not descent.is_at_rest
    assert [is_known(point) for point in descent.path] == [False] * (len(descent.path) - 1) + [True]


def test_ends_after_max_iterations() -> None:
    descent = descend(as_objective(rosenbrock), np.array([-1.2, 1.0]), None, TOLERANCE, max_iterations=5)
    assert not descent.is_at_rest
    assert len(descent.path) == 6
