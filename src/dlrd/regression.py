"""The straight line through a window of samples, one sample at a time.

Only operators are used, and a library's own `where`, so numbers and the arrays of any library will do, these
element by element.
"""

import operator
from typing import Any, NamedTuple, Protocol

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


class Where(Protocol):
    """An array library's choice between two arrays or numbers, element by element."""

    def __call__(self, condition: Array, if_true: Array, if_false: Array, /) -> Array: ...


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


def snr(window: Window, position: Array, epsilon: float, where: Where) -> tuple[Array, Array]:
    """The signal-to-noise ratio ρ = SSR/SSE of each sample's line, and whether the sample has moved at all.

    Noise within the rounding of the sums is none: ρ is infinite for samples on a straight line, and 0 for
    samples that have not moved, which belong in no mean.

    Args:
        window: the sums over all samples up to `position`.
        position: at least 2, since any two samples lie on a line; in the samples' own type or a plain number.
        epsilon: the machine epsilon of the samples' type, 0 for exact numbers.
        where: the array library's choice, as `numpy.where`, `jax.numpy.where` or `torch.where`.

    Example:
        >>> import numpy as np
        >>> window = start(np.asarray([1.0, 1.0, 1.0]))
        >>> window = add(window, np.asarray([3.0, 2.0, 1.0]), 1)
        >>> window = add(window, np.asarray([2.0, 3.0, 1.0]), 2)
        >>> ratio, has_moved = snr(window, 2, np.finfo(float).eps, np.where)
        >>> print(ratio.round(3), has_moved)
        [0.333   inf 0.   ] [ True  True False]
    """
    signal, noise = signal_and_noise(window, position)
    rounding = 4 * epsilon * position * (position + 1) * (position + 2) * window.squares
    has_noise = noise > rounding
    # Divided by 1 where it is not used: some libraries warn of a division by zero.
    ratio = where(has_noise, signal / where(has_noise, noise, 1), 0)
    is_line = where(has_noise, False, signal > 0)
    return where(is_line, float("inf"), ratio), window.squares > 0


def _compensated_sum(total: Array, addend: Array, error: Array) -> tuple[Array, Array]:
    """The sum, and what rounding took from it, to be added next time."""
    addend = addend + error
    result = total + addend
    return result, addend - (result - total)
