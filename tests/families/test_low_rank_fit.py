"""The best covariance with few directions for a curvature."""

import numpy as np
import pytest
from numpy.typing import NDArray

from dlrd.families.curvature import Curvature, DenseCurvature, diagonal_curvature
from dlrd.families.low_rank_fit import MIN_SHARE, LowRank, nearest_low_rank

DIM, RANK = 12, 2
RNG = np.random.default_rng(0)


def dense(hessian: NDArray) -> DenseCurvature:
    return DenseCurvature(hessian, np.linalg.cholesky(np.linalg.inv(hessian)))


def covariance(found: LowRank) -> NDArray:
    return np.diag(found.scale**2) + found.factor @ found.factor.T


def loss(hessian: NDArray, found: LowRank) -> float:
    sigma = covariance(found)
    return 0.5 * float(np.trace(hessian @ sigma) - np.linalg.slogdet(sigma)[1])


def start(curvature: Curvature) -> LowRank:
    scale = np.asarray(curvature.diagonal) ** -0.5
    return LowRank(scale, 0.01 * scale[:, None] * RNG.standard_normal((len(scale), RANK)))


def test_a_covariance_of_the_kind_is_found() -> None:
    scale = np.exp(RNG.normal(size=DIM))
    truth = LowRank(scale, scale[:, None] * RNG.normal(size=(DIM, RANK)))
    curvature = dense(np.linalg.inv(covariance(truth)))
    found = nearest_low_rank(curvature, start(curvature))
    np.testing.assert_allclose(loss(curvature.hessian, found), loss(curvature.hessian, truth), atol=1e-4)
    np.testing.assert_allclose(covariance(found), covariance(truth), rtol=0.05, atol=0.02 * np.max(scale**2))


def test_of_another_covariance_the_gradient_vanishes() -> None:
    """There, Σ⁻¹ and H agree on the diagonal and on the directions of F."""
    root = RNG.normal(size=(DIM, DIM))
    curvature = dense(root @ root.T / DIM + np.eye(DIM))
    found = nearest_low_rank(curvature, start(curvature))
    left = np.linalg.inv(covariance(found)) - curvature.hessian
    is_free = found.scale * np.sqrt(np.diagonal(curvature.hessian)) > 1.01 * MIN_SHARE
    assert is_free.sum() >= DIM - 2
    np.testing.assert_allclose((np.diagonal(left) * found.scale**2)[is_free], 0, atol=5e-3)
    np.testing.assert_allclose(found.scale[:, None] * (left @ found.factor), 0, atol=5e-3)


def test_no_scale_vanishes() -> None:
    """Two coordinates that are all but one would have their own direction and nothing else."""
    curvature = dense(np.linalg.inv([[1.0, 0.999, 0.0], [0.999, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    found = nearest_low_rank(curvature, start(curvature))
    assert np.all(found.scale * np.sqrt(np.diagonal(curvature.hessian)) > 0.999 * MIN_SHARE)


def test_it_is_better_than_the_widest_directions() -> None:
    root = RNG.normal(size=(DIM, 3))
    curvature = dense(np.linalg.inv(root @ root.T + 0.1 * np.eye(DIM)))
    scale, directions, variances = curvature.axes()
    widest = np.argsort(-variances)[:RANK]
    factor = scale[:, None] * directions[:, widest] * np.sqrt(variances[widest] - 1)
    begun = LowRank(scale, factor)
    assert loss(curvature.hessian, nearest_low_rank(curvature, begun)) < loss(curvature.hessian, begun) - 0.1


@pytest.mark.parametrize("dim", [3, 300])
def test_independent_coordinates_stay_so(dim: int) -> None:
    scale = np.exp(RNG.normal(size=dim))
    curvature = diagonal_curvature(scale)
    found = nearest_low_rank(curvature, start(curvature))
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance(found))), scale, rtol=1e-2)
