"""A fifth of the runs fail, in every way, and workers are killed: the same posterior, nothing left."""

import contextlib
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import dlrd
from dlrd.models import priors
from dlrd.simulation.log import read
from dlrd.simulation.run import Status

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left", "x64")]
DATA, NOISE = np.array([2.0, 0.5]), 0.3


def whole(x: np.ndarray) -> Any:
    return np.array([x[0] + x[1], x[0] * x[1]]), np.array([[1.0, 1.0], [x[1], x[0]]])


def values(x: np.ndarray) -> Any:
    return whole(x)[0]


def faulty(answer_fn: Callable[[np.ndarray], Any], folder: str) -> Callable[[np.ndarray], Any]:
    """Every fifth run of a process fails, by a crash, a hang, nan or a shape; it leaves a note first."""
    calls, kinds = itertools.count(1), itertools.cycle(["exit code", "time limit", "nan", "shape"])

    def run(x: np.ndarray) -> Any:
        time.sleep(0.02)
        # A process that has crashed or hung is a new one afterwards, which begins to count elsewhere.
        if (next(calls) + os.getpid()) % 5:
            return answer_fn(x)
        for _ in range(os.getpid() % 4):
            next(kinds)
        kind = next(kinds)
        Path(folder, f"{kind} {time.time()} {os.getpid()}").touch()
        if kind == "exit code":
            os._exit(3)
        if kind == "time limit":
            time.sleep(1000)
        return (np.full(2, np.nan) if kind == "nan" else np.ones(5)), np.ones((2, 2))

    return run


@pytest.mark.parametrize("answer_fn", [whole, values])
def test_faults_of_all_kinds(
    answer_fn: Callable[[np.ndarray], Any], tmp_path: Path, running: Callable[[], list[int]]
) -> None:
    def kill() -> None:
        rng = random.Random(0)
        while not is_over.wait(3.0):
            with contextlib.suppress(ProcessLookupError, IndexError):
                os.kill(rng.choice(running()), signal.SIGKILL)

    notes, log = tmp_path / "notes", tmp_path / "runs.jsonl"
    notes.mkdir()
    prior = {"a": priors.normal(), "b": priors.normal(1.0, 1.0)}
    run = faulty(answer_fn, str(notes))
    model = dlrd.models.simulator(run, prior, DATA, NOISE, workers=4, log=log, time_limit=1.0)
    is_over = threading.Event()
    killer = threading.Thread(target=kill)
    killer.start()
    found = dlrd.fit(model, starts=2, max_gradients=12_000, progress=False)
    is_over.set()
    killer.join()
    model.close()
    safe = dlrd.models.simulator(whole, prior, DATA, NOISE, workers=2)
    expected = dlrd.fit(safe, starts=2, progress=False)
    safe.close()
    print(found.sentence, expected.sentence, sep="\n")
    assert found.outcome is expected.outcome is dlrd.Outcome.CERTIFIED
    one, other = found.summary(), expected.summary()
    # Both are within 0.01 nats of the best normal: means within √0.02 of a standard deviation each.
    np.testing.assert_allclose(one.mean / other.std, other.mean / other.std, atol=2 * 0.02**0.5)
    np.testing.assert_allclose(one.std, other.std, rtol=2 * 0.02**0.5)
    kept = Counter(record.answer.status.value for record in read(log)[1])
    made = Counter(path.name.rpartition(" ")[0].rpartition(" ")[0] for path in notes.iterdir())
    share = sum(made.values()) / sum(kept.values())
    assert 0.1 < share < 0.3
    num_lost = kept.pop(Status.LOST.value)
    del kept[Status.OK.value]
    # A run that was about to fail when it was killed has left a note and is lost.
    assert set(kept) == set(made)
    assert all(kept[kind] <= made[kind] for kind in made)
    assert sum(made.values()) - sum(kept.values()) <= num_lost
