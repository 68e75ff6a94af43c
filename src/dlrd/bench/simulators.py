"""`dlrd bench simulators`: what many workers gain, what a run costs besides itself, what few runs buy."""

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import dlrd
from dlrd.bench.few_runs import few_runs
from dlrd.bench.table import print_table, write
from dlrd.bench.timing import COLUMNS, Row, in_words, seconds
from dlrd.models import priors
from dlrd.simulation import Question, Session, Simulation
from dlrd.simulation.session import Policy

SLEEP = 0.2
"""Seconds that a run takes."""
NUM_WORKERS = 8
NUM_IDLE = 400
"""Runs that do nothing, in batches of so many as there are workers."""


def run(out: Path) -> list[Row]:
    """Runs all comparisons; prints and writes them."""
    rows = [speed_up(1), speed_up(16), *overhead()]
    values = [row.__dict__ | {"ratio": row.ratio, "is_reached": row.is_reached} for row in rows]
    print_table("What workers gain, and what a run costs", COLUMNS, [in_words(row) for row in rows])
    write(out / "simulators", values, budgets=few_runs())
    return rows


def speed_up(num_starts: int) -> Row:
    """A whole fit of two parameters, from the call to the result, with one worker and with eight."""
    taken = {num: _fit_seconds(num, num_starts) for num in (1, NUM_WORKERS)}
    return Row(
        f"fit with runs of {SLEEP:g} s, starts={num_starts}, {NUM_WORKERS} workers",
        "one worker",
        taken[NUM_WORKERS],
        taken[1],
        "s",
        reach=6.0,
        is_speedup=True,
    )


def _fit_seconds(num_workers: int, num_starts: int) -> float:
    def sleeping(x: np.ndarray) -> Any:
        time.sleep(SLEEP)
        return np.array([x[0], x[1] + 0.1 * x[0] ** 2]), np.array([[1.0, 0.0], [0.2 * x[0], 1.0]])

    prior = {"a": priors.normal(), "b": priors.normal(1.0, 1.0)}
    model = dlrd.models.simulator(sleeping, prior, np.array([0.5, 1.5]), 0.3, workers=num_workers)
    with jax.enable_x64(True):
        taken = seconds(lambda: dlrd.fit(model, tolerance=0.05, starts=num_starts, progress=False))
    print(f"{num_workers} worker(s), {num_starts} start(s): {taken:.1f} s. {model.runs_notes[0]}")
    model.close()
    return taken


def overhead() -> list[Row]:
    """Of runs that do nothing: all of it beside the 2 ms to reach, and beside what Dask takes by itself."""
    points = np.random.default_rng(0).normal(size=(2 * NUM_IDLE, 3))
    session = Session(Simulation(_nothing), NUM_WORKERS, None, ["a", "b", "c"], Policy(), "")
    session.ask([Question(point) for point in points[:NUM_WORKERS]])  # starts the processes
    client = session._workers._connected()
    batches = np.array_split(points[NUM_WORKERS : NUM_WORKERS + NUM_IDLE], NUM_IDLE // NUM_WORKERS)
    ours, theirs = [], []
    for batch in batches:
        ours.append(seconds(lambda batch=batch: session.ask([Question(point) for point in batch])))
        theirs.append(seconds(lambda batch=batch: _by_dask_alone(client, batch)))
    session.close()
    mine, dask = (1e3 * float(np.median(each)) / NUM_WORKERS for each in (ours, theirs))
    what = f"a run that does nothing, of {NUM_WORKERS} at a time"
    return [
        Row(what, "2 ms more than Dask alone", mine, dask + 2.0, "ms", reach=1.0, is_speedup=False),
        Row(what, "Dask alone", mine, dask, "ms", reach=2.0, is_speedup=False),
    ]


def _nothing(x: np.ndarray) -> np.ndarray:
    return x


def _by_dask_alone(client: Any, points: np.ndarray) -> None:
    from distributed import as_completed

    futures = [client.submit(_nothing, point, pure=False) for point in points]
    for future in as_completed(futures, loop=client.loop):
        future.result()
