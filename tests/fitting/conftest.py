"""What the tests of fits share: the same fit twice, and processes that are killed."""

import pathlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import jax
import numpy as np
import pytest

import dlrd
from dlrd.fitting.checkpoint import FILE_NAME

NUM_KILLS = 2


@pytest.fixture(scope="session")
def assert_same_fit() -> Callable[[dlrd.Fit, dlrd.Fit], None]:
    """Asserts that two fits are equal, bit for bit."""

    def check(left: dlrd.Fit, right: dlrd.Fit) -> None:
        assert left.num_steps == right.num_steps
        assert left.outcome is right.outcome
        assert repr(left.verdict) == repr(right.verdict)
        for a, b in zip(jax.tree.leaves(left.family), jax.tree.leaves(right.family), strict=True):
            np.testing.assert_array_equal(a, b)
        for name in type(left.history).__annotations__:
            values = getattr(left.history, name), getattr(right.history, name)
            np.testing.assert_array_equal(*values, err_msg=name)

    return check


@pytest.fixture
def killed_and_whole(tmp_path: pathlib.Path) -> Callable[[pathlib.Path], tuple[dlrd.Fit, dlrd.Fit]]:
    """Runs a program (its arguments: a folder of checkpoints, the file of its fit) twice: once killed with
    SIGKILL again and again, at random moments, and once left alone."""

    def run(program: pathlib.Path) -> tuple[dlrd.Fit, dlrd.Fit]:
        whole, killed = tmp_path / "whole.dlrd", tmp_path / "killed.dlrd"

        def started(folder: str, file: pathlib.Path) -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, program, tmp_path / folder, file])

        left_alone = started("whole", whole)
        checkpoint = tmp_path / "run" / FILE_NAME
        rng = random.Random(0)
        for _ in range(NUM_KILLS):
            process = started("run", killed)
            # Wait until this process has made progress of its own, then strike some chunks later.
            seen = _written_at(checkpoint)
            while process.poll() is None and _written_at(checkpoint) == seen:
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.1))
            process.kill()
            assert process.wait() == -signal.SIGKILL
            assert not killed.exists()  # it was under way
        assert started("run", killed).wait() == 0
        assert left_alone.wait() == 0
        return dlrd.load(killed), dlrd.load(whole)

    return run


def _written_at(path: pathlib.Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0
