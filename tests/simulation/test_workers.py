"""Workers of Dask: on this machine, and of a client or a scheduler that is given."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest

from dlrd.simulation.run import Answer, Question, Simulation, Status
from dlrd.simulation.workers import Workers, _is_found, _packed

cloudpickle.register_pickle_by_value(sys.modules[__name__])
POINTS = np.arange(12.0).reshape(12, 1)


def workers_of(given: Any, run_fn: Any) -> tuple[Workers, list[Answer]]:
    """And a list of all attempts that they tell of."""
    kept: list[Answer] = []
    return Workers(given, Simulation(run_fn), lambda question, answer: kept.append(answer)), kept


def answers_of(workers: Workers) -> list[Answer]:
    found: dict[int, Answer] = {}

    def heard(number: int, answer: Answer) -> bool:
        if answer.status is Status.OK:
            found[number] = answer
        return answer.status is Status.OK

    workers.run([Question(point) for point in POINTS], heard)
    return [found[number] for number in range(len(POINTS))]


@pytest.mark.usefixtures("nothing_left")
def test_as_many_at_a_time_as_there_are_workers() -> None:
    workers, kept = workers_of(3, lambda x: time.sleep(0.2) or x)
    answers = answers_of(workers)
    np.testing.assert_array_equal([answer.outputs for answer in answers], POINTS)
    assert workers.num == len({answer.worker for answer in answers}) == 3
    assert len(kept) == len(POINTS)
    workers.close()
    workers.close()  # twice does no harm


def test_whose_module_is_not_found_is_packed_by_value() -> None:
    assert _is_found("numpy.linalg")
    assert not _is_found("no_such_module.part")
    assert len(_packed(Simulation(np.sum))) < 500  # by its name


@pytest.mark.parametrize(
    ("given", "message"),
    [(0, "workers must be a whole number of at least 1, got int 0"), (2.5, "workers must be a number, the")],
)
def test_says_what_is_wrong(given: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        workers_of(given, np.sum)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as made:
        yield made


@pytest.mark.slow
def test_a_cluster_whose_workers_are_killed(cluster: Any) -> None:
    """Dask starts them again, and what they were doing goes to others."""
    from distributed import Client

    def kill() -> None:
        while not is_over.wait(2.0):
            victim = next(iter(cluster.workers.values())).process
            if victim is not None and victim.pid is not None:
                os.kill(victim.pid, signal.SIGKILL)

    is_over = threading.Event()
    killer = threading.Thread(target=kill)
    with Client(cluster, set_as_default=False) as client:
        workers, kept = workers_of(client, lambda x: time.sleep(1.0) or x)
        assert workers.num == 2
        killer.start()
        answers = answers_of(workers)
        is_over.set()
        killer.join()
        np.testing.assert_array_equal([answer.outputs for answer in answers], POINTS)
        assert sum(answer.status is Status.OK for answer in kept) == len(POINTS)
        workers.close()
        assert client.status == "running"  # it is the user's


@pytest.mark.slow
def test_a_connection_that_is_lost_and_comes_back(cluster: Any) -> None:
    workers, _ = workers_of(cluster.scheduler_address, lambda x: time.sleep(0.5) or x)
    assert workers.num >= 1

    def lose() -> None:
        client = workers._client
        client.loop.add_callback(client.scheduler_comm.comm.abort)

    timer = threading.Timer(1.5, lose)
    timer.start()
    answers = answers_of(workers)
    np.testing.assert_array_equal([answer.outputs for answer in answers], POINTS)
    workers.close()
