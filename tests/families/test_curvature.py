"""Curvatures are the matrices that they stand for."""

import numpy as np
import pytest

from dlrd.families.curvature import (
    MAX_WHOLE,
    Axes,
    DenseCurvature,
    LowRankCurvature,
    diagonal_curvature,
)

DIM, RANK = 5, 2
RNG = np.random.default_rng(1)
ROWS = RNG.normal(size=(3, DIM))
SCALE, STRETCHES = RNG.uniform(0.5, 2, DIM), np.array([3.0, 0.2])
DIRECTIONS = np.linalg.qr(RNG.normal(size=(DIM, RANK)))[0]
LOW_RANK_ROOT = SCALE[:, None] * (np.eye(DIM) + DIRECTIONS @ np.diag(STRETCHES - 1) @ DIRECTIONS.T)
DENSE_ROOT = np.tril(RNG.normal(size=(DIM, DIM)), -1) + np.diag(RNG.uniform(0.5, 2, DIM))

# Products of five numbers of size 1, and an inverse with a condition number below 1e4.
ROUNDING = {"rtol": 1e-11, "atol": 1e-11}


def dense() -> tuple[DenseCurvature, np.ndarray]:
    return DenseCurvature(np.linalg.inv(DENSE_ROOT @ DENSE_ROOT.T), DENSE_ROOT), DENSE_ROOT


def low_rank() -> tuple[LowRankCurvature, np.ndarray]:
    return LowRankCurvature(SCALE, DIRECTIONS, STRETCHES), LOW_RANK_ROOT


@pytest.fixture(params=[dense, low_rank])
def pair(request: pytest.FixtureRequest):
    """A curvature, and the root of its inverse as a matrix."""
    return request.param()


def as_matrix(axes: Axes) -> np.ndarray:
    """The inverse of the Hessian that the axes stand for."""
    core = np.eye(DIM) + axes.directions @ np.diag(axes.variances - 1) @ axes.directions.T
    return core * np.outer(axes.scale, axes.scale)


def test_the_hessian(pair):
    curvature, root = pair
    hessian = np.linalg.inv(root @ root.T)
    np.testing.assert_allclose(curvature.times(ROWS), ROWS @ hessian, **ROUNDING)
    np.testing.assert_allclose(curvature.diagonal, np.diagonal(hessian), **ROUNDING)


def test_the_root(pair):
    curvature, root = pair
    np.testing.assert_allclose(curvature.whiten(ROWS[0]), root.T @ ROWS[0], **ROUNDING)
    np.testing.assert_allclose(curvature.unwhiten(ROWS[0]), root @ ROWS[0], **ROUNDING)
    np.testing.assert_allclose(curvature.log_volume(), np.linalg.slogdet(root)[1], **ROUNDING)


def test_the_hessian_is_the_identity_where_it_is_whitened(pair):
    """Wᵀ H W = I."""
    curvature, _ = pair
    images = [curvature.whiten(curvature.times(curvature.unwhiten(row)[None])[0]) for row in ROWS]
    np.testing.assert_allclose(images, ROWS, **ROUNDING)


def test_the_axes(pair):
    curvature, root = pair
    axes = curvature.axes()
    np.testing.assert_allclose(as_matrix(axes), root @ root.T, **ROUNDING)
    identity = np.eye(axes.directions.shape[1])
    np.testing.assert_allclose(axes.directions.T @ axes.directions, identity, **ROUNDING)


def test_units_of_the_coordinates(pair):
    """Of coordinates that are multiplied by factors: so is the root, row by row."""
    curvature, root = pair
    factor = np.array([0.1, 0.5, 1.0, 3.0, 10.0])
    rescaled = curvature.rescaled(factor)
    assert type(rescaled) is type(curvature)
    root = factor[:, None] * root
    hessian = np.linalg.inv(root @ root.T)
    # Its entries are larger by up to the square of the largest factor's inverse, and so is rounding.
    rounding = {"rtol": ROUNDING["rtol"], "atol": 100 * ROUNDING["atol"]}
    np.testing.assert_allclose(rescaled.times(ROWS), ROWS @ hessian, **rounding)
    np.testing.assert_allclose(rescaled.diagonal, np.diagonal(hessian), **rounding)
    np.testing.assert_allclose(rescaled.whiten(ROWS[0]), root.T @ ROWS[0], **rounding)
    np.testing.assert_allclose(rescaled.unwhiten(ROWS[0]), root @ ROWS[0], **rounding)
    np.testing.assert_allclose(rescaled.log_volume(), np.linalg.slogdet(root)[1], **rounding)


def test_no_pattern_is_known(pair):
    assert pair[0].couplings is None


def test_which_is_whole():
    assert dense()[0].is_whole
    assert not low_rank()[0].is_whole


@pytest.mark.parametrize(("dim", "kind"), [(MAX_WHOLE, DenseCurvature), (MAX_WHOLE + 1, LowRankCurvature)])
def test_independent_coordinates(dim: int, kind: type):
    """Whole where that is cheap, and the same curvature beyond."""
    scale = np.geomspace(0.1, 10, dim)
    curvature = diagonal_curvature(scale)
    assert isinstance(curvature, kind)
    row = np.linspace(-1, 1, dim)
    np.testing.assert_allclose(curvature.diagonal, scale**-2, rtol=1e-15)
    np.testing.assert_allclose(curvature.times(row[None])[0], row * scale**-2, rtol=1e-14)
    np.testing.assert_allclose(curvature.whiten(row), row * scale, rtol=1e-14)
    np.testing.assert_allclose(curvature.unwhiten(row), row * scale, rtol=1e-14)
    # The logarithms cancel, of 200 numbers of size 1.
    np.testing.assert_allclose(curvature.log_volume(), 0, atol=1e-12)
