"""Runs on behalf of a fit: none twice, failed ones again, all of them counted and kept."""

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dlrd.simulation.log import Log, Record
from dlrd.simulation.region import failing_region
from dlrd.simulation.run import Answer, Question, Simulation, Status
from dlrd.simulation.workers import Workers

MAX_LOST = 5
"""How often a run may lose its worker: that may be its own doing, as when it takes all memory."""
WINDOW, MIN_WINDOW = 32, 16
"""Of the newest draws: among so many, but no fewer, it is counted how many failed."""
NUM_TIMED = 100
"""Of the newest runs, whose seconds are shown."""


class Policy(NamedTuple):
    """What is done about runs that fail."""

    retries: int = 1  # before a run counts as failed
    max_failed: float = 0.5  # share of the newest runs: with more, none of them counts


class Session:
    """Asks a simulation questions, a batch at a time.

    Args:
        simulation: what is run.
        workers: as for `Workers`.
        log: where all runs are kept; None for memory alone.
        names: of the parameters.
        policy: about failures.
        problem: as for `Log`.
    """

    def __init__(
        self,
        simulation: Simulation,
        workers: Any,
        log: Path | None,
        names: Sequence[str],
        policy: Policy,
        problem: str,
    ):
        self.names = tuple(names)
        self.shape: tuple[int, ...] | None = None  # of the outputs, once it is known
        self.policy = policy
        self.log = Log(log, names, problem)
        self.num_known = len(self.log.records)  # from before
        self.num_stopped = 0  # times that too many failed
        self._workers = Workers(workers, simulation, self._keep)
        self._known: dict[bytes, Answer] = {}  # final answers, by question
        self._tries: dict[bytes, Counter[bool]] = {}  # of questions without one: failed, lost
        self._newest: deque[bool] = deque(maxlen=WINDOW)  # whether they failed
        self._num_in_flight = 0
        self._lock, self._keeping = threading.Lock(), threading.Lock()
        for record in self.log.records:
            self._learn(record)

    @property
    def num_workers(self) -> int:
        return self._workers.num

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """The answers, in order; those to failed runs say so. Known ones are not asked again."""
        with self._lock:
            keys = [_key(question) for question in questions]
            new = {
                key: question for key, question in zip(keys, questions, strict=True) if key not in self._known
            }
            if new:
                self._carry_out(list(new), list(new.values()))
            answers = [self._known[key] for key in keys]
            if new and self._are_too_many_failing:
                self.num_stopped += 1
                self._newest.clear()
                stopped = Answer(Status.RAISED, 0.0, message="too many of the newest runs failed")
                return [stopped] * len(answers)
            return answers

    def close(self) -> None:
        """Ends all processes, and the log."""
        self._workers.close()
        self.log.close()

    def counts(self) -> dict[Status, int]:
        """How the runs ended, each attempt counted."""
        return Counter(record.answer.status for record in self.log.records)

    @property
    def sentence(self) -> str:
        """Where the runs stand, for a person who waits."""
        records = self.log.records
        times = [record.answer.seconds for record in records[-NUM_TIMED:] if record.is_good]
        num_failed = sum(not record.is_good for record in records)
        parts = [
            f"{len(records):,} runs",
            f"{min(self._num_in_flight, self.num_workers)} in flight",
            f"{num_failed:,} failed",
            *([f"{np.mean(times):.3g} s a run"] if times else []),
            f"{self.num_workers} workers",
        ]
        return ", ".join(parts)

    @property
    def warnings(self) -> list[str]:
        """What a user should know about runs that failed."""
        counts = self.counts()
        failed = {
            status.value: counts[status] for status in Status if status is not Status.OK and counts[status]
        }
        if not failed:
            return []
        num = len(self.log.records)
        listed = ", ".join(f"{status} {number:,}" for status, number in failed.items())
        last = next(record for record in reversed(self.log.records) if not record.is_good)
        found = [
            f"{sum(failed.values()):,} of {num:,} runs failed ({listed}); the last: {last.answer.message}"
        ]
        points = np.stack([record.question.parameters for record in self.log.records])
        is_failed = np.array([not record.is_good for record in self.log.records])
        region = failing_region(points, is_failed, self.names)
        if region is not None:
            found.append(f"{region}; the fit does not see the density there.")
        if self.num_stopped:
            found.append(
                f"{self.num_stopped} time(s) more than {self.policy.max_failed:.0%} of the newest runs "
                "failed, and the fit went back to where they did not."
            )
        return found

    def _carry_out(self, keys: list[bytes], questions: list[Question]) -> None:
        self._num_in_flight = len(questions)
        asked = [question._replace(shape=self.shape) for question in questions]

        def heard(number: int, answer: Answer) -> bool:
            if keys[number] not in self._known:
                return False
            self._newest.append(self._known[keys[number]].status is not Status.OK)
            self._num_in_flight -= 1
            return True

        try:
            self._workers.run(asked, heard)
        finally:
            self._num_in_flight = 0

    def _keep(self, question: Question, answer: Answer) -> None:
        """Takes note of an attempt, and adds it to the log."""
        record = Record(question, answer, time.time() - answer.seconds)
        with self._keeping:
            self._learn(record)
            self.log.add(record)

    def _learn(self, record: Record) -> None:
        """Takes note of an attempt, which may be the final one."""
        question, answer = record.question, record.answer
        key = _key(question)
        if answer.status is Status.OK:
            self._tries.pop(key, None)
            self._known[key] = answer
            if question.has_gradient and question.sensitivity is None:
                self._known[_key(question._replace(has_gradient=False))] = answer
            return
        tries = self._tries.setdefault(key, Counter())
        tries[answer.status is Status.LOST] += 1
        if tries[False] > self.policy.retries or tries[True] > MAX_LOST:
            self._known[key] = answer

    @property
    def _are_too_many_failing(self) -> bool:
        enough = len(self._newest) >= MIN_WINDOW
        return enough and sum(self._newest) > self.policy.max_failed * len(self._newest)


def _key(question: Question) -> bytes:
    """The same for the same question, bit for bit."""
    sensitivity = b"" if question.sensitivity is None else b":" + question.sensitivity.tobytes()
    return bytes([question.has_gradient]) + question.parameters.tobytes() + sensitivity
