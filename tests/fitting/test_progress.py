"""The progress bar, as a terminal of 80 columns sees it."""

import datetime
import os
import pathlib
import pty
import re
import subprocess
import sys
from typing import Any

import pytest

from dlrd.fitting import progress

SCRIPT = """
import dlrd, jax.numpy as jnp, optax
optimizer = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-1))
dlrd.fit(lambda z: -0.5 * jnp.sum((z - 3.0) ** 2) - 12345.6, dlrd.MeanFieldNormal.standard(50), key=0,
         optimizer=optimizer, steps=30_000)
"""


def test_shows_all_readings_on_a_terminal(tmp_path: pathlib.Path) -> None:
    """A real pseudo-terminal, so that the bar is drawn as a person sees it."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": "80", "TERM": "xterm-256color"}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        shown += block
    assert process.wait() == 0, shown.decode()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    last = text.replace("\r", "\n").strip().splitlines()[-1]
    assert "30,000/30,000" in last
    assert re.search(r"ELBO -12,29\d\.\d\d ± \d\.?\d*", last)
    assert re.search(r"00:00 ", last)  # time left
    assert re.search(r"rate 1e-\d\d", last)
    assert re.search(r"SNR \d", last)
    assert re.search(r"decays \d", last)
    assert len(last) <= 80


class Outside:
    """A model that is run outside, as far as the display is concerned."""

    num_workers, runs_a_gradient = 8, 1
    runs_sentence = "412 runs, 8 in flight, 3 failed, 0.21 s a run, 8 workers"
    runs_notes: tuple[str, ...] = ()
    runs_warnings: tuple[str, ...] = ()


def test_a_second_line_tells_of_runs(capsys: pytest.CaptureFixture[str]) -> None:
    model: Any = Outside()
    with progress.progress_display(True, 1000, "gradients", "looking", model=model) as show:
        for done in (100, 400):
            show(progress.Reading(done, done, "ELBO 1.0"))
    printed = " ".join(capsys.readouterr().out.split())
    assert "400/1,000 gradients" in printed
    assert f"{model.runs_sentence}, all spent " in printed


def test_when_all_is_spent_at_this_pace() -> None:
    now = datetime.datetime(2026, 5, 1, 12).timestamp()
    assert progress._end_sentence([(now, 100)], 1000) == ""
    assert progress._end_sentence([(now, 100), (now + 9, 100)], 1000) == ""
    assert progress._end_sentence([(now, 100), (now + 3600, 200)], 1000) == ", all spent Fri 01 May 21:00"
