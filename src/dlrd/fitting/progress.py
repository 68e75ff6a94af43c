"""The progress bar: step, ELBO, rate, signal-to-noise ratio, decays, time left."""

import contextlib
from collections import deque
from collections.abc import Iterator

import numpy as np

from dlrd.fitting.loop import Observer, Rows
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.step import State

SMOOTHED_STEPS = 1000
"""The ELBO shown is the mean over this many of the newest steps."""


@contextlib.contextmanager
def progress_bar(num_steps: int, num_runs: int, num_done: int) -> Iterator[Observer]:
    """Shows a bar on the terminal while the context is open.

    Args:
        num_steps: the budget of steps.
        num_runs: of many runs the bar shows medians.
        num_done: steps done before, in a resumed run.

    Yields:
        The observer that moves the bar.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    newest: deque[np.ndarray] = deque()
    columns = [
        TextColumn("{task.description}{task.completed:,.0f}/{task.total:,.0f}"),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        TimeRemainingColumn(compact=True, table_column=Column(min_width=5)),
        TextColumn("[cyan]{task.fields[reading]}"),
    ]
    with Progress(*columns, expand=True, refresh_per_second=4) as progress:
        name = "" if num_runs == 1 else f"{num_runs}× "
        task = progress.add_task(name, total=num_steps, completed=num_done, reading="compiling")

        def observe(state: State, rows: Rows) -> None:
            width = int(rows.num_done.max())
            newest.append(rows.records.elbo[:, :width])
            while sum(block.shape[1] for block in newest) - newest[0].shape[1] >= SMOOTHED_STEPS:
                newest.popleft()
            elbos = np.concatenate(newest, axis=1)[:, -SMOOTHED_STEPS:]
            error = elbos.std(axis=1) / np.sqrt(elbos.shape[1])
            last = [float(np.median(column[:, width - 1])) for column in rows.records]
            reading = f"ELBO {np.median(elbos.mean(axis=1)):,.2f} ± {np.median(error):.1g}"
            _, _, learning_rate, snr, num_decays = last
            if np.isfinite(learning_rate):
                reading += f" rate {learning_rate:.0e}"
            if np.isfinite(snr):
                reading += f" SNR {snr:.2g}"
            if num_decays:
                reading += f" decays {num_decays:.0f}"
            done = int(np.max(state.step))
            has_ended = np.all(np.asarray(state.outcome) != Outcome.RUNNING.value)
            progress.update(task, completed=done, total=done if has_ended else num_steps, reading=reading)

        yield observe
