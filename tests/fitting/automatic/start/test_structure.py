"""The survey: the whole curvature or a sparse one, by what the family needs and what the model has."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families.curvature import MAX_WHOLE, Curvature, DenseCurvature, LowRankCurvature
from dlrd.families.sparse_curvature import SparseCurvature
from dlrd.fitting.automatic.start.funnel import Funnel
from dlrd.fitting.automatic.start.objective import Objective
from dlrd.fitting.automatic.start.structure import MAX_DENSE, NUM_ROUGH, SHIFTS, Survey
from dlrd.models import FunctionModel, LogDensity

ROUNDING = 1e-13
"""Relative: of sums of a few numbers and of a factorisation with a condition of a few hundred."""


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def objective_of(log_density: LogDensity, dim: int) -> Objective:
    return Objective(FunctionModel(log_density, (dim,)), jnp.dtype("float64"))


def survey_of(objective: Objective, kind: Any, dim: int) -> Survey:
    return Survey(objective, kind.standard(dim))


def points_in(dim: int, num: int = 4) -> np.ndarray:
    half = np.random.default_rng(0).normal(size=(num // 2, dim))
    return np.stack([half, -half], axis=1).reshape(num, dim)


def chained(z: jax.Array) -> jax.Array:
    """Its Hessian is another one everywhere, and tridiagonal."""
    return -jnp.sum(jnp.cosh(z)) - 0.5 * jnp.sum(jnp.diff(z) ** 2)


def tied(z: jax.Array) -> jax.Array:
    """Every coordinate with every other."""
    return -jnp.sum(jnp.cosh(z)) - 0.5 * jnp.sum(z) ** 2 / len(z)


def mean_hessian(log_density: LogDensity, points: np.ndarray) -> np.ndarray:
    hessian_fn = jax.jit(jax.hessian(lambda z: -log_density(z)))
    return np.mean([hessian_fn(jnp.asarray(point)) for point in points], axis=0)


def check(curvature: Curvature, expected: np.ndarray) -> None:
    atol = ROUNDING * np.abs(expected).max()
    np.testing.assert_allclose(curvature.times(np.eye(len(expected))), expected, rtol=ROUNDING, atol=atol)
    np.testing.assert_allclose(curvature.diagonal, expected.diagonal(), rtol=ROUNDING)


def entries(curvature: Curvature) -> set[tuple[int, int]]:
    return set(zip(curvature.couplings.rows.tolist(), curvature.couplings.columns.tolist(), strict=True))


def chain_of(dim: int) -> set[tuple[int, int]]:
    return {(i + 1, i) for i in range(dim - 1)}


@pytest.mark.parametrize("log_density", [tied, chained])
@pytest.mark.parametrize("kind", [dlrd.MeanFieldNormal, dlrd.FullRankNormal])
def test_dense_in_few_dimensions(kind: Any, log_density: LogDensity) -> None:
    """Also of a chain, where it is short: its three colours would hardly spare anything."""
    objective, points = objective_of(log_density, 6), points_in(6)
    survey = survey_of(objective, kind, 6)
    rough = survey.on_the_way(points, np.ones(6))
    assert isinstance(rough, DenseCurvature)
    check(rough, mean_hessian(log_density, points[:NUM_ROUGH]))
    assert objective.num_gradients == 2 * NUM_ROUGH * 6
    fine, _ = survey.at_the_end(points, np.ones(6))
    assert isinstance(fine, DenseCurvature)
    check(fine, mean_hessian(log_density, points))
    assert objective.num_gradients == 2 * (NUM_ROUGH + len(points)) * 6  # the pattern costs no more


def test_sparse_where_the_family_asks_for_it() -> None:
    """However short the chain is; three colours for each of the points, beside the whole at two of them."""
    objective, points = objective_of(chained, 6), points_in(6)
    curvature, _ = survey_of(objective, dlrd.SparseNormal, 6).at_the_end(points, np.ones(6))
    assert isinstance(curvature, SparseCurvature)
    assert entries(curvature) == chain_of(6)
    check(curvature, mean_hessian(chained, points))
    assert objective.num_gradients == 2 * NUM_ROUGH * 6 + 2 * len(points) * 3


def test_sparse_for_a_full_rank_normal_where_that_spares_much() -> None:
    """Four times the three colours of a chain are twelve dimensions; of a few, all become a dense block."""
    for dim, kind in ((11, DenseCurvature), (12, SparseCurvature)):
        points = points_in(dim)
        curvature, _ = survey_of(objective_of(chained, dim), dlrd.FullRankNormal, dim).at_the_end(
            points, np.ones(dim)
        )
        assert isinstance(curvature, kind)
        check(curvature, mean_hessian(chained, points))


def test_mean_field_normal_needs_no_pattern_in_few_dimensions() -> None:
    dim = 12
    curvature, _ = survey_of(objective_of(chained, dim), dlrd.MeanFieldNormal, dim).at_the_end(
        points_in(dim), np.ones(dim)
    )
    assert isinstance(curvature, DenseCurvature)


@pytest.mark.parametrize("kind", [dlrd.MeanFieldNormal, dlrd.LowRankNormal])
def test_sparse_in_many_dimensions(kind: Any) -> None:
    """Where it costs far less than the whole, already on the way."""
    dim = MAX_WHOLE + 1
    objective, points = objective_of(chained, dim), points_in(dim)
    survey = survey_of(objective, kind, dim)
    rough = survey.on_the_way(points, np.ones(dim))
    assert isinstance(rough, SparseCurvature)
    check(rough, mean_hessian(chained, points[:NUM_ROUGH]))
    spent = objective.num_gradients
    survey.on_the_way(points, np.ones(dim))
    assert objective.num_gradients == spent + 2 * NUM_ROUGH * 3  # the pattern is known by now
    hessian = mean_hessian(chained, points)
    fine, _ = survey.at_the_end(points, hessian.diagonal() ** -0.5)
    assert entries(fine) == chain_of(dim)
    check(fine, hessian)


def test_whole_at_the_end_in_many_dimensions_without_a_pattern() -> None:
    """Once, at as many points as are enough for it; on the way the coordinates count as independent."""
    dim = MAX_WHOLE + 1
    objective, points = objective_of(tied, dim), points_in(dim)
    survey = survey_of(objective, dlrd.MeanFieldNormal, dim)
    hessian = mean_hessian(tied, points[:NUM_ROUGH])
    std = hessian.diagonal() ** -0.5
    rough = survey.on_the_way(points, std)
    assert isinstance(rough, LowRankCurvature)
    np.testing.assert_allclose(rough.diagonal, std**-2)
    fine, _ = survey.at_the_end(points, std)
    assert isinstance(fine, DenseCurvature)
    check(fine, hessian)


def test_independent_in_very_many_dimensions_without_a_pattern() -> None:
    dim = MAX_DENSE + 1
    objective, std = objective_of(tied, dim), np.linspace(1, 2, dim)
    curvature, funnel = survey_of(objective, dlrd.MeanFieldNormal, dim).at_the_end(points_in(dim), std)
    assert isinstance(curvature, LowRankCurvature)
    assert not curvature.is_whole
    np.testing.assert_allclose(curvature.times(np.ones((1, dim)))[0], std**-2)
    assert funnel is None
    assert objective.num_gradients < 2 * NUM_ROUGH * MAX_DENSE  # less than the whole would have cost


def test_couplings_that_vanish_on_the_way_are_found_at_the_end() -> None:
    """Of the first two coordinates where these are negative there are none."""
    dim = MAX_WHOLE + 1

    def log_density(z: jax.Array) -> jax.Array:
        return -jnp.sum(z**2) - jnp.where(z[0] > 0, z[0] * z[1], 0.0) - 0.5 * (z[2] - z[3]) ** 2

    far, near = points_in(dim), points_in(dim)
    far[:, 0], near[:, 0] = -1.0, 1.0
    survey = survey_of(objective_of(log_density, dim), dlrd.SparseNormal, dim)
    assert entries(survey.on_the_way(far, np.ones(dim))) == {(3, 2)}
    curvature, _ = survey.at_the_end(near, np.ones(dim))
    assert entries(curvature) == {(1, 0), (3, 2)}
    check(curvature, mean_hessian(log_density, near))


def indefinite(z: jax.Array) -> jax.Array:
    """A chain whose Hessian has eigenvalues 1.8 + 2 cos θ."""
    return -0.9 * jnp.sum(z**2) - jnp.sum(z[1:] * z[:-1])


@pytest.mark.parametrize("std", [1.0, 0.5])
def test_sparse_hessian_that_is_not_positive_definite_is_shifted(std: float) -> None:
    """By the least of the shifts that helps, in units of the family's own precision."""
    dim = 30
    hessian = mean_hessian(indefinite, np.zeros((1, dim)))
    lowest = np.linalg.eigvalsh(hessian)[0]
    assert -0.2 < lowest < -0.1
    needed = next(shift for shift in SHIFTS if shift / std**2 > -lowest)
    assert needed == (0.3 if std == 1 else 0.1)
    survey = survey_of(objective_of(indefinite, dim), dlrd.SparseNormal, dim)
    curvature, _ = survey.at_the_end(points_in(dim), np.full(dim, std))
    shifted = hessian + needed / std**2 * np.eye(dim)
    rounding = 100 * np.finfo(float).eps * np.linalg.cond(shifted)
    np.testing.assert_allclose(curvature.times(np.eye(dim)), shifted, atol=rounding)


