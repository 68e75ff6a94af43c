from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dlrd import regression


def window_of(values: list[Any], number: type = int, keep_errors: bool = False) -> regression.Window:
    """The window of all values, their positions given as `number`."""
    window = regression.start(values[0], keep_errors)
    for position, value in enumerate(values[1:], 1):
        window = regression.add(window, value, number(position))
    return window


def split(values: list[Any], number: type = int) -> tuple[Any, Any]:
    """The sums of squares that the line explains and leaves, without their common factor."""
    position = number(len(values) - 1)
    signal, noise = regression.signal_and_noise(window_of(values, number), position)
    factor = position * (position + 1) * (position + 2)
    return signal / factor, noise / factor


def test_sums_are_shifted_by_the_first_sample():
    window = window_of([3, 5, 2, 7])  # s = 0, 2, −1, 4

    assert (window.anchor, window.total, window.squares, window.weighted) == (3, 5, 21, 12)


def test_kept_errors_are_what_rounding_took():
    """To the last digit: of 0.1, added a thousand times in single precision, and of its exact sum."""
    value = np.float32(0.1)
    exact = [1000 * Fraction(float(value)), 1000 * Fraction(float(value * value))]

    window = window_of([np.float32(0), *[value] * 1000], np.float32, keep_errors=True)

    plain = window_of([np.float32(0), *[value] * 1000], np.float32)
    for total, error, uncompensated, expected in zip(
        (window.total, window.squares), window.errors, (plain.total, plain.squares), exact, strict=False
    ):
        # The errors of the errors: 1000 of them, each eps² of the sum.
        tolerance = 1000 * float(np.finfo(np.float32).eps) ** 2 * expected
        assert abs(Fraction(float(total)) + Fraction(float(error)) - expected) <= tolerance
        assert abs(Fraction(float(uncompensated)) - expected) > tolerance  # else this shows nothing


def test_kept_errors_change_nothing_in_exact_arithmetic():
    values = [Fraction(value) for value in [4, -2, 5, 0, 3]]

    window = window_of(values, Fraction, keep_errors=True)

    assert window.errors == (0, 0, 0)
    assert window._replace(errors=None) == window_of(values, Fraction)


@pytest.mark.parametrize(
    ("values", "signal", "noise"),
    [
        ([1, 3, 2], Fraction(1, 2), Fraction(3, 2)),
        ([0, 1, 2, 3, 4], 10, 0),
        ([5, 3, 1, -1], 20, 0),
        ([2, 2, 2], 0, 0),
        ([0, 1, 0], 0, Fraction(2, 3)),  # moved, yet without a slope
        ([0, 0, 0, 0, 1], Fraction(2, 5), Fraction(2, 5)),  # signal equals noise
        ([1, 4], Fraction(9, 2), 0),  # two samples always lie on a line
    ],
)
def test_hand_built_windows_are_exact_in_fractions(values: list[int], signal: Fraction, noise: Fraction):
    assert split([Fraction(value) for value in values], Fraction) == (signal, noise)


@pytest.mark.parametrize("num_samples", [2, 3, 10, 50])
def test_agrees_with_polyfit(num_samples: int):
    values = np.random.default_rng(num_samples).normal(size=num_samples)
    positions = np.arange(num_samples)
    line = np.polyval(np.polyfit(positions, values, 1), positions)
    variation = np.sum((values - np.mean(values)) ** 2)
    # Each side sums at most 50 terms of the size of the variation or less: 50 eps = 1e-14 of it. The first
    # sample as the origin costs a factor of (y₀ − mean)² / variance, below 100 here.
    tolerance = {"rtol": 0, "atol": 1e-12 * variation}

    signal, noise = split([float(value) for value in values])

    np.testing.assert_allclose(signal, np.sum((line - np.mean(values)) ** 2), **tolerance)
    np.testing.assert_allclose(noise, np.sum((values - line) ** 2), **tolerance)


def test_arrays_are_fitted_element_by_element():
    values = np.random.default_rng(0).normal(size=(20, 2, 3))

    signal, noise = split(list(values))

    assert signal.shape == noise.shape == (2, 3)
    for index in np.ndindex(2, 3):
        assert (signal[index], noise[index]) == split([float(sample[index]) for sample in values])


def test_python_floats_stay_python_floats():
    signal, noise = split([0.5, 0.25, 2.0])

    assert type(signal) is type(noise) is float


@pytest.mark.parametrize("offset", [1, -7, 10**6])
def test_an_offset_changes_nothing(offset: int):
    """Exactly so in fractions, and in floats as long as offset and sample have room in one number."""
    integers = np.random.default_rng(1).integers(-100, 100, size=30).tolist()
    fractions = [Fraction(value, 7) for value in integers]
    dyadics = [value / 8 for value in integers]

    assert split([value + offset for value in fractions], Fraction) == split(fractions, Fraction)
    assert split([value + offset for value in dyadics]) == split(dyadics)


def test_a_factor_scales_both_alike():
    values = [Fraction(value) for value in [4, -2, 5, 0, 3]]
    signal, noise = split(values, Fraction)

    assert split([3 * value for value in values], Fraction) == (9 * signal, 9 * noise)
