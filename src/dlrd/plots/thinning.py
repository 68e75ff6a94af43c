"""A course of thousands of rows, made fit for a picture a few hundred points wide."""

import itertools

import numpy as np
from jaxtyping import Float, Int

MAX_BINS = 300
"""As many as a panel can resolve."""
SMOOTHED_SHARE = 50
"""A smoothed value is the mean of this part of the rows, a fiftieth."""


def outline(values: Float[np.ndarray, " row"]) -> Int[np.ndarray, " kept"]:
    """The rows that keep the look of a line: the ends and the extremes of each of `MAX_BINS` bins."""
    if len(values) <= 4 * MAX_BINS:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), MAX_BINS + 1).astype(int)
    kept = set()
    for start, end in itertools.pairwise(edges):
        kept |= {start, end - 1}
        rows = values[start:end]
        if not np.all(np.isnan(rows)):
            kept |= {start + np.nanargmin(rows), start + np.nanargmax(rows)}
    return np.asarray(sorted(kept), dtype=int)


def evenly_spread(num: int, max_kept: int) -> Int[np.ndarray, " kept"]:
    """The numbers below `num`, or so many of them, the first and the last among them."""
    return np.linspace(0, num - 1, min(num, max_kept)).round().astype(int)


def smoothed(
    values: Float[np.ndarray, " row"], breaks: Int[np.ndarray, " break"]
) -> Float[np.ndarray, " row"]:
    """The running mean of what lies between `breaks`, the rows where something new begins."""
    reach = len(values) // (2 * SMOOTHED_SHARE)
    rows = np.arange(len(values))
    edges = np.unique([0, *breaks, len(values)])
    segment = np.searchsorted(edges, rows, side="right")
    starts = np.maximum(rows - reach, edges[segment - 1])
    ends = np.minimum(rows + reach + 1, edges[segment])
    # A cumulative sum would let a huge early value swamp the digits of all later means.
    return np.asarray([values[start:end].mean() for start, end in zip(starts, ends, strict=True)])
