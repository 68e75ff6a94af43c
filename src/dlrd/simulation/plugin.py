"""What a worker of Dask knows of a program, from its start to its end."""

from typing import Any

from distributed import WorkerPlugin

from dlrd.simulation import pool


class Program(WorkerPlugin):
    """Keeps the program where it is run, so that no task has to carry it; ends its processes with it.

    Args:
        token: by which tasks name it.
        payload: the simulation, by cloudpickle.
    """

    def __init__(self, token: str, payload: bytes):
        self.token = token
        self.payload = payload

    def setup(self, worker: Any) -> None:
        pool.learn(self.token, self.payload)

    def teardown(self, worker: Any) -> None:
        pool.forget(self.token)
