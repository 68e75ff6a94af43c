"""Runs with an optimiser: from checked arguments to results."""

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.families import Family
from dlrd.fitting import inputs
from dlrd.fitting.average import value as tail_average
from dlrd.fitting.checkpoint import Checkpoint
from dlrd.fitting.history import Recorder
from dlrd.fitting.loop import Observer, Rows, run
from dlrd.fitting.monitor import Monitor, MonitorFn, log_spaced
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.progress import progress_bar
from dlrd.fitting.result import Fit
from dlrd.fitting.step import Draws, Method, OptimizerOrFactory, State, compiled_start
from dlrd.gradients import Estimator, LogDensity, sticking_the_landing
from dlrd.gradients.estimate import split


def fit_runs(
    log_density: LogDensity,
    family: Family,
    *,
    keys: Key[Array, " run"],
    learning_rates: Float[Array, " run"] | None,
    num_rates: int,
    optimizer: OptimizerOrFactory,
    steps: int,
    num_draws: int,
    gradient: Estimator | None,
    draws: Draws | None,
    average: Literal["tail"] | None,
    checkpoint: str | Path | None,
    monitor: MonitorFn | None,
    monitor_steps: Sequence[int] | np.ndarray | None,
    progress: bool | Callable[[int], None],
) -> list[Fit]:
    """Fits with an optimiser for a number of steps; the arguments are those of `dlrd.fit_many`."""
    started = time.perf_counter()
    inputs.check_count("steps", steps)
    inputs.check_count("num_draws", num_draws)
    inputs.check_family(family)
    inputs.check_log_density(log_density, family)
    gradient = gradient or sticking_the_landing
    draws = draws or "independent"
    if average not in (None, "tail"):
        raise ValueError(f'average must be None or "tail", got {average!r}')
    method = Method(log_density, optimizer, gradient, num_draws, average == "tail", draws)
    inputs.check_draws(draws, family, gradient, num_draws)
    _, rest = split(family)
    state = compiled_start(method)(family, keys, learning_rates)
    recorders = [Recorder.for_budget(steps) for _ in keys]
    watched = None
    if monitor is not None:
        inputs.check_monitor(monitor, family)
        watched = Monitor(monitor, rest, log_spaced(steps) if monitor_steps is None else monitor_steps)
    saved = None
    if checkpoint is not None:
        saved = Checkpoint(Path(checkpoint), method, rest, state, watched)
        state, recorders = saved.restore() or (state, recorders)

    def record(state: State, rows: Rows) -> None:
        for i, recorder in enumerate(recorders):
            recorder.extend(rows.of_run(i))

    def check_start(state: State, rows: Rows) -> None:
        has_failed = (state.step == 0) & (state.outcome == Outcome.DIVERGED.value)
        if jnp.any(has_failed):
            inputs.raise_bad_start(log_density, family, keys[jnp.argmax(has_failed)], num_draws)

    observers: list[Observer] = [check_start, record]
    if watched is not None:
        observers.append(watched)
    with contextlib.ExitStack() as stack:
        if callable(progress):
            observers.append(lambda state, rows: progress(int(jnp.max(state.step))))
        elif progress:
            bar = progress_bar(steps, len(recorders), int(jnp.max(state.step)))
            observers.append(stack.enter_context(bar))
        if saved is not None:
            observers.append(saved.observer(recorders))
        stops = None if watched is None else watched.steps
        state = run(method, rest, state, steps, observers, num_rates, stops)
    if saved is not None:
        saved.write(state, recorders)
    seconds = time.perf_counter() - started
    monitored = {} if watched is None else watched.stacked()
    found = state.trainable
    if state.average is not None:
        found = jax.vmap(tail_average)(state.average, found)
    return [
        Fit(
            family=eqx.combine(jax.tree.map(lambda leaf, i=i: leaf[i], found), rest),
            history=recorder.history(),
            outcome=Outcome(int(state.outcome[i])),
            num_steps=int(state.step[i]),
            num_draws=num_draws,
            seconds=seconds,
            monitored={name: values[i] for name, values in monitored.items()} if watched else None,
        )
        for i, recorder in enumerate(recorders)
    ]
