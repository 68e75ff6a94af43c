"""Strides: far along the way that a fit has come, as long as the ELBO rises."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families import Family, member_of
from dlrd.families.curved import Curved
from dlrd.fitting.automatic.steps.stride import MAX_NEWTON, NUM_DRAWS, newton_stride, stride
from dlrd.models import FunctionModel, LogDensity

KEY = jax.random.key(0)
PLENTY = 10**6
TWICE = 2 * NUM_DRAWS


def curved(loc: float, log_scale: float) -> Curved:
    """A mean-field normal in two dimensions, with its own precision for a curvature."""
    return dlrd.MeanFieldNormal([loc, 0.0], [log_scale, 0.0]).as_start()


def full_rank(loc: float, log_scale: float) -> dlrd.FullRankNormal:
    return dlrd.FullRankNormal([loc, 0.0], [[np.exp(log_scale), 0.0], [0.0, 1.0]])


def strode(log_density: LogDensity, before: Family, now: Any, max_gradients: int) -> tuple[Any, int]:
    return stride(FunctionModel(log_density, (2,)), before, now, KEY, max_gradients)


def far_away(z: jax.Array) -> jax.Array:
    """A wide normal around 40: the mean and the scale of the first coordinate have a way to go."""
    return -0.5 * ((z[0] - 40.0) / 20) ** 2 - 0.5 * z[1] ** 2


@pytest.mark.parametrize("make", [curved, full_rank])
def test_doubles_its_length_as_long_as_the_elbo_rises(make, precision: jnp.dtype) -> None:
    before, now = make(0.0, 0.0), make(1.0, 0.1)
    found, num_gradients = strode(far_away, before, now, PLENTY)
    # Means of 1 + 1, 1 + 2, …, 1 + 32 are ever closer to 40; scales of e^(0.1 · 33) = 27 fit, e^6.5 does not.
    assert found.sample(KEY, (1,)).dtype == precision
    member = member_of(found)
    np.testing.assert_allclose(member.mean[0], 33.0, rtol=1e-5)
    np.testing.assert_allclose(member.std[0], np.exp(3.3), rtol=1e-5)
    assert num_gradients == 7 * TWICE  # lengths 1 to 64


def test_full_rank_goes_on_with_its_shear() -> None:
    """L = old (I + shear) each time: the columns' proportions grow in equal steps."""
    before, now, exact = (
        dlrd.FullRankNormal([0.0, 0.0], [[1.0, 0.0], [shear, 1.0]]) for shear in (0.0, 1.0, 5.0)
    )
    found, _ = strode(lambda z: exact.log_prob(z), before, now, PLENTY)
    assert isinstance(found, dlrd.FullRankNormal)
    np.testing.assert_allclose(found.cholesky, exact.cholesky, atol=1e-6)  # a length of 4


@pytest.mark.parametrize("make", [curved, full_rank])
def test_stays_where_going_on_does_not_help(make) -> None:
    before, now = make(1.0, 0.0), make(0.0, 0.0)  # now is the normal itself
    found, num_gradients = strode(lambda z: -0.5 * z @ z, before, now, PLENTY)
    assert found is now
    assert num_gradients == TWICE


def test_curvature_keeps_its_size_in_units_of_the_scales() -> None:
    found, _ = strode(far_away, curved(0.0, 0.0), curved(1.0, 0.1), PLENTY)
    curvature = found.curvature
    np.testing.assert_allclose(curvature.diagonal * found.std**2, 1.0, rtol=1e-5)
    np.testing.assert_allclose(curvature.root @ curvature.root.T @ curvature.hessian, np.eye(2), atol=1e-5)


def test_keeps_to_its_budget() -> None:
    before, now = curved(0.0, 0.0), curved(1.0, 0.1)
    for budget, expected in ((TWICE - 1, 0), (TWICE, 1), (3 * TWICE + 1, 3)):
        found, num_gradients = strode(far_away, before, now, budget)
        assert num_gradients == expected * TWICE
        assert (found is now) == (expected == 0)


def test_where_nothing_is_finite_further_out() -> None:
    def walled(z: jax.Array) -> jax.Array:
        return jnp.where(jnp.abs(z[0]) < 20, -0.5 * z @ z, -jnp.inf)

    now = curved(1.0, 0.0)
    found, num_gradients = strode(walled, curved(-99.0, 0.0), now, PLENTY)
    assert found is now
    assert num_gradients == TWICE


def newton(step: list[float], max_gradients: int = PLENTY) -> tuple[Any, int]:
    model = FunctionModel(lambda z: -0.5 * z @ z, (2,))
    return newton_stride(model, curved(1.0, 0.0), np.array(step), KEY, max_gradients)


def test_a_step_along_flat_ways_is_taken_unless_the_elbo_is_surely_lower() -> None:
    found, num_gradients = newton([-1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(found.mean, 0.0, atol=1e-6)
    assert num_gradients == TWICE
    found, num_gradients = newton([2.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(found.mean, [1.0, 0.0], atol=1e-6)
    assert num_gradients == TWICE
    found, _ = newton([0.0, 0.01, 0.0, 0.0])  # lower, but by less than noise would hide
    np.testing.assert_allclose(found.mean, [1.0, 0.01], atol=1e-6)


def test_a_step_along_flat_ways_has_a_longest_length_and_a_budget() -> None:
    found, _ = newton([-10.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(found.mean, [1.0 - MAX_NEWTON, 0.0], atol=1e-6)
    found, num_gradients = newton([-1.0, 0.0, 0.0, 0.0], TWICE - 1)
    assert num_gradients == 0
    np.testing.assert_allclose(found.mean, [1.0, 0.0])
