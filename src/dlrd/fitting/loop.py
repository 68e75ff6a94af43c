"""The loop: compiled chunks of steps, and between them, on the host, all that a person sees."""

import functools
import time
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dlrd.families import Family
from dlrd.fitting.interrupt import catch_interrupt
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.program import Program
from dlrd.fitting.step import Method, Record, State, advance

CHUNK_SECONDS = 0.25
"""How long a chunk aims to take: short enough for a person to wait for, long beside the host's share."""
MAX_ROWS = 2**14
"""Steps that a chunk can record, over all runs."""


class Rows(NamedTuple):
    """What a chunk recorded, on the host."""

    records: Record  # arrays of shape (run, step)
    num_done: np.ndarray  # how many of the columns count, per run

    def of_run(self, run: int) -> Record:
        """The records of one run."""
        return Record(*(column[run, : self.num_done[run]] for column in self.records))


class Observer(Protocol):
    """Looks at the fit after each chunk."""

    def __call__(self, state: State, rows: Rows, /) -> None: ...


def run(
    method: Method,
    rest: Family,
    state: State,
    num_steps: int,
    observers: list[Observer],
    num_rates: int = 1,
    stops: Int[np.ndarray, " stop"] | None = None,
    deadline: float = float("inf"),
) -> State:
    """Advances all runs of `state` until each has ended or done `num_steps` steps; Ctrl-C ends them early.

    The length of the chunks follows the clock; what they compute does not depend on it.

    Args:
        method: what a step does.
        rest: the family without its trainable arrays.
        state: arrays with a leading axis, one entry a run.
        num_steps: the whole budget, steps done earlier included.
        observers: called after each chunk.
        num_rates: how often the keys repeat: each key is run with so many learning rates.
        stops: steps, in order, after which a chunk has to end.
        deadline: by `time.monotonic`; the chunk that has begun by then is the last.

    Returns:
        The state at the end, each run with its outcome.
    """
    capacity = _capacity(state)
    chunk = _program(method)
    length = 1  # the first chunk compiles, and finds a bad start
    with catch_interrupt() as is_interrupted:
        while not is_interrupted():
            if time.monotonic() > deadline:
                return _ended(state, Outcome.BUDGET)
            done = np.asarray(state.step)
            is_running = np.asarray(state.outcome) == Outcome.RUNNING.value
            if not is_running.any():
                return state
            left = num_steps - done[is_running].max()
            if left <= 0:
                return _ended(state, Outcome.BUDGET)
            if stops is not None:
                left = min([left, *(stops - num_steps + left)[stops > num_steps - left][:1]])
            length = int(min(length, left, capacity))
            started = time.perf_counter()
            state, table = jax.block_until_ready(chunk(method, num_rates, rest, state, np.int32(length)))
            seconds = time.perf_counter() - started
            rows = Rows(Record(*np.asarray(table).T), np.asarray(state.step) - done)
            for observe in observers:
                observe(state, rows)
            length = min(8 * length, max(1, round(length * CHUNK_SECONDS / seconds)))
    return _ended(state, Outcome.INTERRUPTED)


def prepare_steps(method: Method, rest: Family, state: State) -> None:
    """Begins to compile what `run` needs for a state like this."""
    _program(method).prepare(method, 1, rest, state, np.int32(1))


def _capacity(state: State) -> int:
    """Steps that a chunk can record."""
    return max(MAX_ROWS // len(state.step), 64)


def _steps(
    method: Method, num_rates: int, rest: Family, state: State, length: Int[Array, ""]
) -> tuple[State, Float[Array, "..."]]:
    """A chunk of `length` steps, and what it records."""
    num_keys = len(state.step) // num_rates
    keys = state.key[:num_keys] if num_keys > 1 else state.key[0]
    key_fn, step_fn = jax.random.fold_in, functools.partial(advance, method, rest)
    # Runs of one key share its draws. An axis of length one is left out: it would slow many operations.
    if num_rates > 1:
        step_fn = jax.vmap(step_fn, in_axes=(0, None))
    if num_keys > 1:
        key_fn, step_fn = jax.vmap(key_fn, in_axes=(0, None)), jax.vmap(step_fn)
    grid = tuple(size for size in (num_keys, num_rates) if size > 1)

    def to_grid(leaf: Array) -> Array:
        by_rate = leaf.reshape(num_rates, num_keys, *leaf.shape[1:])
        return jnp.swapaxes(by_rate, 0, 1).reshape(*grid, *leaf.shape[1:])

    def from_grid(leaf: Array) -> Array:
        rest_shape = leaf.shape[len(grid) :]
        by_rate = jnp.swapaxes(leaf.reshape(num_keys, num_rates, *rest_shape), 0, 1)
        return by_rate.reshape(num_rates * num_keys, *rest_shape)

    def body(carry: tuple[Array, State, Array]) -> tuple[Array, State, Array]:
        index, state, table = carry
        state, record = step_fn(state, key_fn(keys, first_step + index))
        # Not table.at[index].set, which first checks the index.
        table = jax.lax.dynamic_update_index_in_dim(table, jnp.stack(record, axis=-1), index, 0)
        return index + 1, state, table

    def has_more(carry: tuple[Array, State, Array]) -> Array:
        index, state, _ = carry
        return (index < length) & jnp.any(state.outcome == Outcome.RUNNING.value)

    capacity = _capacity(state)
    is_running = state.outcome == Outcome.RUNNING.value
    first_step = jnp.max(state.step, initial=0, where=is_running)  # the same for all that run
    state = jax.tree.map(to_grid, state)
    table = jnp.zeros((capacity, *grid, len(Record._fields)), dtype=float)
    _, state, table = jax.lax.while_loop(has_more, body, (jnp.zeros_like(length), state, table))
    return jax.tree.map(from_grid, state), jax.vmap(from_grid)(table)


_chunk = Program(_steps, is_quick=False)
"""Compiled at most once for each method and shape of the state; a second fit finds it."""
_short_chunk = Program(_steps)
"""The same for short fits."""


def _program(method: Method) -> Program:
    return _short_chunk if method.is_short else _chunk


def _ended(state: State, outcome: Outcome) -> State:
    """The state with `outcome` for all runs that have none yet."""
    now = np.asarray(state.outcome)
    ended = np.where(now == Outcome.RUNNING.value, np.int32(outcome.value), now)
    return state._replace(outcome=jax.device_put(ended))