def test_sparse_hessian_that_cannot_be_right_has_the_scales_of_the_family() -> None:
    """Along each coordinate ¼; with the coupling of 1, that is positive definite from a shift of 10 on."""
    survey = survey_of(objective_of(lambda z: 200 * jnp.sum(z**2) - z[0] * z[1], 6), dlrd.SparseNormal, 6)
    curvature, _ = survey.at_the_end(points_in(6), np.full(6, 2.0))
    expected = (1 + 10) / 4 * np.eye(6)
    expected[0, 1] = expected[1, 0] = 1.0
    np.testing.assert_allclose(curvature.times(np.eye(6)), expected, atol=1e-12)


def test_dense_hessian_that_is_not_positive_definite_counts_by_its_size() -> None:
    """On the way; at the end, where it cannot be right, the scales of the family count."""
    objective = objective_of(lambda z: 2 * z[0] ** 2 - 4.5 * z[1] ** 2, 2)
    survey, std = survey_of(objective, dlrd.FullRankNormal, 2), np.array([3.0, 0.1])
    check(survey.on_the_way(points_in(2), std), np.diag([4.0, 9.0]))
    check(survey.at_the_end(points_in(2), std)[0], np.diag(std**-2))


@pytest.mark.parametrize("kind", [dlrd.MeanFieldNormal, dlrd.FullRankNormal, dlrd.SparseNormal])
def test_infinite_hessian_counts_as_that_of_independent_coordinates(kind: Any) -> None:
    """At the root's points of no return, as a density may have at its edge."""
    objective = objective_of(lambda z: -jnp.sum(jnp.abs(z) ** 1.5) - z[0] * z[1], 3)
    survey, std = survey_of(objective, kind, 3), np.array([0.5, 1.0, 2.0])
    at_zero = np.zeros((4, 3))
    for curvature in (survey.on_the_way(at_zero, std), survey.at_the_end(at_zero, std)[0]):
        np.testing.assert_allclose(curvature.times(np.eye(3)), np.diag(std**-2))


@pytest.mark.parametrize(("kind", "dim"), [(dlrd.MeanFieldNormal, 7), (dlrd.SparseNormal, 7)])
def test_funnel_is_seen_at_the_end(kind: Any, dim: int) -> None:
    """From the diagonals of the same Hessians, whole or sparse."""

    def log_density(z: jax.Array) -> jax.Array:
        return -0.5 * z[0] ** 2 - 0.5 * jnp.sum(z[1:] ** 2) * jnp.exp(-z[0])

    points = points_in(dim, 8)
    _, funnel = survey_of(objective_of(log_density, dim), kind, dim).at_the_end(points, np.ones(dim))
    assert funnel == Funnel(neck=0, others=tuple(range(1, dim)))
    _, funnel = survey_of(objective_of(chained, dim), kind, dim).at_the_end(points, np.ones(dim))
    assert funnel is None
