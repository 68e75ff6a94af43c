"""Ctrl-C: a real SIGINT to a real process."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import jax.numpy as jnp
import optax
import pytest

import dlrd
from dlrd.fitting.interrupt import catch_interrupt

SCRIPT = """
import dlrd, jax.numpy as jnp, optax
from dlrd.fitting import checkpoint
checkpoint.SECONDS_BETWEEN = 0.0
fit = dlrd.fit(lambda z: -0.5 * jnp.sum(z**2), dlrd.MeanFieldNormal.standard(2), key=0,
               optimizer=optax.adam(1e-3), steps=10**9, checkpoint="run")
print(fit.outcome.name, fit.num_steps == fit.history.step[-1] > 0, jnp.isfinite(fit.family.mean).all())
"""


def test_returns_what_there_is(tmp_path: pathlib.Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "run" / "checkpoint.npz").exists():  # it is under way
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "INTERRUPTED True True" in out


@pytest.fixture
def usual_handler() -> Iterator[None]:
    """What a program in the foreground has; in the background, shells have SIGINT ignored."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def test_second_press_raises(usual_handler: None) -> None:
    with catch_interrupt() as is_interrupted:
        assert not is_interrupted()
        os.kill(os.getpid(), signal.SIGINT)
        assert is_interrupted()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_works_in_another_thread() -> None:
    """Only the main thread may handle signals; a fit elsewhere just runs."""
    fits: list[dlrd.Fit] = []

    def run() -> None:
        fits.append(
            dlrd.fit(
                lambda z: -0.5 * jnp.sum(z**2),
                dlrd.MeanFieldNormal.standard(2),
                key=0,
                optimizer=optax.adam(1e-2),
                steps=20,
                progress=False,
            )
        )

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert fits[0].outcome is dlrd.Outcome.BUDGET
