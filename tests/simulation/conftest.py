"""Whether anything is left of the processes that ran a program."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def _processes() -> dict[int, int]:
    """Those of simulations on behalf of this one, guards included, and who has started each."""
    listed = subprocess.run(
        ["ps", "-wweo", "pid,ppid,args"], capture_output=True, text=True, check=True
    ).stdout
    owned = f"-{os.getpid()}-"
    lines = [line for line in listed.splitlines() if "simulation/child.py" in line and owned in line]
    return {int(pid): int(parent) for pid, parent, *_ in map(str.split, lines)}


@pytest.fixture
def running() -> Callable[[], list[int]]:
    """The processes that run programs."""

    def found() -> list[int]:
        known = _processes()
        return [pid for pid, parent in known.items() if parent in known]

    return found


@pytest.fixture
def guards() -> Callable[[], list[int]]:
    """Their guards."""

    def found() -> list[int]:
        return [pid for pid, parent in _processes().items() if parent == os.getpid()]

    return found


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Checks that no process and no folder is there afterwards."""
    yield
    assert _processes() == {}
    assert list(Path(tempfile.gettempdir()).glob(f"dlrd-run-*-{os.getpid()}-*")) == []
