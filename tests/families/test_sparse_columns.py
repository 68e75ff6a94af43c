"""Sparse normals as regressions, one a column of the factor, against dense matrices."""

import numpy as np
import pytest

from dlrd.families import ordering
from dlrd.families.elimination import eliminate
from dlrd.families.pattern import Pattern
from dlrd.families.sparse_columns import Regressions, projected_root

DIM = 14
EPS = float(np.finfo(float).eps)


@pytest.fixture(scope="module")
def elimination():
    """Of a chain, one that all others depend on, and one that some do; with columns of several sizes."""
    pairs = [(i + 1, i) for i in range(DIM - 3)] + [(DIM - 1, i) for i in range(DIM - 1)]
    pairs += [(DIM - 2, i) for i in range(0, DIM - 3, 2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "SMALL_TAIL", 2)
        found = eliminate(Pattern(DIM, *np.unique(pairs, axis=0).T))
    assert found is not None
    assert found.num_levels > 0
    assert DIM - found.starts[-1] > 2
    return found


def random_factor(elimination, seed):
    """T, dense."""
    rng = np.random.default_rng(seed)
    matrix = np.diag(rng.uniform(1, 2, DIM))
    matrix[elimination.rows, elimination.columns] = 0.3 * rng.normal(size=elimination.num_entries)
    return matrix


def values(elimination, matrix):
    return matrix.diagonal(), matrix[elimination.rows, elimination.columns]


def regressions(elimination, factor):
    covariance = np.linalg.inv(factor @ factor.T)
    return Regressions(elimination, values(elimination, factor), values(elimination, covariance))


def divergence(factor, other):
    """Of the normals of mean zero with the precisions T Tᵀ."""
    ratio = np.linalg.solve(factor, other)
    return 0.5 * (np.sum(ratio**2) - DIM) - np.log(np.abs(ratio.diagonal())).sum()


def gradient_towards(elimination, factor, target):
    """E[r_j ε_j] and E[r_j x_J], exactly, for a normal target: r = −T⁻¹ Λ′ x + ε."""
    covariance = np.linalg.inv(factor @ factor.T)
    along = -np.linalg.solve(factor, target @ target.T @ covariance) + factor.T @ covariance
    whole = along @ factor
    return np.concatenate([whole.diagonal(), along[elimination.columns, elimination.rows]])


def test_half_the_square_is_the_gap_and_a_step_closes_it(elimination):
    """To the second order in the change, which is of the size `small`."""
    small = 0.01
    factor, other = random_factor(elimination, 0), random_factor(elimination, 1)
    target = factor + small * other
    here, gradient = regressions(elimination, factor), gradient_towards(elimination, factor, target)
    white = here.whitened(np.stack([gradient, -2 * gradient]))
    gap = divergence(factor, target)
    size = np.linalg.norm(np.linalg.solve(factor, small * other))
    assert size < 0.2
    np.testing.assert_allclose(0.5 * white[0] @ white[0], gap, rtol=3 * size)
    np.testing.assert_allclose(white[1], -2 * white[0], atol=EPS * DIM)
    moved = np.diag(here.moved(gradient)[0])
    moved[elimination.rows, elimination.columns] = here.moved(gradient)[1]
    assert divergence(moved, target) < size**2 * gap


def test_a_displacement_is_the_gradient_that_would_lead_it(elimination):
    factor, gradient = random_factor(elimination, 0), np.random.default_rng(2).normal(size=DIM)
    gradient = 1e-3 * np.concatenate(
        [gradient, np.random.default_rng(3).normal(size=elimination.num_entries)]
    )
    here = regressions(elimination, factor)
    there = here.moved(gradient)
    # Back from there: the other way, and of the first order in both.
    expected = here.whitened(-gradient[None])[0]
    actual = here.whitened(here.displacement(there)[None])[0]
    np.testing.assert_allclose(actual, expected, atol=EPS * 1e3 * np.linalg.cond(factor))


def test_rounding_that_leaves_no_covariance_is_survived(elimination):
    factor = random_factor(elimination, 0)
    covariance = np.linalg.inv(factor @ factor.T)
    diagonal, lower = values(elimination, covariance)
    wrong = Regressions(elimination, values(elimination, factor), (diagonal, np.full_like(lower, 10.0)))
    assert np.isfinite(wrong.whitened(np.ones((1, DIM + elimination.num_entries)))).all()


def test_the_projection_keeps_covariances_at_the_pattern_and_no_others(elimination):
    """Both together are the nearest covariance by the divergence from what is given: Dempster's theorem."""
    rng = np.random.default_rng(4)
    root = np.triu(np.eye(DIM) + 0.2 * rng.normal(size=(DIM, DIM)))
    nearest = projected_root(elimination, root)
    precision = np.linalg.inv(nearest @ nearest.T)
    is_free = np.eye(DIM, dtype=bool)
    is_free[elimination.rows, elimination.columns] = is_free[elimination.columns, elimination.rows] = True
    tolerance = DIM * EPS * np.linalg.cond(root) ** 2 * np.abs(precision).max()
    np.testing.assert_allclose(precision[~is_free], 0, atol=tolerance)
    np.testing.assert_allclose((nearest @ nearest.T)[is_free], (root @ root.T)[is_free], atol=tolerance)
    assert np.abs(np.linalg.inv(root @ root.T)[~is_free]).max() > 0.01
    np.testing.assert_array_equal(np.tril(nearest, -1), 0)
    np.testing.assert_allclose(projected_root(elimination, nearest), nearest, atol=tolerance)
