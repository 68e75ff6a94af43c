"""The model as the search for a start sees it: values, slopes and Hessians of −log p, each one counted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.fitting.automatic.start import objective as objective_module
from dlrd.fitting.automatic.start.objective import Objective, SpentError, host_noise
from dlrd.models import FunctionModel

pytestmark = pytest.mark.usefixtures("x64")

HESSIAN = np.array([[2.0, 0.5], [0.5, 3.0]])
POINTS = np.array([[1.0, -2.0], [0.5, 0.0], [4.0, 3.0]])
DIRECTIONS = np.array([[1.0, 0.0], [1.0, -1.0], [0.5, 3.0]])


def quadratic(z: jax.Array) -> jax.Array:
    return -0.5 * z @ jnp.asarray(HESSIAN, z.dtype) @ z


def cubic(z: jax.Array) -> jax.Array:
    return -jnp.sum(z**3)


def walled(z: jax.Array) -> jax.Array:
    return jnp.where(z[0] > 0, -jnp.sum(z**2), -jnp.inf)


def rooted(z: jax.Array) -> jax.Array:
    return -jnp.sqrt(jnp.abs(z[0]))


def as_objective(log_density, dtype: str = "float64") -> Objective:
    return Objective(FunctionModel(log_density, (2,)), jnp.dtype(dtype))


def test_nothing_beyond_the_budget_is_evaluated():
    objective = Objective(FunctionModel(quadratic, (2,)), jnp.dtype("float64"), max_gradients=7)
    objective(POINTS[0])
    for beyond in (
        lambda: objective.products(POINTS[:2], DIRECTIONS),
        lambda: objective.batch(np.zeros((7, 2))),
    ):
        with pytest.raises(SpentError):
            beyond()
    assert objective.num_gradients == 1
    objective.products(POINTS[:1], DIRECTIONS)
    assert objective.num_gradients == 7
    with pytest.raises(SpentError):
        objective(POINTS[0])


def test_nothing_after_the_deadline_is_evaluated():
    objective = Objective(FunctionModel(quadratic, (2,)), jnp.dtype("float64"), deadline=0.0)
    with pytest.raises(SpentError):
        objective(POINTS[0])


def test_value_and_slope_are_those_of_minus_the_log_density():
    value, slope = as_objective(quadratic)(POINTS[0])
    assert isinstance(value, float)
    np.testing.assert_allclose(value, 0.5 * POINTS[0] @ HESSIAN @ POINTS[0])
    np.testing.assert_allclose(slope, HESSIAN @ POINTS[0])
    assert slope.dtype == np.float64


def test_model_is_evaluated_in_its_own_precision():
    """A shift of 1e-10 is lost in single precision; what comes back is double all the same."""
    shifted = POINTS[0] * (1 + 1e-10)
    single = as_objective(quadratic, "float32")
    assert single(shifted)[0] == single(POINTS[0])[0]
    assert as_objective(quadratic)(shifted)[0] != as_objective(quadratic)(POINTS[0])[0]
    assert single(shifted)[1].dtype == np.float64


@pytest.mark.parametrize("log_density", [walled, rooted], ids=["value", "slope"])
def test_infinite_where_either_is_not_finite(log_density):
    """Behind a wall, and at a root's infinite slope."""
    assert as_objective(log_density)(np.zeros(2))[0] == np.inf


def test_values_and_slopes_at_many_points():
    values, slopes = as_objective(quadratic).batch(POINTS)
    np.testing.assert_allclose(values, 0.5 * np.einsum("pi,ij,pj->p", POINTS, HESSIAN, POINTS))
    np.testing.assert_allclose(slopes, POINTS @ HESSIAN)
    assert (values.dtype, slopes.dtype) == (np.float64, np.float64)


@pytest.mark.parametrize("is_shared", [True, False])
def test_any_number_of_answers_is_one_program(monkeypatch: pytest.MonkeyPatch, is_shared: bool):
    """Of a simulator, to which the same point twice is one run; others have one for a point alone, too."""
    objective = as_objective(quadratic)
    monkeypatch.setattr(objective, "num_together", 4)
    monkeypatch.setattr(objective, "_is_shared", is_shared)
    asked = []
    evaluate = objective._at
    monkeypatch.setattr(objective, "_at", lambda points: (asked.append(points), evaluate(points))[1])
    for num in (1, 3):
        answers = objective.answers(list(POINTS[:num]))
        assert [value for value, _ in answers] == [
            as_objective(quadratic)(point)[0] for point in POINTS[:num]
        ]
    assert [points.shape for points in asked] == [(4 if is_shared else 1, 2), (4, 2)]
    np.testing.assert_array_equal(asked[1], [*POINTS[:3], POINTS[0]])
    assert objective.num_gradients == 1 + 3


def test_values_of_a_batch_are_as_they_are():
    """One point behind the wall leaves the others alone, and stays what it is."""
    values, slopes = as_objective(walled).batch(np.array([[1.0, 2.0], [-1.0, 2.0]]))
    np.testing.assert_array_equal(values, [5.0, np.inf])
    np.testing.assert_array_equal(slopes, [[2.0, 4.0], [0.0, 0.0]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_are_the_hessian_at_each_point_times_each_direction(dtype: str):
    found = as_objective(cubic, dtype).products(POINTS, DIRECTIONS)
    # Three multiplications; the numbers themselves are exact in both precisions.
    np.testing.assert_allclose(found, POINTS[:, None] * 6 * DIRECTIONS, rtol=4 * float(jnp.finfo(dtype).eps))
    assert found.dtype == np.float64


def test_products_in_blocks_are_the_same(monkeypatch: pytest.MonkeyPatch):
    """At a point of two coordinates, 8 numbers are two directions and their two gradients each."""
    expected = as_objective(cubic).products(POINTS, DIRECTIONS)
    monkeypatch.setattr(objective_module, "MAX_NUMBERS", 8)
    objective, sizes = as_objective(cubic), []
    whole = objective_module._products
    monkeypatch.setattr(
        objective_module,
        "_products",
        lambda model, at, block: sizes.append(len(block)) or whole(model, at, block),
    )
    np.testing.assert_array_equal(objective.products(POINTS, DIRECTIONS), expected)
    assert sizes == [2, 1] * len(POINTS)


def test_every_gradient_is_counted():
    objective = as_objective(quadratic)
    objective(POINTS[0])
    assert objective.num_gradients == 1
    objective.batch(POINTS)
    assert objective.num_gradients == 1 + 3
    objective.products(POINTS[:2], DIRECTIONS)
    assert objective.num_gradients == 1 + 3 + 2 * 2 * 3


def test_noise_of_the_host_depends_on_the_key_alone():
    first, again = (host_noise(jax.random.key(1), (500, 2)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert np.all(first != host_noise(jax.random.key(2), (500, 2)))
    # Five standard errors of 1000 standard normals.
    assert abs(first.mean()) < 5 / np.sqrt(1000)
    assert abs(first.std() - 1) < 5 / np.sqrt(2000)
