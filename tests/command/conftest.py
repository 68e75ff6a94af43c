"""What the tests of the command share: calls of it, and one fit."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import pytest
from typer.testing import CliRunner, Result

from dlrd.cli import app

Invoke = Callable[..., Result]


@pytest.fixture(scope="session")
def models() -> Path:
    """The file with models to fit."""
    return Path(__file__).with_name("models_to_fit.py")


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Invoke]:
    """Calls the command in a folder of its own; what it sets in its process is set back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    is_double = jax.config.jax_enable_x64
    yield lambda *arguments: CliRunner(env={"COLUMNS": "200", "PDB_PATH": ""}).invoke(app, arguments)
    jax.config.update("jax_enable_x64", is_double)


class Fitted(NamedTuple):
    """A fit that the command has made; not to be changed."""

    folder: Path
    stdout: str  # of the command


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Fitted:
    """Of a model with variables of its own: a number, and an array of 39."""
    folder = tmp_path_factory.mktemp("fitted") / "fit"
    is_double = jax.config.jax_enable_x64
    done = CliRunner().invoke(app, ["fit", f"{models}:scales", "--draws", "200", "--out", str(folder)])
    jax.config.update("jax_enable_x64", is_double)
    assert done.exit_code == 0, done.output
    return Fitted(folder, done.stdout)
