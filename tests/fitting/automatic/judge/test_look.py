"""Looks: the same whatever their length, fresh draws for each index, one program for all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.families import FullRankNormal, Mixture
from dlrd.fitting.automatic.judge.look import BATCH, NUM_BLOCKS, look
from dlrd.models import function

DIM = 3
KEY = jax.random.key(0)


@pytest.fixture
def family() -> FullRankNormal:
    return FullRankNormal([0.5, 0.0, -1.0], [[1.0, 0.0, 0.0], [0.3, 2.0, 0.0], [0.0, -0.5, 0.7]])


def test_log_ratios_and_gradients_of_every_block(family: FullRankNormal) -> None:
    calls = []

    def log_density(z: jax.Array) -> jax.Array:
        calls.append(z)
        return -0.5 * z @ z

    model = function(log_density, DIM)
    seen = look(model, family, KEY, 0)
    assert seen.log_ratios.shape == (NUM_BLOCKS, BATCH)
    assert seen.gradients is not None
    assert seen.gradients.shape == (NUM_BLOCKS, DIM + DIM + DIM**2)
    num_traced = len(calls)
    shorter = look(model, family, KEY, 0, 3)
    np.testing.assert_array_equal(shorter.log_ratios, seen.log_ratios[:3])
    np.testing.assert_array_equal(shorter.gradients, seen.gradients[:3])
    later = look(model, family, KEY, 1)
    assert np.intersect1d(later.log_ratios, seen.log_ratios).size == 0
    assert len(np.unique(np.round(seen.log_ratios, 10))) > NUM_BLOCKS * BATCH // 2
    assert len(calls) == num_traced


def test_gradients_vanish_at_the_optimum(family: FullRankNormal) -> None:
    precision = np.linalg.inv(np.asarray(family.covariance, float))

    def log_density(z: jax.Array) -> jax.Array:
        return -0.5 * (z - family.loc) @ precision @ (z - family.loc)

    seen = look(function(log_density, DIM), family, KEY, 0)
    np.testing.assert_allclose(seen.gradients, 0, atol=1e-5)
    np.testing.assert_allclose(np.ptp(seen.log_ratios), 0, atol=1e-5)


def test_lessons_of_every_block_for_a_family_that_can_be_taught(family: FullRankNormal) -> None:
    """The same gradients, and beside them what the draws show of a log density with fourth derivatives."""
    model = function(lambda z: -0.5 * jnp.sum(z**2) - 0.01 * jnp.sum(z**4), DIM)
    plain, seen = look(model, family, KEY, 0), look(model, family.as_start(), KEY, 0)
    assert plain.lessons is None
    assert seen.lessons is not None
    assert seen.lessons.shape == (NUM_BLOCKS, DIM)
    np.testing.assert_allclose(seen.gradients, plain.gradients, rtol=1e-5, atol=1e-5)
    error = np.std(seen.lessons, axis=0, ddof=1) / NUM_BLOCKS**0.5
    exact = -0.01 * 24 / 6 * np.sum(np.asarray(family.cholesky) ** 4, axis=0)
    assert np.all(np.abs(np.mean(seen.lessons, axis=0) - exact) < 6 * error)
    assert look(model, family.as_start(), KEY, 0, has_gradients=False).lessons is None


def test_families_without_geometry_have_values_alone() -> None:
    mixture = Mixture([FullRankNormal.standard(DIM), FullRankNormal(np.ones(DIM), np.eye(DIM))])
    seen = look(function(lambda z: -0.5 * jnp.sum(z**2), DIM), mixture, KEY, 0, 2)
    assert seen.log_ratios.shape == (2, BATCH)
    assert seen.gradients is None
