"""Where a fit may start: all modes, the best first, and footholds, as families of the right kind."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families import member_of, started
from dlrd.families.coupled import Coupled
from dlrd.families.curvature import DenseCurvature, LowRankCurvature
from dlrd.families.curved import Curved
from dlrd.families.densely_coupled import DenselyCoupled
from dlrd.fitting.automatic.start.candidates import Start, as_given, find_footholds, find_modes
from dlrd.fitting.automatic.start.foothold import TOLERANCE
from dlrd.fitting.automatic.start.objective import Objective
from dlrd.models import FunctionModel, LogDensity

KEY = jax.random.key(0)
LOW, HIGH = -3.0, 5.0


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def two_modes(weight_high: float, scale_high: float = 0.5) -> Objective:
    """Normals in two dimensions, around LOW with standard deviation ½ and around HIGH."""

    def log_density(z: jax.Array) -> jax.Array:
        def part(weight: float, center: float, scale: float) -> jax.Array:
            return jnp.log(weight) - 0.5 * jnp.sum(((z - center) / scale) ** 2) - 2 * jnp.log(scale)

        return jnp.logaddexp(part(1 - weight_high, LOW, 0.5), part(weight_high, HIGH, scale_high))

    return objective_of(log_density, 2)


def objective_of(log_density: LogDensity, dim: int) -> Objective:
    return Objective(FunctionModel(log_density, (dim,)), jnp.dtype("float64"))


def normal(covariance: np.ndarray, mean: np.ndarray) -> Objective:
    precision = np.linalg.inv(covariance)
    return objective_of(lambda z: -0.5 * (z - mean) @ precision @ (z - mean), len(mean))


def means(starts: list[Start]) -> list[float]:
    return [round(float(start.family.mean[0]), 2) for start in starts]


@pytest.mark.parametrize("weight_high", [0.2, 0.8])
def test_both_modes_are_found_and_the_heavier_is_first(weight_high: float) -> None:
    starts = find_modes(two_modes(weight_high), dlrd.FullRankNormal.standard(2), KEY, 8)
    assert all(start.is_mode for start in starts)
    assert means(starts) == ([HIGH, LOW] if weight_high > 0.5 else [LOW, HIGH])
    assert [start.name for start in starts] == ["mode 1", "mode 2"]


def test_mass_counts_and_not_height() -> None:
    """The wide mode is four times lower than the narrow one and has more mass."""
    starts = find_modes(two_modes(0.7, scale_high=1.5), dlrd.FullRankNormal.standard(2), KEY, 8)
    assert means(starts) == [HIGH, LOW]


def test_searches_that_go_on_together_find_the_same() -> None:
    """With as many calls as the longest of them takes, not as all."""
    alone, together = two_modes(0.8), two_modes(0.8)
    alone.num_together = 1
    sizes, answers_fn = [], together.answers
    together.answers = lambda points: sizes.append(len(points)) or answers_fn(points)
    family = dlrd.FullRankNormal.standard(2)
    assert means(find_modes(together, family, KEY, 8)) == means(find_modes(alone, family, KEY, 8))
    assert max(sizes) == 7
    assert len(sizes) < 0.5 * sum(sizes)


def test_one_mode_gives_one_start() -> None:
    objective = normal(np.eye(2), np.ones(2))
    starts = find_modes(objective, dlrd.FullRankNormal.standard(2), KEY, num_starts=8)
    assert starts[0].is_mode
    assert means(starts) == [1.0]


def test_one_point_finds_one_mode() -> None:
    objective = two_modes(0.8)
    starts = find_modes(objective, dlrd.FullRankNormal.standard(2), KEY, num_starts=1)
    assert starts[0].is_mode
    assert means(starts) == [LOW]  # the nearest
    few = objective.num_gradients
    find_modes(objective, dlrd.FullRankNormal.standard(2), KEY, num_starts=8)
    assert objective.num_gradients - few > few


def test_no_other_mode_is_looked_for_once_the_budget_is_spent() -> None:
    objective = two_modes(0.8)
    starts = find_modes(objective, dlrd.FullRankNormal.standard(2), KEY, num_starts=8, max_gradients=1)
    assert means(starts) == [LOW]


def funnel(z: jax.Array) -> jax.Array:
    """Its density grows without bound in its neck."""
    return -0.5 * jnp.sum(z[1:] ** 2) * jnp.exp(-z[0]) - 2 * z[0]


def ramp(z: jax.Array) -> jax.Array:
    """Goes down from 0 for ever; a normal is to its right."""
    return jnp.logaddexp(-z[0], 10 - 0.5 * (z[0] - 6) ** 2) - 0.5 * jnp.sum(z[1:] ** 2)


@pytest.mark.parametrize("log_density", [funnel, ramp])
def test_no_modes_where_the_first_way_down_finds_none(log_density: LogDensity) -> None:
    objective = objective_of(log_density, 5)
    assert find_modes(objective, dlrd.MeanFieldNormal.standard(5), KEY, num_starts=8) == []
    spent = objective.num_gradients
    find_modes(objective, dlrd.MeanFieldNormal.standard(5), KEY, num_starts=1)
    assert objective.num_gradients == 2 * spent  # none but the first was gone


def test_given_mean_field_has_its_own_precision_for_a_curvature() -> None:
    for dim, kind in ((3, DenseCurvature), (300, LowRankCurvature)):
        family = dlrd.MeanFieldNormal(np.zeros(dim), np.linspace(-1, 1, dim))
        curved = family.as_start()
        assert isinstance(curved, Curved)
        assert isinstance(curved.curvature, kind)
        np.testing.assert_allclose(curved.curvature.diagonal, np.exp(-2 * np.linspace(-1, 1, dim)))


COVARIANCE = np.array([[1.0, 0.8, 0.0], [0.8, 2.0, -0.5], [0.0, -0.5, 0.3]])
MEAN = np.array([1.0, -2.0, 0.5])


def test_full_rank_start_is_the_normal() -> None:
    starts = find_modes(normal(COVARIANCE, MEAN), dlrd.FullRankNormal.standard(3), KEY, 2)
    found = member_of(starts[0].family)
    exact = dlrd.FullRankNormal(MEAN, np.linalg.cholesky(COVARIANCE))
    assert dlrd.kl(found, exact) < 1e-2  # as far from the mode as a search may end
    np.testing.assert_allclose(found.covariance, COVARIANCE, atol=1e-6)


def test_mean_field_start_is_the_best_one() -> None:
    """Its scales are those that maximise the ELBO, and it knows the whole curvature."""
    starts = find_modes(normal(COVARIANCE, MEAN), dlrd.MeanFieldNormal.standard(3), KEY, 2)
    curved = starts[0].family
    assert isinstance(curved, Curved)
    precision = np.linalg.inv(COVARIANCE)
    np.testing.assert_allclose(curved.member.std, np.diagonal(precision) ** -0.5, rtol=1e-6)
    np.testing.assert_allclose(curved.curvature.times(np.eye(3)), precision, atol=1e-5)
    away = curved.member.loc - MEAN
    assert 0.5 * away @ precision @ away < 1e-2


def test_low_rank_start_is_the_posterior_where_that_is_of_low_rank() -> None:
    """As one with precision D½ (I − a v vᵀ) D½, v with entries ±1/√d."""
    dim, share = 20, 0.9
    scales = np.geomspace(0.1, 10, dim)
    direction = np.resize([1.0, -1.0, -1.0], dim) / np.sqrt(dim)
    precision = (np.eye(dim) - share * np.outer(direction, direction)) / np.outer(scales, scales)
    objective = normal(np.linalg.inv(precision), np.zeros(dim))
    starts = find_modes(objective, dlrd.LowRankNormal.standard(dim, 1), KEY, 1)
    exact = dlrd.FullRankNormal(np.zeros(dim), np.linalg.cholesky(np.linalg.inv(precision)))
    found = float(dlrd.kl(member_of(starts[0].family), exact))
    assert found < 1e-2  # as far from the mode as a search may end
    assert found < 0.1 * float(dlrd.kl(dlrd.MeanFieldNormal(np.zeros(dim), np.log(scales)), exact))


def test_precision_of_the_family_is_kept() -> None:
    for family in (
        dlrd.MeanFieldNormal(jnp.zeros(3, "float32"), jnp.zeros(3, "float32")),
        dlrd.FullRankNormal(jnp.zeros(3, "float32"), jnp.eye(3, dtype="float32")),
        dlrd.LowRankNormal(*(jnp.zeros(3, "float32"),) * 2, 0.1 * jnp.eye(3, 2, dtype="float32")),
    ):
        starts = find_modes(normal(COVARIANCE, MEAN), family, KEY, 1)
        for start in (starts[0], as_given(started(family))):
            assert {leaf.dtype for leaf in jax.tree.leaves(start.family)} == {np.dtype("float32")}


def foothold_of(objective: Objective, family: Any, std: float = 1.0) -> list[Start]:
    return find_footholds(objective, family, np.full(len(family.mean), std), KEY)


def test_footholds_of_a_full_rank_normal_are_the_normal_and_one_of_independent_coordinates() -> None:
    """The mean is told by mirror images of draws; of a normal, the curvature is the same everywhere."""
    starts = foothold_of(normal(COVARIANCE, MEAN), dlrd.FullRankNormal.standard(3))
    assert [start.name for start in starts] == ["a foothold", "a foothold of independent coordinates"]
    assert not any(start.is_mode for start in starts)
    whole, apart = (member_of(start.family) for start in starts)
    np.testing.assert_allclose(whole.covariance, COVARIANCE, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(apart.covariance, np.diag(np.diagonal(apart.covariance)))
    np.testing.assert_array_equal(whole.mean, apart.mean)
    away = whole.mean - MEAN
    assert 0.5 * away @ np.linalg.inv(COVARIANCE) @ away < TOLERANCE


def test_both_footholds_of_a_low_rank_normal_have_the_whole_curvature() -> None:
    for start in foothold_of(normal(COVARIANCE, MEAN), dlrd.LowRankNormal.standard(3, 1)):
        np.testing.assert_allclose(
            start.family.curvature.times(np.eye(3)), np.linalg.inv(COVARIANCE), rtol=1e-9, atol=1e-9
        )


def test_foothold_of_a_mean_field_normal_has_the_whole_curvature() -> None:
    (start,) = foothold_of(normal(COVARIANCE, MEAN), dlrd.MeanFieldNormal.standard(3))
    assert isinstance(start.family, Curved)
    np.testing.assert_allclose(start.family.curvature.hessian, np.linalg.inv(COVARIANCE), rtol=1e-12)


def chained(z: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(z**2) - 0.5 * jnp.sum(jnp.diff(z) ** 2)


@pytest.mark.parametrize(
    ("kind", "dim", "form"),
    [
        (dlrd.SparseNormal, 6, DenselyCoupled),
        (dlrd.SparseNormal, 12, Coupled),
        (dlrd.FullRankNormal, 12, Coupled),
    ],
)
def test_foothold_with_a_pattern_is_the_only_one(kind: Any, dim: int, form: type) -> None:
    """Hessians serve where four times the three colours of a chain are no more than dimensions."""
    (start,) = foothold_of(objective_of(chained, dim), kind.standard(dim))
    assert isinstance(start.family, form)
    assert isinstance(start.family.member, kind)
    pattern = start.family.couplings.pattern
    assert sorted(zip(pattern.rows, pattern.columns, strict=True)) == [(i + 1, i) for i in range(dim - 1)]
    hessian = -jax.jit(jax.hessian(chained))(jnp.zeros(dim))
    precision = np.linalg.inv(start.family.member.covariance)
    np.testing.assert_allclose(precision, hessian, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("center", [LOW, HIGH])
def test_foothold_is_looked_for_from_the_family_as_given(center: float) -> None:
    """Two modes that are 16 standard deviations apart: the near one."""
    family = dlrd.MeanFieldNormal([center + 0.5, center - 0.5], [0.0, 0.0])
    (start,) = foothold_of(two_modes(0.5), family, std=0.5)
    assert 0.5 * np.sum(((start.family.mean - center) / 0.5) ** 2) < TOLERANCE


def test_no_foothold_where_the_density_is_nowhere_finite() -> None:
    objective = objective_of(lambda z: -jnp.inf + 0 * jnp.sum(z), 2)
    assert foothold_of(objective, dlrd.MeanFieldNormal.standard(2)) == []
