"""The process in which a program is run, and its guard, which leaves nothing behind.

    python -P child.py CONNECTION LIFELINE FOLDER

The guard waits until the other end of the lifeline is closed, on purpose or because whoever held it is gone,
however that came; then it ends the process, what that has started, and the folder of their files.
"""

import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

OUTPUT = "output.txt"
"""What the program prints, in the folder."""


def main(connection: int, lifeline: int, folder: Path) -> None:
    """Splits into the guard and the process that runs the program.

    Args:
        connection: the file of a two-way connection, for questions and answers.
        lifeline: the file of a pipe on which nothing ever comes but its end.
        folder: for all files of the program.
    """
    pid = os.fork()
    if pid:
        os.close(connection)
        with contextlib.suppress(OSError):  # the process may have done so before
            os.setpgid(pid, pid)
        os._exit(_guard(pid, lifeline, folder))
    os.close(lifeline)
    os.setpgid(0, 0)
    _serve(Connection(connection), folder)


def _guard(pid: int, lifeline: int, folder: Path) -> int:
    """Waits for the end; the exit code tells how the process ended, as a shell does."""
    while os.read(lifeline, 1):
        pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    shutil.rmtree(folder, ignore_errors=True)
    return code if code >= 0 else 128 - code


def _serve(connection: Connection, folder: Path) -> None:
    """Answers questions until there are no more."""
    # What the program prints is kept for the message of a failure, and does not go to the terminal.
    output = os.open(folder / OUTPUT, os.O_CREAT | os.O_RDWR | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)

    import cloudpickle

    from dlrd.simulation.run import Answer, Simulation, Status, answered

    worker = f"{socket.gethostname()}:{os.getpid()}"
    connection.send(os.getpid())
    with contextlib.suppress(EOFError):
        payload = connection.recv_bytes()
        try:
            simulation: Simulation | Exception = cloudpickle.loads(payload)
        except Exception as error:  # of any kind: it is the user's module that is imported here
            simulation = error
        while True:
            question = connection.recv()
            os.truncate(output, 0)
            if isinstance(simulation, Exception):
                reason = f"the simulator could not be loaded: {type(simulation).__name__}: {simulation}"
                answer = Answer(Status.RAISED, 0.0, message=reason)
            else:
                answer = answered(simulation, question)
            connection.send(answer._replace(worker=worker))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
