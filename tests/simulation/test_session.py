"""Sessions: no run twice, failed ones again, all counted and kept."""

import contextlib
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from dlrd.simulation.log import read
from dlrd.simulation.run import Answer, Question, Simulation, Status
from dlrd.simulation.session import Policy, Session

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = pytest.mark.usefixtures("nothing_left")
NUM = 24
POINTS = np.arange(2.0 * NUM).reshape(NUM, 2)


def session(run_fn: Any, log: Path | None = None, time_limit: float | None = None, **policy: Any) -> Session:
    made = Session(Simulation(run_fn, None, time_limit), 2, log, ["a", "b"], Policy(**policy), "")
    made.shape = (2,)
    return made


def ask(session: Session, points: np.ndarray = POINTS, **question: Any) -> list[Answer]:
    return session.ask([Question(point, **question) for point in points])


def test_known_answers_are_not_asked_for_again(tmp_path: Path) -> None:
    def run(x: np.ndarray) -> Any:
        (tmp_path / f"{x[0]} {time.time()} {os.getpid()}").touch()
        return 2 * x, 2 * np.eye(2)

    def num_run() -> int:
        return len(list(tmp_path.iterdir()))

    log = tmp_path.with_suffix(".jsonl")
    first = session(run, log)
    answers = ask(first, np.concatenate([POINTS, POINTS]), has_gradient=True)
    np.testing.assert_array_equal(
        [answer.outputs for answer in answers], 2 * np.concatenate([POINTS, POINTS])
    )
    assert num_run() == NUM
    ask(first)  # outputs alone, of which more is known
    assert num_run() == NUM
    ask(first, sensitivity=np.ones(2), has_gradient=True)  # another question
    assert num_run() == 2 * NUM
    assert first.sentence.startswith(f"{2 * NUM} runs, 0 in flight, 0 failed, ")
    assert first.sentence.endswith(" s a run, 2 workers")
    assert first.warnings == []
    first.close()
    again = session(run, log)
    ask(again, has_gradient=True)
    assert num_run() == 2 * NUM
    again.close()


def test_every_kind_of_failure_is_repeated_and_counted(tmp_path: Path) -> None:
    """A third of the runs, each in its own way, and the second time they work; but one never does."""

    def run(x: np.ndarray) -> Any:
        number, seen = int(x[0] / 2), tmp_path / f"{x[0]}"
        if number == 9:
            raise ValueError("never")
        if number % 3 == 0 and not seen.exists():
            seen.touch()
            kind = number // 3 % 5
            if kind == 0:
                os._exit(5)
            if kind == 1:
                time.sleep(1000)
            if kind == 2:
                return np.array([1.0, np.nan])
            return np.ones(3) if kind == 4 else "no numbers"
        return x + 1

    log = tmp_path.with_suffix(".jsonl")
    made = session(run, log, time_limit=1.0)
    answers = ask(made)
    for number, (point, answer) in enumerate(zip(POINTS, answers, strict=True)):
        if number == 9:
            assert answer.status is Status.RAISED
        else:
            np.testing.assert_array_equal(answer.outputs, point + 1)
    # Of the numbers 0, 3, …, 21 the kinds are 0, 1, 2, never, 4, 0, 1, 2.
    expected = {
        Status.OK: NUM - 1,
        Status.EXIT: 2,
        Status.TIME: 2,
        Status.NAN: 2,
        Status.SHAPE: 1,
        Status.RAISED: 2,
    }
    assert dict(made.counts()) == expected
    assert len(read(log)[1]) == sum(expected.values())
    warning = made.warnings[0]
    assert warning.startswith(
        "9 of 32 runs failed (raised 2, nan 2, shape 1, exit code 2, time limit 2); the last: "
    )
    made.close()
    again = session(run, log, time_limit=1.0)
    assert [answer.status for answer in ask(again)] == [answer.status for answer in answers]
    assert len(read(log)[1]) == sum(expected.values())
    again.close()


def test_workers_that_are_killed_take_nothing_along(
    running: Callable[[], list[int]], guards: Callable[[], list[int]]
) -> None:
    """Nor do their guards."""

    def run(x: np.ndarray) -> np.ndarray:
        time.sleep(0.15)
        return x + 1

    def kill() -> None:
        rng, kinds = random.Random(0), itertools.cycle([running, running, guards])
        while not is_over.wait(0.4):
            with contextlib.suppress(ProcessLookupError, IndexError):
                os.kill(rng.choice(next(kinds)()), signal.SIGKILL)

    is_over = threading.Event()
    killer = threading.Thread(target=kill)
    made = session(run)
    killer.start()
    answers = ask(made)
    is_over.set()
    killer.join()
    np.testing.assert_array_equal([answer.outputs for answer in answers], POINTS + 1)
    counts = made.counts()
    assert counts[Status.OK] == NUM
    assert counts[Status.LOST] >= 1
    assert set(counts) == {Status.OK, Status.LOST}
    made.close()


def test_where_runs_always_fail_is_said_and_too_many_are_not_taken() -> None:
    def run(x: np.ndarray) -> np.ndarray:
        if x[1] > 30:
            raise ValueError("buckled")
        return x

    made = session(run, retries=0)
    assert [answer.status for answer in ask(made)].count(Status.OK) == 15
    region = made.warnings[1]
    assert region.startswith("runs fail where a ≥ 30 (9 of 9), and elsewhere in 0 of 15")
    # With nine more, 18 of the newest 32 have failed: of the batch none counts, also those that did not fail.
    answers = ask(made, np.concatenate([POINTS[15:] + 100, POINTS[:1]]))
    assert all(answer.status is Status.RAISED for answer in answers)
    assert made.num_stopped == 1
    assert made.warnings[-1].startswith("1 time(s) more than 50% of the newest runs failed")
    assert ask(made, POINTS[:1])[0].status is Status.OK
    made.close()
