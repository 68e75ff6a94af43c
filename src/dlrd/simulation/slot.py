"""A process that runs a program, as the one who asks sees it."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing import Pipe
from pathlib import Path

from dlrd.simulation import child
from dlrd.simulation.run import MAX_MESSAGE, Answer, Question, Status

PREFIX = "dlrd-run-"
"""Of the names of folders, before the machine and the process that they belong to."""
KILLED = {128 + signal.SIGKILL, 128 + signal.SIGTERM}
"""Exit codes of a process that was ended from outside."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Settings that libraries of linear algebra read: with a process a core, one thread each."""


class Slot:
    """Starts the process; a question at a time.

    Args:
        payload: the simulation, by cloudpickle.
    """

    def __init__(self, payload: bytes):
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{socket.gethostname()}-{os.getpid()}-"))
        self._connection, other = Pipe()
        lifeline, self._lifeline = os.pipe()
        given = (str(other.fileno()), str(lifeline), str(self.folder))
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        self._guard = subprocess.Popen(
            [sys.executable, "-P", child.__file__, *given],  # by its path: the guard imports nothing else
            env=dict.fromkeys(THREADS, "1") | os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            pass_fds=(other.fileno(), lifeline),
            start_new_session=True,  # Ctrl-C is for the one who asks
        )
        other.close()
        os.close(lifeline)
        self._pid: int | None = None
        self._payload: bytes | None = payload

    def ask(self, question: Question, time_limit: float | None) -> Answer:
        """The answer; without one in time, or at all, the process is ended."""
        begun = time.perf_counter()
        try:
            if self._payload is not None:  # the first question waits until the process is there
                self._pid = self._connection.recv()
                self._connection.send_bytes(self._payload)
                self._payload, begun = None, time.perf_counter()
            self._connection.send(question)
            if self._connection.poll(time_limit):
                return self._connection.recv()
        except (EOFError, OSError):
            return self._of_the_dead(time.perf_counter() - begun)
        self.close()
        message = f"took longer than {time_limit:g} seconds"
        return Answer(Status.TIME, time.perf_counter() - begun, message=message)

    @property
    def is_open(self) -> bool:
        """Whether it can still be asked."""
        return not self._connection.closed

    def close(self) -> int:
        """Ends the process and what it has started, removes its folder, and gives its exit code."""
        if self.is_open:
            self._connection.close()
            os.close(self._lifeline)
        code = self._guard.wait()
        if self._pid is not None and self.folder.exists():  # the guard itself was killed
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
        return code

    def _of_the_dead(self, seconds: float) -> Answer:
        output = b""
        with contextlib.suppress(OSError):
            output = (self.folder / child.OUTPUT).read_bytes()[-MAX_MESSAGE:]
        code = self.close()
        if code in KILLED or code < 0:
            return Answer(Status.LOST, seconds, message="the process was killed")
        how = f"signal {code - 128}" if code > 128 else f"exit code {code}"
        message = f"the process ended with {how}. {output.decode(errors='replace')}".strip()
        return Answer(Status.EXIT, seconds, message=message)


def remove_left_folders() -> None:
    """Removes what is left of processes that are gone together with their guards, as when a machine stops."""
    prefix = f"{PREFIX}{socket.gethostname()}-"
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        owner = folder.name.removeprefix(prefix).partition("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True
