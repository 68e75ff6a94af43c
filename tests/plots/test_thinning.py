"""Courses made fit for a picture."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dlrd.plots.thinning import MAX_BINS, evenly_spread, outline, smoothed


@given(st.integers(1, 20_000), st.integers(0, 2**32 - 1))
def test_the_outline_is_short_and_keeps_ends_and_extremes(num_rows: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=num_rows)
    rows = outline(values)
    assert len(rows) <= 4 * MAX_BINS
    assert np.all(np.diff(rows) > 0)
    assert {0, num_rows - 1, np.argmin(values), np.argmax(values)} <= set(rows.tolist())


def test_the_outline_keeps_gaps() -> None:
    values = np.ones(10_000)
    values[4_000:6_000] = np.nan
    values[5_000] = 7.0
    kept = values[outline(values)]
    assert 7.0 in kept
    assert np.isnan(kept).sum() > 50


def test_few_rows_are_not_smoothed() -> None:
    values = np.arange(99.0) ** 2
    np.testing.assert_array_equal(smoothed(values, np.asarray([], int)), values)


def test_the_mean_stays_between_breaks() -> None:
    values = np.repeat([-1e30, 0.0, 1.0], [1, 499, 500])
    mean = smoothed(values, np.asarray([1, 500]))
    np.testing.assert_array_equal(mean, values)
    mean = smoothed(values, np.asarray([500]))
    assert np.all(mean[:11] < -1e28)
    np.testing.assert_array_equal(mean[11:], values[11:])


def test_the_mean_is_centred() -> None:
    values = np.arange(1000.0)
    mean = smoothed(values, np.asarray([], int))
    np.testing.assert_allclose(mean[10:-10], values[10:-10])
    assert mean[-1] == np.mean(values[-11:])


def test_some_of_many_are_spread_evenly() -> None:
    assert evenly_spread(3, 60).tolist() == [0, 1, 2]
    assert evenly_spread(101, 5).tolist() == [0, 25, 50, 75, 100]
