"""The cache of compiled programs: the next process finds them."""

import os
import pathlib
import subprocess
import sys

import pytest

import dlrd

CODE = """
import sys, jax, jax.numpy as jnp, dlrd
from jax import monitoring
jnp.ones(3) + 1  # jax has been at work before
print(dlrd.compilation_cache(*sys.argv[1:]))
hits = []
monitoring.register_event_listener(lambda name, **_: hits.append(name) if "cache_hits" in name else None)
fit = dlrd.fit(lambda z: -0.5 * jnp.sum(z**2), dlrd.MeanFieldNormal.standard(2), progress=False)
print(fit.elbo, len(hits))
"""


def run(*arguments: str, **environment: str) -> list[str]:
    command, env = [sys.executable, "-c", CODE, *arguments], os.environ | environment
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout.split()


def test_the_next_process_finds_the_programs(tmp_path: pathlib.Path) -> None:
    folder, elbo, num_hits = run(str(tmp_path / "programs"))
    assert pathlib.Path(folder) == tmp_path / "programs"
    assert num_hits == "0"
    assert any((tmp_path / "programs").iterdir())
    _, again, num_hits = run(str(tmp_path / "programs"))
    assert int(num_hits) >= 3
    assert again == elbo


def test_where_it_is_if_not_told(tmp_path: pathlib.Path) -> None:
    folder, *_ = run(XDG_CACHE_HOME=str(tmp_path))
    assert pathlib.Path(folder) == tmp_path / "dlrd"


def test_a_file_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^folder must be one, got the file .*file$"):
        dlrd.compilation_cache(tmp_path / "file")
