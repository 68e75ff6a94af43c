"""Where runs are carried out: on Dask, a process of its own for each that is under way."""

import contextlib
import hashlib
import importlib.machinery
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from dlrd.checks import check_count, shown
from dlrd.simulation import pool
from dlrd.simulation.run import Answer, Question, Simulation, Status
from dlrd.simulation.slot import remove_left_folders

PATIENCE = 300.0
"""Seconds to wait for a scheduler that does not answer."""
_LOOPBACK = "127.0.0.1:0"
"""For the pages that Dask serves, on any port that is free."""
Heard = Callable[[int, Answer], bool]
"""Is told the number of a question and an answer; whether that is enough, or it is to be asked again."""


class Workers:
    """Carries out runs, as many at a time as there are workers.

    Args:
        given: how many, on this machine, None for one a core; or a `distributed.Client`, or the address of a
            scheduler.
        simulation: what is run.
        keep: is told of each attempt, as soon as it is known here.
    """

    def __init__(self, given: Any, simulation: Simulation, keep: pool.Keep):
        if given is None or isinstance(given, int):
            given = _num_cores() if given is None else given
            check_count("workers", given)
        elif not isinstance(given, str) and not hasattr(given, "scheduler_info"):
            raise TypeError(
                "workers must be a number, the address of a scheduler, or a distributed.Client, "
                f"got {shown(given)}"
            )
        self._given = given
        self._keep = keep
        self._payload = _packed(simulation)
        self._token = hashlib.sha256(self._payload + os.urandom(8)).hexdigest()
        self._time_limit = simulation.time_limit
        self._client: Any = None
        self._cluster: Any = None
        self._is_known = False  # whether the workers know the program

    @property
    def num(self) -> int:
        """How many runs can be under way."""
        if isinstance(self._given, int):
            return self._given
        workers = self._connected().scheduler_info(n_workers=-1)["workers"].values()
        return max(sum(worker["nthreads"] for worker in workers), 1)

    def run(self, questions: Sequence[Question], heard: Heard) -> None:
        """Asks all questions at once, and each again until `heard` has enough."""
        from distributed import as_completed

        from dlrd.simulation.plugin import Program

        left = dict(enumerate(questions))
        while left:
            client = self._connected()
            if not self._is_known:
                client.register_plugin(Program(self._token, self._payload), name=self._token)
                self._is_known = True
            numbers = {self._submitted(client, question): number for number, question in left.items()}
            under_way = as_completed(list(numbers), loop=client.loop)
            try:
                for future in under_way:
                    number = numbers.pop(future)
                    if future.status in ("cancelled", "lost"):  # with the connection: in another round
                        self._is_known = False
                        continue
                    answer = _answer_of(future)
                    if self._cluster is None or future.status == "error":  # or else it is kept already
                        self._keep(questions[number], answer)
                    if heard(number, answer):
                        del left[number]
                    else:
                        again = self._submitted(client, questions[number])
                        numbers[again] = number
                        under_way.add(again)
            finally:
                if numbers:
                    with contextlib.suppress(Exception):  # of a client that is gone
                        client.cancel(list(numbers))

    def close(self) -> None:
        """Ends all processes, and what was made for them."""
        client, self._client = self._client, None
        if client is None:
            return
        if self._cluster is not None:
            pool.forget(self._token)
            client.close()
            self._cluster.close()
            self._cluster = None
            return
        with contextlib.suppress(Exception):  # of workers that are gone, and their processes with them
            client.unregister_worker_plugin(self._token)
        if isinstance(self._given, str):
            client.close()

    def _submitted(self, client: Any, question: Question) -> Any:
        return client.submit(pool.carry_out, self._token, question, self._time_limit, pure=False)

    def _connected(self) -> Any:
        """A client whose scheduler answers; one that is lost is waited for."""
        deadline = time.monotonic() + PATIENCE
        while self._client is None or self._client.status != "running":
            if time.monotonic() > deadline:
                raise ConnectionError(f"the scheduler has not answered for {PATIENCE:.0f} seconds")
            if self._client is None or self._client.status == "closed":
                self._client = self._new_client()
            else:
                time.sleep(0.1)
        return self._client

    def _new_client(self) -> Any:
        try:
            from distributed import Client, LocalCluster
        except ModuleNotFoundError as error:
            raise ImportError(
                "runs need Dask, which is not installed: pip install 'dlrd[simulator]'", name=error.name
            ) from error
        if isinstance(self._given, int):
            # Its threads wait for processes of their own: those of Dask would take seconds to start, and
            # cannot end a run that hangs.
            remove_left_folders()
            pool.learn(self._token, self._payload)
            pool.listen(self._token, self._keep)
            pool.start(self._token, self._given)  # they get ready while others compile
            self._cluster = LocalCluster(
                n_workers=1,
                threads_per_worker=self._given,
                processes=False,
                dashboard_address=_LOOPBACK,
                worker_dashboard_address=_LOOPBACK,
                memory_limit=0,
                silence_logs=logging.CRITICAL,
            )
            return Client(self._cluster, set_as_default=False)
        address: Any = self._given
        if not isinstance(address, str):
            if self._client is None:
                return address
            address = address.scheduler.address  # of a client that has given up
        return Client(address, timeout=PATIENCE, set_as_default=False)


def _answer_of(future: Any) -> Answer:
    error = future.exception()
    if error is None:
        return future.result()
    # Of Dask's own: what the program does wrong is an answer. A worker that is gone took the run along.
    return Answer(Status.LOST, 0.0, message=f"{type(error).__name__}: {error}"[:200])


def _packed(simulation: Simulation) -> bytes:
    """The program for other processes; by value, if its module is one that they would not find."""
    try:
        import cloudpickle
    except ModuleNotFoundError as error:
        raise ImportError(
            "runs need Dask, which is not installed: pip install 'dlrd[simulator]'", name=error.name
        ) from error
    module = sys.modules.get(getattr(simulation.run_fn, "__module__", None) or "")
    if module is None or _is_found(module.__name__):
        return cloudpickle.dumps(simulation)
    cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps(simulation)
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _is_found(name: str) -> bool:
    """Whether a module is where imports look; cloudpickle itself takes what was typed or run as a script."""
    spec = importlib.machinery.PathFinder.find_spec(name.partition(".")[0])
    return name == "__main__" or (spec is not None and spec.origin is not None)


def _num_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
