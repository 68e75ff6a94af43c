"""A process that runs a program: what it answers, how it is ended, what is left."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from dlrd.simulation import slot as slot_module
from dlrd.simulation.run import Answer, Question, Simulation, Status
from dlrd.simulation.slot import Slot, remove_left_folders

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = pytest.mark.usefixtures("nothing_left")


def started(run_fn: Any) -> Slot:
    return Slot(cloudpickle.dumps(Simulation(run_fn)))


def ask(slot: Slot, *numbers: float, time_limit: float | None = None) -> Answer:
    return slot.ask(Question(np.array(numbers)), time_limit)


def test_answers_in_a_process_of_its_own_without_jax() -> None:
    def run(x: np.ndarray) -> np.ndarray:
        print("what is printed does not get in the way")
        return np.array([2 * x[0], os.getpid(), "jax" in sys.modules])

    slot = started(run)
    first, second = ask(slot, 1.5), ask(slot, -1.0)
    assert first.outputs is not None
    assert second.outputs is not None
    assert (first.outputs[0], second.outputs[0]) == (3, -2)
    assert first.outputs[1] == second.outputs[1] != os.getpid()
    assert first.outputs[2] == 0
    assert first.worker.endswith(f":{first.outputs[1]:.0f}")
    slot.close()


@pytest.mark.parametrize(
    ("end", "status", "message"),
    [
        (lambda: os._exit(7), Status.EXIT, "the process ended with exit code 7. last words"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), Status.EXIT, "the process ended with signal 11"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), Status.LOST, "the process was killed"),
    ],
)
def test_a_process_that_ends(end: Any, status: Status, message: str) -> None:
    def run(x: np.ndarray) -> None:
        os.write(2, b"last words")
        end()

    slot = started(run)
    answer = ask(slot, 1.0)
    assert answer.status is status
    assert answer.message.startswith(message)
    assert not slot.is_open


def test_what_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    """Also if it ignores signals, and holds the interpreter: its guard does it."""

    def run(x: np.ndarray) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        helper = subprocess.Popen(["sleep", "1000"])
        (tmp_path / "pid").write_text(str(helper.pid))
        sum(iter(int, 1))  # never ends, in C

    slot = started(run)
    answer = ask(slot, 1.0, time_limit=1.0)
    assert answer.status is Status.TIME
    assert answer.message == "took longer than 1 seconds"
    assert 1 <= answer.seconds < 5
    helper = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    for _ in range(100):
        if not helper.exists() or " Z " in helper.read_text():
            return
        time.sleep(0.05)
    raise AssertionError("the helper is still there")


def test_closed_while_it_is_busy() -> None:
    slot = started(lambda x: time.sleep(1000))
    threading.Timer(1.0, slot.close).start()
    assert ask(slot, 1.0).status is Status.LOST


def test_a_program_that_cannot_be_loaded() -> None:
    slot = Slot(b"nonsense")
    answer = ask(slot, 1.0)
    assert answer.status is Status.RAISED
    assert answer.message.startswith("the simulator could not be loaded: UnpicklingError")
    slot.close()


def test_folders_of_processes_that_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_module.tempfile, "tempdir", str(tmp_path))
    gone = subprocess.Popen(["true"])
    gone.wait()
    host = slot_module.socket.gethostname()
    for owner in (f"{host}-{gone.pid}", f"{host}-{os.getpid()}", f"elsewhere-{gone.pid}"):
        (tmp_path / f"dlrd-run-{owner}-abc").mkdir()
    remove_left_folders()
    left = {path.name.removeprefix("dlrd-run-") for path in tmp_path.iterdir()}
    assert left == {f"{host}-{os.getpid()}-abc", f"elsewhere-{gone.pid}-abc"}
