"""Flat ways: those along which the ELBO bends less than the metric says, as the whole Hessian tells."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families.curvature import DenseCurvature
from dlrd.families.curved import Curved
from dlrd.fitting.automatic.judge import bend
from dlrd.fitting.automatic.judge.bend import (
    MAX_PRODUCTS,
    MIN_DRAWS_EACH,
    MIN_PRODUCTS,
    flat_ways,
    num_draws_for,
)
from dlrd.models import FunctionModel

KEY = jax.random.key(0)
DIM, NUM_DRAWS = 7, 256
DATA = np.array([0.3, -1.0, 0.8, 0.1, -0.5, 0.2])


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def hierarchy(z: jax.Array) -> jax.Array:
    """Effects, hardly measured, and the logarithm of their scale."""
    log_scale, effects = z[0], z[1:]
    log_prior = -0.5 * jnp.sum((effects * jnp.exp(-log_scale)) ** 2) - len(DATA) * log_scale
    return log_prior - 0.5 * log_scale**2 - 0.125 * jnp.sum((effects - DATA) ** 2)


MODEL = FunctionModel(hierarchy, (DIM,))


def family() -> Curved:
    """With the mean curvature over itself."""
    normal = dlrd.MeanFieldNormal(np.zeros(DIM), np.log(np.r_[0.5, np.full(DIM - 1, 0.8)]))
    draws = normal.sample(jax.random.key(1), (4096,))
    curvature = -np.asarray(jnp.mean(jax.vmap(jax.hessian(hierarchy))(draws), axis=0))
    return Curved(normal, DenseCurvature(curvature, np.linalg.cholesky(np.linalg.inv(curvature))))


def whole() -> np.ndarray:
    """K, from its images of all coordinates."""
    rows = [bend._image(MODEL, family(), KEY, row, NUM_DRAWS) for row in np.eye(2 * DIM)]
    return 0.5 * (np.stack(rows) + np.stack(rows).T)


def test_the_flattest_way_is_that_of_the_whole_hessian() -> None:
    bends, vectors = np.linalg.eigh(whole())
    assert bends[0] < 0.6 < bends[1]
    rng = np.random.default_rng(0)
    gradient, move = rng.normal(size=(2, 2 * DIM))
    ways, num_products = flat_ways(MODEL, family(), KEY, gradient, move, NUM_DRAWS)
    assert ways is not None
    assert MIN_PRODUCTS <= num_products <= MAX_PRODUCTS
    sizes = np.sum(ways**2, axis=1)
    flattest = ways[np.argmax(sizes)]
    # As the residual at which the search ends allows.
    np.testing.assert_allclose(1 / (1 + sizes.max()), bends[0], rtol=2 * bend.SHARE_UNKNOWN)
    assert abs(flattest @ vectors[:, 0]) / np.linalg.norm(flattest) > 0.9


def test_the_metric_with_all_ways_is_the_inverse_of_the_hessian() -> None:
    """Where the gradient is along the flattest way, and so one product finds it."""
    bends, vectors = np.linalg.eigh(whole())
    flat = vectors[:, 0]
    ways, num_products = flat_ways(MODEL, family(), KEY, flat, flat, NUM_DRAWS)
    assert ways is not None
    assert num_products <= MIN_PRODUCTS
    np.testing.assert_allclose(1 + np.sum((ways @ flat) ** 2), 1 / bends[0], rtol=1e-3)


def test_a_normal_has_no_flat_ways() -> None:
    precision = np.diag(np.arange(1.0, 4.0))
    exact = Curved(
        dlrd.MeanFieldNormal(np.zeros(3), -0.5 * np.log(np.diagonal(precision))),
        DenseCurvature(precision, np.diag(np.diagonal(precision) ** -0.5)),
    )
    model = FunctionModel(lambda z: -0.5 * z @ precision @ z, (3,))
    gradient = np.r_[0.1, -0.2, 0.3, 0.0, 0.0, 0.0]
    ways, _ = flat_ways(model, exact, KEY, gradient, gradient, NUM_DRAWS)
    assert ways is not None
    assert np.sum(ways**2) < 1e-6


def test_where_nothing_is_known() -> None:
    """Beyond a wall, and without a gradient or a move to begin with."""
    walled = FunctionModel(lambda z: jnp.nan * jnp.sum(z), (DIM,))
    ones = np.ones(2 * DIM)
    assert flat_ways(walled, family(), KEY, ones, ones, NUM_DRAWS) == (None, 1)
    assert flat_ways(MODEL, family(), KEY, ones, 0 * ones, NUM_DRAWS) == (None, 0)


def test_longer_certificates_are_worth_more_draws() -> None:
    assert [num_draws_for(num) for num in (16, 512, 1024, 1100, 8192)] == [64, 64, 128, 128, 1024]
    assert num_draws_for(1) == MIN_DRAWS_EACH


def test_steep_walls_leak_no_warning() -> None:
    """Warnings are errors here, and gradients of 1e200 overflow in products."""
    family = dlrd.MeanFieldNormal.standard(2).as_start()
    model = FunctionModel(lambda z: -1e200 * jnp.sum(z**2), (2,))
    ways, _ = flat_ways(model, family, jax.random.key(0), np.full(4, 1e200), np.ones(4), MIN_DRAWS_EACH)
    assert ways is None or np.isfinite(ways).all()
