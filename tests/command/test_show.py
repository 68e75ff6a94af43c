"""`dlrd show`: what it prints, from the folder alone."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

from dlrd.command.folder import SETTINGS, SUMMARY, read
from dlrd.command.show import printed

Invoke = Callable[..., Result]


def test_all_variables(invoke: Invoke, fitted: Any, tmp_path: Path) -> None:
    """Two files are enough; their numbers are those of the log-normal variables."""
    for name in (SETTINGS, SUMMARY):
        shutil.copy(fitted.folder / name, tmp_path / name)
    shown = invoke("show", str(tmp_path))
    assert shown.exit_code == 0
    head, *rows = shown.stdout.partition("Certified")[0].splitlines()
    assert head.split() == ["mean", "sd", "5%", "50%", "95%"]
    assert [row.split()[0] for row in rows] == ["tau", *(f"theta[{i}]" for i in range(39))]
    # That of the median of 10,000 draws, in logarithms; one of 40 is further off in one of 1,000 fits.
    error = np.sqrt(np.pi / 2 / 10_000)
    assert max(abs(np.log(float(row.split()[4])) - 3.0) for row in rows) < 4.3 * error
    assert "Certified: " in shown.stdout
    assert "k̂ = " in shown.stdout


def test_chosen_variables(invoke: Invoke, fitted: Any) -> None:
    def names(*variables: str) -> list[str]:
        options = [text for name in variables for text in ("--var", name)]
        lines = invoke("show", str(fitted.folder), *options).stdout.partition("Certified")[0].splitlines()
        return [line.split()[0] for line in lines[1:]]

    assert names("theta") == [f"theta[{i}]" for i in range(39)]
    assert names("theta[1]", "tau") == ["theta[1]", "tau"]


def test_what_is_not_there_is_told(invoke: Invoke, fitted: Any) -> None:
    result = invoke("show", str(fitted.folder), "--var", "mu")
    assert (result.exit_code, result.stderr) == (2, "Error: --var must be among tau, theta, got str 'mu'\n")
    result = invoke("show", "nowhere")
    assert (result.exit_code, result.stderr) == (2, "Error: there is no folder nowhere\n")


def test_lines_on_a_terminal_end_between_words(fitted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = read(fitted.folder)
    assert max(map(len, printed(summary).splitlines())) > 60
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    lines = printed(summary).splitlines()
    assert max(map(len, lines)) <= 60
    assert " ".join(" ".join(lines).split()) == " ".join(str(summary).split())
