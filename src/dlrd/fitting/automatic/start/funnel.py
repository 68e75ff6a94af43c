"""Funnels: a coordinate, as the logarithm of a scale, decides how narrow the density is along others."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

MIN_SPREAD = 0.3
"""Of the logarithm of a curvature over the points: below, a coordinate is as wide everywhere."""
MIN_CORRELATION = 0.95
"""Of these logarithms with the coordinate that decides, in the mean."""
MIN_OTHERS = 4
"""Coordinates that change together: of fewer, a few points may show so by chance."""


class Funnel(NamedTuple):
    """What decides, and what it decides on; indices of coordinates."""

    neck: int
    others: tuple[int, ...]


def find_funnel(
    points: Float[np.ndarray, "point dim"], diagonals: Float[np.ndarray, "point dim"]
) -> Funnel | None:
    """The funnel that the curvatures along the coordinates at a few points show, if there is one.

    Args:
        points: where they were measured.
        diagonals: of the Hessian there.
    """
    if len(points) < 4 or not (np.isfinite(diagonals).all() and np.all(diagonals > 0)):
        return None
    logs = np.log(diagonals)
    others = np.flatnonzero(np.std(logs, axis=0) > MIN_SPREAD)
    if len(others) < MIN_OTHERS:
        return None
    correlations = _standardized(points).T @ _standardized(logs[:, others]) / len(points)
    # What lies along the way itself, as a random effect and its own curvature, is no neck.
    strength = np.median(np.abs(correlations), axis=1)
    neck = int(np.argmax(strength))
    chosen = others[np.abs(correlations[neck]) > MIN_CORRELATION]
    chosen = chosen[chosen != neck]
    return Funnel(neck, tuple(map(int, chosen))) if len(chosen) >= MIN_OTHERS else None


def _standardized(columns: Float[np.ndarray, "point column"]) -> Float[np.ndarray, "point column"]:
    spread = np.std(columns, axis=0)
    return (columns - np.mean(columns, axis=0)) / np.where(spread > 0, spread, 1.0)
