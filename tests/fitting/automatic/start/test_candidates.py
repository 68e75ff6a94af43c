"""Where a fit may start: all modes, the best first, as families of the right kind."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families import started
from dlrd.families.curvature import DenseCurvature, LowRankCurvature
from dlrd.families.curved import Curved
from dlrd.fitting.automatic.start.candidates import Start, as_given, find_starts
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
    starts = find_starts(two_modes(weight_high), dlrd.FullRankNormal.standard(2), KEY, 8)
    assert all(start.is_mode for start in starts)
    assert means(starts) == ([HIGH, LOW] if weight_high > 0.5 else [LOW, HIGH])
    assert [start.name for start in starts] == ["mode 1", "mode 2"]


def test_mass_counts_and_not_height() -> None:
    """The wide mode is four times lower than the narrow one and has more mass."""
    starts = find_starts(two_modes(0.7, scale_high=1.5), dlrd.FullRankNormal.standard(2), KEY, 8)
    assert means(starts) == [HIGH, LOW]


def test_one_mode_gives_one_start() -> None:
    objective = normal(np.eye(2), np.ones(2))
    starts = find_starts(objective, dlrd.FullRankNormal.standard(2), KEY, num_starts=8)
    assert starts[0].is_mode
    assert means(starts) == [1.0]


def test_one_point_finds_one_mode() -> None:
    objective = two_modes(0.8)
    starts = find_starts(objective, dlrd.FullRankNormal.standard(2), KEY, num_starts=1)
    assert starts[0].is_mode
    assert means(starts) == [LOW]  # the nearest
    few = objective.num_gradients
    find_starts(objective, dlrd.FullRankNormal.standard(2), KEY, num_starts=8)
    assert objective.num_gradients - few > few


def test_no_other_mode_is_looked_for_once_the_budget_is_spent() -> None:
    objective = two_modes(0.8)
    starts = find_starts(objective, dlrd.FullRankNormal.standard(2), KEY, num_starts=8, max_gradients=1)
    assert means(starts) == [LOW]


def test_without_a_mode_the_family_as_given_is_among_the_starts() -> None:
    """The funnel's density grows without bound in its neck."""
    objective = objective_of(lambda z: -0.5 * jnp.sum(z[1:] ** 2) * jnp.exp(-z[0]) - 2 * z[0], 5)
    family = dlrd.MeanFieldNormal([1.0, 0.5, 0.5, 0.5, 0.5], [0.1] * 5)
    starts = find_starts(objective, family, KEY, num_starts=8)
    assert not any(start.is_mode for start in starts)
    assert starts[0].name == "the family as given"
    assert isinstance(starts[0].family, Curved)
    np.testing.assert_array_equal(starts[0].family.member.loc, family.loc)
    for start in starts:
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(start.family))


def test_modes_elsewhere_are_found_though_the_first_way_down_has_no_end() -> None:
    """A ramp that falls for ever goes down from 0; a normal is to its right."""

    def log_density(z: jax.Array) -> jax.Array:
        return jnp.logaddexp(-z[0], 10 - 0.5 * (z[0] - 6) ** 2) - 0.5 * z[1] ** 2

    objective = objective_of(log_density, 2)
    starts = find_starts(objective, dlrd.FullRankNormal.standard(2), KEY, num_starts=8)
    assert [start.is_mode for start in starts] == [True] + [False] * (len(starts) - 1)
    assert abs(means(starts)[0] - 6) < 0.2  # as far from the mode as a search may end
    assert starts[1].name == "the family as given"


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
    starts = find_starts(normal(COVARIANCE, MEAN), dlrd.FullRankNormal.standard(3), KEY, 2)
    exact = dlrd.FullRankNormal(MEAN, np.linalg.cholesky(COVARIANCE))
    assert dlrd.kl(starts[0].family, exact) < 1e-2  # as far from the mode as a search may end
    np.testing.assert_allclose(starts[0].family.covariance, COVARIANCE, atol=1e-6)


def test_mean_field_start_is_the_best_one() -> None:
    """Its scales are those that maximise the ELBO, and it knows the whole curvature."""
    starts = find_starts(normal(COVARIANCE, MEAN), dlrd.MeanFieldNormal.standard(3), KEY, 2)
    curved = starts[0].family
    assert isinstance(curved, Curved)
    precision = np.linalg.inv(COVARIANCE)
    np.testing.assert_allclose(curved.member.std, np.diagonal(precision) ** -0.5, rtol=1e-6)
    np.testing.assert_allclose(curved.curvature.times(np.eye(3)), precision, atol=1e-5)
    away = curved.member.loc - MEAN
    assert 0.5 * away @ precision @ away < 1e-2


def test_low_rank_start_has_the_widest_direction() -> None:
    """Of a precision D½ (I − a v vᵀ) D½, v with entries ±1/√d: the start's divergence is known."""
    dim, share = 20, 0.9
    scales = np.geomspace(0.1, 10, dim)
    direction = np.resize([1.0, -1.0, -1.0], dim) / np.sqrt(dim)
    precision = (np.eye(dim) - share * np.outer(direction, direction)) / np.outer(scales, scales)
    objective = normal(np.linalg.inv(precision), np.zeros(dim))
    starts = find_starts(objective, dlrd.LowRankNormal.standard(dim, 1), KEY, 1)
    exact = dlrd.FullRankNormal(np.zeros(dim), np.linalg.cholesky(np.linalg.inv(precision)))
    # The diagonal of the precision is D (1 − a/d): by so much all narrow directions are too wide.
    ratio = 1 / (1 - share / dim)
    expected = 0.5 * (dim - 1) * (ratio - 1 - np.log(ratio))
    found = float(dlrd.kl(starts[0].family, exact))
    assert abs(found - expected) < 1e-2  # as far from the mode as a search may end
    assert found < 0.1 * float(dlrd.kl(dlrd.MeanFieldNormal(np.zeros(dim), np.log(scales)), exact))


def test_precision_of_the_family_is_kept() -> None:
    for family in (
        dlrd.MeanFieldNormal(jnp.zeros(3, "float32"), jnp.zeros(3, "float32")),
        dlrd.FullRankNormal(jnp.zeros(3, "float32"), jnp.eye(3, dtype="float32")),
        dlrd.LowRankNormal(*(jnp.zeros(3, "float32"),) * 2, 0.1 * jnp.eye(3, 2, dtype="float32")),
    ):
        starts = find_starts(normal(COVARIANCE, MEAN), family, KEY, 1)
        for start in (starts[0], as_given(started(family))):
            assert {leaf.dtype for leaf in jax.tree.leaves(start.family)} == {np.dtype("float32")}
