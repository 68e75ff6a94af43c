"""The guard of a process, when the one who asked is gone."""

import signal
import subprocess
import sys
import time
from pathlib import Path

ASKS = """
import os, cloudpickle, numpy as np
from dlrd.simulation.run import Question, Simulation
from dlrd.simulation.slot import Slot

def run(x):
    open(os.path.join(os.environ["TMPDIR"], "left"), "w").close()
    with open(told, "w") as file:
        file.write(os.environ["TMPDIR"])
    while True:
        pass

slot = Slot(cloudpickle.dumps(Simulation(run)))
slot.ask(Question(np.ones(1)), None)
"""


def test_nothing_is_left_of_one_who_is_killed(tmp_path: Path) -> None:
    told = tmp_path / "folder"
    asks = subprocess.Popen([sys.executable, "-c", f"told = {str(told)!r}\n{ASKS}"])
    while not (told.exists() and told.read_text()):
        assert asks.poll() is None
        time.sleep(0.05)
    folder = Path(told.read_text())
    assert folder.exists()
    asks.send_signal(signal.SIGKILL)
    asks.wait()
    deadline = time.monotonic() + 20
    while folder.exists() or is_running(asks.pid):
        assert time.monotonic() < deadline, "something is left"
        time.sleep(0.05)


def is_running(owner: int) -> bool:
    listed = subprocess.run(["ps", "-wweo", "args"], capture_output=True, text=True, check=True).stdout
    return any("simulation/child.py" in line and f"-{owner}-" in line for line in listed.splitlines())
