"""All batches on all cores: one process a core, the longest first."""

import contextlib
import multiprocessing
import os
import queue
import signal
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from dlrd.paper.experiments.spec import Batch

_COSTS = {"synthetic-1d": 2, "synthetic": 5, "logistic": 60, "field": 700, "mixture": 60, "flow": 800}
"""Microseconds a step of a run, roughly: for the order and the progress bar."""
_COST_OF_DRAW = {"synthetic": 2.3}
"""Microseconds a draw, where their number varies."""


def cost(batch: Batch) -> float:
    """About how many seconds a batch takes on one core."""
    per_step = _COSTS[batch.problem] + _COST_OF_DRAW.get(batch.problem, 0) * batch.num_draws
    return 3 + per_step * 1e-6 * batch.steps * batch.num_seeds * len(batch.settings)


def usable_cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def run_all(batches: list[Batch], folder: Path) -> None:
    """Runs the batches that have no results in `folder` yet, and shows how far they are."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    cores = usable_cores()
    context = multiprocessing.get_context("spawn")
    messages, free_cores = context.Queue(), context.Queue()
    for core in cores:
        free_cores.put(core)
    # References first: they are short, and other batches wait for them.
    jobs: list[tuple[str, Any]] = [
        ("reference", name) for name in ("field", "logistic") if _is_needed(name, batches)
    ]
    jobs += [("batch", batch) for batch in sorted(batches, key=cost, reverse=True)]
    columns = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    ]
    pool = ProcessPoolExecutor(len(cores), context, _start_worker, (messages, free_cores))
    with Progress(*columns, expand=True, refresh_per_second=2) as progress, _terminated(pool):
        total = progress.add_task("[bold]all", total=sum(map(cost, batches)))
        tasks = {
            batch.name: progress.add_task(batch.name, total=batch.steps, visible=False) for batch in batches
        }
        done = dict.fromkeys(tasks, 0)
        by_name = {batch.name: batch for batch in batches}
        pending: set[Future[None]] = {pool.submit(_work, kind, what, folder) for kind, what in jobs}
        while pending:
            finished, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
            with contextlib.suppress(queue.Empty):
                while True:
                    name, steps = messages.get_nowait()
                    done[name] = steps
                    is_done = steps >= by_name[name].steps
                    progress.update(tasks[name], completed=steps, visible=not is_done)
            share = sum(cost(batch) * done[name] / batch.steps for name, batch in by_name.items())
            progress.update(total, completed=share)
            for future in finished:
                future.result()


@contextlib.contextmanager
def _terminated(pool: ProcessPoolExecutor) -> Iterator[None]:
    """Ends the workers at once if anything goes wrong or Ctrl-C is pressed: nothing of theirs is lost."""
    try:
        yield
    except BaseException:
        for process in list(pool._processes.values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


_messages: Any = None


def _start_worker(messages: Any, free_cores: Any) -> None:
    global _messages
    _messages = messages
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends this process
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {free_cores.get()})  # threads of two processes on one core hinder each other


def _work(kind: str, what: Any, folder: Path) -> None:
    if kind == "reference":
        import jax

        from dlrd.paper.experiments.targets import TARGETS

        with jax.enable_x64(True):
            TARGETS[what](folder / "references")
        return
    from dlrd.paper.experiments.batch import run_batch

    run_batch(what, folder, lambda steps: _messages.put((what.name, steps)))
    _messages.put((what.name, what.steps))


def _is_needed(problem: str, batches: list[Batch]) -> bool:
    return any(batch.problem == problem for batch in batches)
