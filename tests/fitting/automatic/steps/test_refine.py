"""The curvature that a family carries, brought up to date."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families.curvature import LowRankCurvature
from dlrd.fitting.automatic.plan import Task
from dlrd.fitting.automatic.state import AutomaticState
from dlrd.fitting.automatic.steps.refine import refine, refining_cost
from dlrd.models import FunctionModel

FAMILY = dlrd.MeanFieldNormal([1.0, -1.0], np.log([0.5, 2.0]))
HESSIAN = np.array([[2.0, 0.5], [0.5, 3.0]])
NUM = 4


def quadratic(z: jax.Array) -> jax.Array:
    return -0.5 * z @ jnp.asarray(HESSIAN, z.dtype) @ z


MODEL = FunctionModel(quadratic, (2,))
VALUES_ONLY = dlrd.models.host(lambda z: -0.5 * (z**2).sum(axis=1), 2, has_gradient=False)


class OfParts(FunctionModel):
    """A model whose values are those of a random part of the data."""

    is_exact = False


@pytest.fixture
def refined(
    task: Callable[..., Task], state: Callable[..., AutomaticState]
) -> Callable[..., tuple[AutomaticState, AutomaticState]]:
    """The states before and after."""

    def make(log_density: Any = quadratic, **changed: Any) -> tuple[AutomaticState, AutomaticState]:
        made = task(log_density, FAMILY)
        before = state(made, FAMILY, **changed)
        return before, refine(made, before, NUM)

    return make


def test_cost_is_that_of_a_whole_hessian() -> None:
    assert refining_cost(MODEL, FAMILY.as_start()) == 2 * 2


@pytest.mark.parametrize(
    ("model", "family"),
    [
        (MODEL, FAMILY),
        (MODEL, dlrd.FullRankNormal.standard(2)),
        (
            MODEL,
            FAMILY.as_start().with_curvature(LowRankCurvature(np.ones(2), np.zeros((2, 0)), np.zeros(0))),
        ),
        (VALUES_ONLY, FAMILY.as_start()),
        (OfParts(quadratic, (2,)), FAMILY.as_start()),
    ],
    ids=["no curvature", "of full rank", "few directions", "no gradients", "parts of the data"],
)
def test_no_cost_where_it_is_not_refined(model: Any, family: Any) -> None:
    assert refining_cost(model, family) is None


EPS = np.finfo("float32").eps
ERROR = 4 * 10 * EPS / (10 * EPS) ** (1 / 3)
"""Of differences of slopes of size 10 in single precision, divided by the smallest scale, ½, twice."""


@pytest.mark.parametrize(("num_before", "trust"), [(1, 4 / 5), (4, 1 / 2), (100, 1 / 2)])
def test_points_weigh_as_many_as_those_before_or_half(refined: Any, num_before: int, trust: float) -> None:
    """The Hessian of a quadratic is the same at all points; that of the start was diag(1/σ²)."""
    before, after = refined(num_curvatures=num_before)
    expected = (1 - trust) * np.diag([4.0, 0.25]) + trust * HESSIAN
    np.testing.assert_allclose(after.family.curvature.hessian, expected, atol=ERROR)
    np.testing.assert_allclose(before.family.curvature.hessian, np.diag([4.0, 0.25]), rtol=1e-6)
    assert after.num_curvatures == num_before + NUM
    assert after.gradients == before.gradients | {"curvature": NUM * 2 * 2}


def test_nothing_else_changes(refined: Any) -> None:
    before, after = refined()
    np.testing.assert_array_equal(after.family.mean, before.family.mean)
    np.testing.assert_array_equal(after.family.std, before.family.std)
    assert after.steps is before.steps
    assert after.family.curvature.hessian.dtype == np.float32
    assert replace(after, rest=before.rest, num_curvatures=1, gradients=before.gradients) == before


def test_points_are_mirror_images_around_the_mean(refined: Any) -> None:
    """A density whose curvature is 1 + (z − mean) has a mean curvature of 1 there, whatever the noise."""

    def skewed(z: jax.Array) -> jax.Array:
        shift = z - jnp.asarray(FAMILY.loc, z.dtype)
        return -jnp.sum(shift**2 / 2 + shift**3 / 6)

    _, after = refined(skewed, num_curvatures=1)
    expected = np.diag(0.2 * np.array([4.0, 0.25]) + 0.8)
    # The differences of a cubic are exact but for rounding, of slopes of up to 5².
    np.testing.assert_allclose(after.family.curvature.hessian, expected, atol=2.5 * ERROR)
