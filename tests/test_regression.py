"""The line through a window: exactly in fractions, and alike in all array libraries."""

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
import torch

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


class Library(NamedTuple):
    """What a caller of `regression.snr` takes from an array library."""

    asarray_fn: Callable[[np.ndarray], Any]
    where: regression.Where


LIBRARIES = {
    "numpy": Library(np.asarray, np.where),
    "jax": Library(jnp.asarray, jnp.where),
    "torch": Library(torch.as_tensor, torch.where),
}
EDGES = {
    "ordinary": ([1, 3, 2], 1 / 3, True),
    "signal equals noise": ([0, 0, 0, 0, 1], 1, True),
    "no slope": ([0, 1, 0], 0, True),
    "line": ([5, 3, 1, -1], np.inf, True),
    "line far away": ([1e6 + value / 8 for value in range(300)], np.inf, True),
    "line within rounding": ([0.1 * value for value in range(50)], np.inf, True),
    "frozen": ([0.1] * 20, 0, False),
    "frozen after a step": ([0] + [3] * 4, 1, True),
    "tiny": ([1e-15, 3e-15, 2e-15], 1 / 3, True),
}


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    return LIBRARIES[request.param]


def snr_of(values: np.ndarray, library: Library) -> tuple[np.ndarray, np.ndarray]:
    """Of columns of samples, in their own type all along, and without a warning."""
    position = values.dtype.type(len(values) - 1)
    window = window_of([library.asarray_fn(row) for row in values], values.dtype.type)
    ratio, has_moved = regression.snr(window, position, float(np.finfo(values.dtype).eps), library.where)
    assert np.asarray(ratio).dtype == values.dtype
    assert np.asarray(has_moved).dtype == bool
    return np.asarray(ratio), np.asarray(has_moved)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.usefixtures("x64")
def test_edges_of_the_ratio(library: Library, edge: str, dtype: str):
    values, expected, moves = EDGES[edge]
    ratio, has_moved = snr_of(np.asarray(values, dtype)[:, None], library)
    # Some ten roundings of sums that are no larger than a few times their difference.
    np.testing.assert_allclose(ratio, expected, rtol=100 * np.finfo(dtype).eps)
    assert has_moved == moves


@pytest.mark.parametrize("name", ["jax", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.usefixtures("x64")
def test_all_libraries_agree_to_the_last_digit(name: str, dtype: str):
    """Step by step they do the same operations, each rounded alike."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(40, 300)) * 10.0 ** rng.integers(-6, 6, size=300)
    values[:, ::5] = values[0, ::5]
    values[:, 1::5] = np.arange(40)[:, None] * values[0, 1::5]

    ratio, has_moved = snr_of(values.astype(dtype), LIBRARIES[name])

    expected_ratio, expected_moved = snr_of(values.astype(dtype), LIBRARIES["numpy"])
    np.testing.assert_array_equal(ratio, expected_ratio)
    np.testing.assert_array_equal(has_moved, expected_moved)
    assert {0.0, np.inf} < set(ratio.tolist())
    assert np.sum(~has_moved) == 60


def test_the_ratio_of_fractions_is_exact():
    """Plain numbers need no library: an `if` chooses, and nothing is rounded."""
    ratio_fn = functools.partial(
        regression.snr, epsilon=0, where=lambda condition, left, right: left if condition else right
    )
    for values, expected, moves in [
        ([1, 3, 2], Fraction(1, 3), True),
        ([Fraction(1, 3), Fraction(2, 3), 1], float("inf"), True),
        ([2, 2, 2], 0, False),
    ]:
        window = window_of([Fraction(value) for value in values], Fraction)
        assert ratio_fn(window, Fraction(len(values) - 1)) == (expected, moves)
