"""Where runs fail: the end of one parameter's range in which they do, if there is one."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

MIN_FAILED = 5
"""Fewer say nothing about a region."""
MIN_SHARE = 0.9
"""Of the runs in a region that must have failed: there they always fail."""
MIN_EXPLAINED = 0.5
"""Of all failed runs that must lie in the region."""


def failing_region(
    points: Float[np.ndarray, "run dim"], is_failed: Bool[np.ndarray, " run"], names: Sequence[str]
) -> str | None:
    """A sentence about the values of a parameter beyond which runs always fail; None if there are none.

    Args:
        points: the parameters of the runs.
        is_failed: which of them failed.
        names: of the parameters.

    Example:
        >>> points = np.arange(20.0)[:, None]
        >>> failing_region(points, points[:, 0] > 12, ["load"])
        'runs fail where load ≥ 13 (7 of 7), and elsewhere in 0 of 13'
    """
    num_failed, best, sentence = int(is_failed.sum()), MIN_EXPLAINED, None
    if num_failed < MIN_FAILED or num_failed > (1 - best) * len(points):
        return None  # too few to tell, or they fail nearly everywhere
    for name, values in zip(names, points.T, strict=True):
        for sign, word in ((-1, "≥"), (1, "≤")):
            order = np.argsort(sign * values, kind="stable")
            inside = np.arange(1, len(order) + 1)
            failed = np.cumsum(is_failed[order])
            # Regions end where the value does, and with a run that failed.
            is_end = np.append(np.diff(values[order]) != 0, True) & is_failed[order]
            fits = is_end & (failed >= MIN_FAILED) & (failed >= MIN_SHARE * inside)
            if not fits.any():
                continue
            last = int(np.flatnonzero(fits)[-1])
            if failed[last] / num_failed > best:
                best = failed[last] / num_failed
                others = len(points) - inside[last]
                sentence = (
                    f"runs fail where {name} {word} {values[order[last]]:.4g} ({failed[last]:,} of "
                    f"{inside[last]:,}), and elsewhere in {num_failed - failed[last]:,} of {others:,}"
                )
    return sentence
