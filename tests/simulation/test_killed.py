"""Killed at random moments and called again: the log is whole, no run is repeated, the end is the same."""

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from dlrd.simulation.log import read

CALIBRATION = Path(__file__).with_name("calibration.py")


def call(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, CALIBRATION, folder, *options])


def check_killed(tmp_path: Path, num_kills: int, *options: str) -> None:
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    for folder in (whole, torn):
        folder.mkdir()
    assert call(whole, *options).wait() == 0
    num_runs = len(read(whole / "runs.jsonl")[1])
    rng, owners = random.Random(0), []
    for _ in range(num_kills):
        # So long that, in the end, about as many runs are done before as after the last one.
        known = len(read(torn / "runs.jsonl")[1]) if (torn / "runs.jsonl").exists() else 0
        goal = known + rng.randint(1, max(1, num_runs // (num_kills + 1)))
        process = call(torn, *options)
        owners.append(process.pid)
        while process.poll() is None and _num_lines(torn / "runs.jsonl") <= goal:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        read(torn / "runs.jsonl")  # is whole
    assert call(torn, *options).wait() == 0
    assert (torn / "result").read_text() == (whole / "result").read_text()
    records = read(torn / "runs.jsonl")[1]
    kept = Counter((record.question.has_gradient, record.question.parameters.tobytes()) for record in records)
    assert set(kept.values()) == {1}
    assert len(records) == num_runs
    # What was carried out and not kept was under way when the calibration was killed: two runs each time.
    executed = len((torn / "executed").read_text().splitlines())
    assert num_runs <= executed <= num_runs + 2 * num_kills
    _check_nothing_left(owners)


def _num_lines(path: Path) -> int:
    """Of runs."""
    return path.read_bytes().count(b"\n") - 1 if path.exists() else 0


def _check_nothing_left(owners: list[int]) -> None:
    deadline = time.monotonic() + 20
    while True:
        listed = subprocess.run(["ps", "-wweo", "args"], capture_output=True, text=True, check=True).stdout
        processes = [line for line in listed.splitlines() if "simulation/child.py" in line]
        folders = [str(path) for path in Path(tempfile.gettempdir()).glob("dlrd-run-*")]
        left = [name for name in processes + folders if any(f"-{owner}-" in name for owner in owners)]
        if not left:
            return
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_a_session(tmp_path: Path) -> None:
    check_killed(tmp_path, 3)


@pytest.mark.slow
def test_a_fit_ten_times(tmp_path: Path) -> None:
    check_killed(tmp_path, 10, "fit")


@pytest.mark.slow
def test_a_fit_of_values_alone(tmp_path: Path) -> None:
    check_killed(tmp_path, 5, "learn")


@pytest.mark.slow
def test_ctrl_c_ends_a_fit_with_what_there_is(tmp_path: Path) -> None:
    process = call(tmp_path, "fit")
    while _num_lines(tmp_path / "runs.jsonl") < 100:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 0
    assert (tmp_path / "result").read_text().startswith("INTERRUPTED")
    _check_nothing_left([process.pid])
