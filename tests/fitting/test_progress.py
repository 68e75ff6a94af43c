"""The progress bar, as a terminal of 80 columns sees it."""

import os
import pathlib
import pty
import re
import subprocess
import sys

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
