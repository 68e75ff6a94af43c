"""The straight line through a window of samples, one sample at a time.

Only operators are used, so numbers and the arrays of any library will do, these element by element.
"""

import operator
from typing import Any, NamedTuple

Array = Any
"""A number, or an array of any library that has `+`, `-`, `*` and `/`."""


class Window(NamedTuple):
    """Sums over the samples y₀, …, y_k of a window, shifted by the first: s_j = y_j − y₀.

    The shift leaves the line's signal-to-noise ratio as it is and takes away the offset, which in raw sums
    costs all digits once it is large beside the noise.
    """

    anchor: Array  # y₀
    total: Array  # Σ s_j
    squares: Array  # Σ s_j²; zero as long as the sample has not moved
    weighted: Array  # Σ j s_j
    errors: tuple[Array, Array, Array] | None  # what rounding took from the three sums, if that is kept


def start(value: Array, keep_errors: bool = False) -> Window:
    """The window that holds `value` alone.

    Args:
        value: the first sample.
        keep_errors: whether the sums are to be compensated (Kahan's summation), so that their error does not
            grow with the window: worth it in single precision.

    Example:
        >>> start(3.0)
        Window(anchor=3.0, total=0.0, squares=0.0, weighted=0.0, errors=None)
    """
    zero = value - value
    return Window(value, zero, zero, zero, (zero, zero, zero) if keep_errors else None)


def add(window: Window, value: Array, position: Array) -> Window:
    """The window after sample number `position` (1 for the second sample)."""
    shifted = value - window.anchor
    addends = (shifted, shifted * shifted, position * shifted)
    sums = (window.total, window.squares, window.weighted)
    if window.errors is None:
        total, squares, weighted = map(operator.add, sums, addends)
        return Window(window.anchor, total, squares, weighted, None)
    compensated = map(_compensated_sum, sums, addends, window.errors)
    (total, error_0), (squares, error_1), (weighted, error_2) = compensated
    return Window(window.anchor, total, squares, weighted, (error_0, error_1, error_2))


def signal_and_noise(window: Window, position: Array) -> tuple[Array, Array]:
    """The sums of squares that the fitted line explains (SSR) and leaves (SSE), both times k (k+1) (k+2).

    Their ratio is the paper's ρ, which does not see the factor; with it nothing has to be divided.
    With k = `position`, the number of the newest sample:

        S_kk = k (k+1) (k+2) / 12,   S_yy = Σ s² − (Σ s)² / (k+1),   S_ky = Σ j s − k/2 Σ s,
        SSR = S_ky² / S_kk,          SSE = S_yy − SSR.

    The second may come out slightly negative by rounding where the samples lie on a line. Both overflow where
    a window moves by more than about 10¹⁹/k² in single precision.

    Args:
        window: the sums over all samples up to `position`.
        position: at least 1.

    Example:
        >>> window = add(add(start(1.0), 3.0, 1), 2.0, 2)
        >>> signal_and_noise(window, 2)
        (12.0, 36.0)
    """
    total, squares, weighted = window.total, window.squares, window.weighted
    if window.errors is not None:
        total, squares, weighted = map(operator.add, (total, squares, weighted), window.errors)
    covariation = 2 * weighted - position * total
    signal = 3 * (covariation * covariation)
    variation = position * (position + 2) * ((position + 1) * squares - total * total)
    return signal, variation - signal


def _compensated_sum(total: Array, addend: Array, error: Array) -> tuple[Array, Array]:
    """The sum, and what rounding took from it, to be added next time."""
    addend = addend + error
    result = total + addend
    return result, addend - (result - total)
