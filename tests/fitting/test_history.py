"""Histories: thinned, complete, and independent of where the chunks end."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrd.fitting.history import MAX_ROWS, Recorder
from dlrd.fitting.step import Record


def records(num_steps: int, decays: tuple[int, ...] = ()) -> Record:
    rng = np.random.default_rng(0)
    num_decays = np.zeros(num_steps)
    for step in decays:
        num_decays[step - 1 :] += 1
    return Record(
        elbo=rng.normal(size=num_steps),
        elbo_variance=rng.uniform(1, 2, size=num_steps),
        learning_rate=0.1**num_decays,
        snr=rng.uniform(size=num_steps),
        num_decays=num_decays,
    )


def part(record: Record, start: int, stop: int) -> Record:
    return Record(*(column[start:stop] for column in record))


def test_short_runs_keep_every_step() -> None:
    recorder = Recorder.for_budget(50)
    recorder.extend(records(50, decays=(1, 20)))
    history = recorder.history()
    np.testing.assert_array_equal(history.step, np.arange(1, 51))
    np.testing.assert_array_equal(history.elbo, records(50).elbo)
    np.testing.assert_array_equal(history.decays, [1, 20])


def test_long_runs_keep_means() -> None:
    num_steps = 3 * MAX_ROWS - 1
    recorder = Recorder.for_budget(num_steps)
    record = records(num_steps, decays=(5, 29_000))
    recorder.extend(record)
    history = recorder.history()
    assert len(history.step) == MAX_ROWS
    np.testing.assert_array_equal(history.step[:2], [3, 6])
    assert history.step[-1] == num_steps  # the last row is not full
    assert history.elbo[0] == pytest.approx(record.elbo[:3].mean())
    assert history.elbo[-1] == pytest.approx(record.elbo[-2:].mean())
    # Three independent means: their variances add up, divided by the square of their number.
    assert history.elbo_error[0] == pytest.approx(np.sqrt(record.elbo_variance[:3].sum()) / 3)
    assert history.snr[0] == record.snr[2]
    np.testing.assert_array_equal(history.decays, [5, 29_000])


@given(
    st.integers(1, 7),
    st.lists(st.integers(0, 60), max_size=6),
    st.lists(st.integers(1, 60), unique=True, max_size=4),
)
def test_chunks_do_not_matter(every: int, cuts: list[int], decays: list[int]) -> None:
    record = records(60, tuple(decays))
    whole, pieces = Recorder(every), Recorder(every)
    whole.extend(record)
    edges = [0, *sorted(cuts), 60]
    for start, stop in itertools.pairwise(edges):
        pieces.extend(part(record, start, stop))
    for name, column in vars(whole.history()).items():
        np.testing.assert_array_equal(column, getattr(pieces.history(), name), err_msg=name)
    np.testing.assert_array_equal(whole.history().decays, sorted(decays))


def test_empty() -> None:
    history = Recorder(1).history()
    assert len(history.step) == len(history.decays) == 0
