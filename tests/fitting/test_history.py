"""Histories: thinned, complete, and independent of where the chunks end."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrd.fitting.history import MAX_ROWS, Recorder
from dlrd.fitting.step import Record


def records(num_steps: int, decays: tuple[int, ...] = (), resets: tuple[int, ...] = ()) -> Record:
    rng = np.random.default_rng(0)
    num_decays = np.zeros(num_steps)
    for step in decays:
        num_decays[step - 1 :] += 1
    for step in resets:
        num_decays[step - 1 :] = 0  # the rule starts anew
    return Record(
        elbo=rng.normal(size=num_steps),
        elbo_variance=rng.uniform(1, 2, size=num_steps),
        learning_rate=0.1**num_decays,
        snr=rng.uniform(size=num_steps),
        num_decays=num_decays,
        num_resets=np.sum([np.arange(1, num_steps + 1) >= step for step in resets], axis=0)
        * np.ones(num_steps),
        num_failed=rng.integers(3, size=num_steps),
    )


def part(record: Record, start: int, stop: int) -> Record:
    return Record(*(column[start:stop] for column in record))


def test_short_runs_keep_every_step() -> None:
    recorder = Recorder.for_budget(50).extended(records(50, decays=(1, 20)))
    history = recorder.history()
    np.testing.assert_array_equal(history.step, np.arange(1, 51))
    np.testing.assert_array_equal(history.elbo, records(50).elbo)
    np.testing.assert_array_equal(history.decays, [1, 20])


def test_long_runs_keep_means() -> None:
    num_steps = 3 * MAX_ROWS - 1
    record = records(num_steps, decays=(5, 29_000))
    history = Recorder.for_budget(num_steps).extended(record).history()
    assert len(history.step) == MAX_ROWS
    np.testing.assert_array_equal(history.step[:2], [3, 6])
    assert history.step[-1] == num_steps  # the last row is not full
    assert history.elbo[0] == pytest.approx(record.elbo[:3].mean())
    assert history.elbo[-1] == pytest.approx(record.elbo[-2:].mean())
    # Three independent means: their variances add up, divided by the square of their number.
    assert history.elbo_error[0] == pytest.approx(np.sqrt(record.elbo_variance[:3].sum()) / 3)
    assert history.snr[0] == record.snr[2]
    assert history.failed[0] == record.num_failed[:3].sum()
    assert history.failed.sum() == record.num_failed.sum()
    np.testing.assert_array_equal(history.decays, [5, 29_000])


@given(
    st.integers(1, 7),
    st.lists(st.integers(0, 60), max_size=6),
    st.lists(st.integers(1, 60), unique=True, max_size=4),
)
def test_chunks_do_not_matter(every: int, cuts: list[int], decays: list[int]) -> None:
    record = records(60, tuple(decays))
    whole, pieces = Recorder(every).extended(record), Recorder(every)
    edges = [0, *sorted(cuts), 60]
    for start, stop in itertools.pairwise(edges):
        pieces = pieces.extended(part(record, start, stop))
    for name, column in vars(whole.history()).items():
        np.testing.assert_array_equal(column, getattr(pieces.history(), name), err_msg=name)
    np.testing.assert_array_equal(whole.history().decays, sorted(decays))


def test_empty() -> None:
    history = Recorder(1).history()
    assert len(history.step) == len(history.decays) == 0


def test_checkpointed_and_restored() -> None:
    recorder = Recorder(every=4).extended(records(30, decays=(3, 17)))
    data = json.loads(json.dumps(recorder.data()))
    restored = Recorder.restored(recorder.arrays("7."), data, "7.")
    for each in (recorder, restored):
        longer = each.extended(records(9)).history()
        np.testing.assert_array_equal(longer.step[-1], 39)
        np.testing.assert_array_equal(longer.elbo, recorder.extended(records(9)).history().elbo)
    assert restored.decays == recorder.decays == (3, 17)


@pytest.mark.parametrize(("every", "num_steps", "num_rows"), [(1, 5, 5), (4, 8, 2), (4, 1, 1), (4, 100, 8)])
def test_latest_records(every: int, num_steps: int, num_rows: int) -> None:
    record = records(30)
    latest = Recorder(every).extended(record).latest(num_steps)
    assert len(latest.elbo) == num_rows
    assert latest.snr[-1] == record.snr[-1]


def test_nothing_is_latest_at_first() -> None:
    assert len(Recorder(3).latest(10).elbo) == 0


def test_resets_are_kept_and_the_decays_before_and_after_them() -> None:
    record = records(30, decays=(3, 9), resets=(12, 20))
    record.num_decays[24:] = 1
    restored = Recorder(every=4).extended(part(record, 0, 13))
    restored = Recorder.restored(restored.arrays(), json.loads(json.dumps(restored.data())))
    history = restored.extended(part(record, 13, 30)).history()
    np.testing.assert_array_equal(history.resets, [12, 20])
    np.testing.assert_array_equal(history.decays, [3, 9, 25])


def test_what_is_not_finite_is_left_out_of_a_rows_mean() -> None:
    record = records(8)
    record.elbo[[1, 4, 5, 6, 7]] = [np.inf, np.nan, -np.inf, np.inf, np.nan]
    history = Recorder(every=4).extended(record).history()
    assert history.elbo[0] == pytest.approx(record.elbo[[0, 2, 3]].mean())
    assert np.isnan(history.elbo[1])
