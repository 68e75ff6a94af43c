"""The loop: chunks of steps, however they are cut; who looks on, and how it ends."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dlrd
from dlrd.families import split
from dlrd.fitting import loop
from dlrd.fitting.loop import MAX_ROWS, Rows, run
from dlrd.fitting.step import Method, Record, State, initial_states
from dlrd.gradients import Estimate
from dlrd.models import FunctionModel

MODEL = FunctionModel(jnp.sum, (1,))
FAMILY = dlrd.MeanFieldNormal.standard(1)
REST = split(FAMILY)[1]
TRACES: list[int] = []


def wandering(model: Any, family: Any, key: jax.Array, num_draws: int) -> Estimate:
    """A gradient of noise alone; the ELBO is the mean, which is not finite beyond 9."""
    TRACES.append(len(TRACES))
    elbo = jnp.where(family.loc[0] < 9, family.loc[0], jnp.nan)
    noise = jax.random.normal(key, (1,))
    return Estimate(jnp.full(num_draws, elbo), dlrd.MeanFieldNormal(noise, jnp.zeros(1)))


METHOD = Method(MODEL, optax.sgd(0.1), wandering, num_draws=2)
RATED = Method(MODEL, optax.sgd, wandering, num_draws=2)


class Seen:
    """An observer that keeps what it sees."""

    def __init__(self) -> None:
        self.steps: list[list[int]] = []  # of each run, after each chunk
        self.rows: list[Rows] = []

    def __call__(self, state: State, rows: Rows) -> None:
        self.steps.append(np.asarray(state.step).tolist())
        self.rows.append(rows)

    def elbos(self, index: int = 0) -> np.ndarray:
        return np.concatenate([rows.of_run(index).elbo for rows in self.rows])


def started(num_keys: int = 1, rates: tuple[float, ...] | None = None) -> State:
    """Each rate with each key."""
    keys = jax.random.split(jax.random.key(0), num_keys)
    if rates is None:
        return initial_states(METHOD, FAMILY, keys, None)
    return initial_states(RATED, FAMILY, jnp.tile(keys, len(rates)), jnp.repeat(jnp.asarray(rates), num_keys))


def looped(num_steps: int, state: State | None = None, **options: Any) -> tuple[State, Seen]:
    seen, state = Seen(), started() if state is None else state
    method = METHOD if state.learning_rate is None else RATED
    return run(method, REST, state, num_steps, [seen], **options), seen


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets how many seconds a chunk aims to take."""
    return lambda seconds: monkeypatch.setattr(loop, "CHUNK_SECONDS", seconds)


def test_it_ends_with_the_budget() -> None:
    state, seen = looped(100)
    assert state.step.tolist() == [100]
    assert state.outcome.tolist() == [dlrd.Outcome.BUDGET.value]
    assert sum(rows.num_done[0] for rows in seen.rows) == 100
    assert seen.steps[0] == [1]  # the first chunk, which compiles, is a single step
    assert len(seen.elbos()) == 100


def test_chunks_do_not_change_the_result(chunks: Callable[[float], None]) -> None:
    found = []
    for seconds in (1e-9, 1e9):  # of a single step; as long as they can be
        chunks(seconds)
        found.append(looped(100))
    (single, seen_singly), (long, seen_long) = found
    assert len(seen_singly.rows) == 100
    assert len(seen_long.rows) < 10
    np.testing.assert_array_equal(single.trainable.loc, long.trainable.loc)
    np.testing.assert_array_equal(seen_singly.elbos(), seen_long.elbos())


def test_going_on_is_the_same_as_going_through() -> None:
    whole, seen = looped(60)
    half, first = looped(25)
    resumed, second = looped(60, half._replace(outcome=jnp.zeros_like(half.outcome)))
    np.testing.assert_array_equal(resumed.trainable.loc, whole.trainable.loc)
    np.testing.assert_array_equal(np.concatenate([first.elbos(), second.elbos()]), seen.elbos())


def test_chunks_grow_eightfold_at_the_most(chunks: Callable[[float], None]) -> None:
    chunks(1e9)
    _, seen = looped(2 * MAX_ROWS)
    lengths = [int(rows.num_done[0]) for rows in seen.rows]
    assert lengths[:5] == [1, 8, 64, 512, 4096]
    assert max(lengths) <= MAX_ROWS  # what the table of records holds


def test_chunks_end_where_they_have_to(chunks: Callable[[float], None]) -> None:
    chunks(1e9)
    _, seen = looped(50, stops=np.array([1, 5, 6, 10]))
    # Behind the last stop, where a chunk had four steps, it has eight times as many.
    assert [steps for (steps,) in seen.steps] == [1, 5, 6, 10, 42, 50]


def test_it_compiles_once_for_all_chunks_and_for_a_second_run(chunks: Callable[[float], None]) -> None:
    chunks(1e-9)
    looped(5)
    num_traces = len(TRACES)
    looped(7)
    assert len(TRACES) == num_traces > 0


def test_an_interrupt_ends_it_behind_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()

    @contextlib.contextmanager
    def pressed_in_the_second_chunk() -> Iterator[Callable[[], bool]]:
        yield lambda: len(seen.rows) == 2

    monkeypatch.setattr(loop, "catch_interrupt", pressed_in_the_second_chunk)
    state = run(METHOD, REST, started(), 10**6, [seen])
    assert len(seen.rows) == 2
    assert state.outcome.tolist() == [dlrd.Outcome.INTERRUPTED.value]
    assert state.step.tolist() == seen.steps[-1]


def test_runs_that_have_ended_do_not_go_on() -> None:
    state = started()._replace(outcome=jnp.asarray([dlrd.Outcome.DIVERGED.value]))
    after, seen = looped(10, state)
    assert seen.rows == []
    assert after is state


def test_a_failing_run_does_not_harm_the_others() -> None:
    """Steps of 50 times the noise lead beyond 9 soon, those of a tenth do not."""
    state, seen = looped(20, started(rates=(50.0, 0.1)), num_rates=2)
    assert state.outcome.tolist() == [dlrd.Outcome.DIVERGED.value, dlrd.Outcome.BUDGET.value]
    failed, other = state.step.tolist()
    assert failed < other == 20
    assert (len(seen.elbos(0)), len(seen.elbos(1))) == (failed, other)
    assert np.isfinite(seen.elbos(0)).all()
    np.testing.assert_array_equal(
        state.trainable.loc[1], looped(20, started(rates=(0.1,)))[0].trainable.loc[0]
    )


def test_runs_of_one_key_share_its_draws() -> None:
    """The way is the rate times the noise: for each key twice as long with twice the rate."""
    state, _ = looped(20, started(num_keys=3, rates=(0.125, 0.25)), num_rates=2)
    ways = np.asarray(state.trainable.loc[:, 0])
    np.testing.assert_allclose(ways[3:], 2 * ways[:3], rtol=1e-6)
    assert len(np.unique(ways)) == 6


def test_rows_of_a_run_are_those_that_count() -> None:
    table = np.arange(6.0).reshape(2, 3)
    rows = Rows(Record(*(table + 10 * field for field in range(len(Record._fields)))), np.array([3, 1]))
    np.testing.assert_array_equal(rows.of_run(0).elbo, [0, 1, 2])
    np.testing.assert_array_equal(rows.of_run(1).snr, [33])
