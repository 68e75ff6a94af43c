"""Funnels, as curvatures at a few points show them."""

import numpy as np
import pytest

from dlrd.fitting.automatic.start.funnel import MIN_OTHERS, Funnel, find_funnel

DIM, NECK = 12, 3
OTHERS = tuple(i for i in range(DIM) if i != NECK)


def points(num: int = 8) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((num, DIM))


def funnel(at: np.ndarray) -> np.ndarray:
    """The curvatures of N(0, e^v) along all coordinates but v."""
    curvatures = np.repeat(np.exp(-at[:, NECK : NECK + 1]), DIM, axis=1)
    curvatures[:, NECK] = 2.0
    return curvatures


def test_a_funnel_has_a_neck_and_what_it_narrows() -> None:
    assert find_funnel(points(), funnel(points())) == Funnel(NECK, OTHERS)


def test_it_may_be_of_a_few_coordinates_alone() -> None:
    curvatures = np.ones((8, DIM))
    curvatures[:, 6 : 6 + MIN_OTHERS] = funnel(points())[:, 6 : 6 + MIN_OTHERS]
    assert find_funnel(points(), curvatures) == Funnel(NECK, tuple(range(6, 6 + MIN_OTHERS)))
    curvatures[:, 6] = 1.0  # of fewer, chance could be the reason
    assert find_funnel(points(), curvatures) is None


@pytest.mark.parametrize(
    "curvatures",
    [
        np.ones((8, DIM)),  # a normal
        np.exp(0.01 * points()[:, [NECK]] * np.ones(DIM)),  # hardly anything
        np.exp(np.random.default_rng(1).standard_normal((8, DIM))),  # nothing to do with each other
        -funnel(points()),  # no maximum
        np.full((8, DIM), np.nan),
    ],
    ids=["normal", "faint", "unrelated", "negative", "nan"],
)
def test_no_funnel(curvatures: np.ndarray) -> None:
    assert find_funnel(points(), curvatures) is None


def test_too_few_points_tell_nothing() -> None:
    assert find_funnel(points(3), funnel(points(3))) is None
