"""`dlrd bench`: what it hands on, and what it says to those who mistype."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from dlrd.bench import nuts, scaling
from dlrd.bench.posteriors import accuracy, larger_cases
from dlrd.bench.posteriors.cases import Settings
from dlrd.bench.seconds import compare

Invoke = Callable[..., Result]


@pytest.fixture
def handed_on(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the commands hand on, in place of the work."""
    calls: list[tuple[Any, ...]] = []

    def record(*arguments: Any) -> None:
        calls.append(arguments)

    for module in (accuracy, scaling, nuts, compare):
        monkeypatch.setattr(module, "run", record)
    monkeypatch.setattr(compare, "settings", lambda *arguments: arguments)
    monkeypatch.setattr(larger_cases, "check", lambda settings: None)
    monkeypatch.setattr(nuts, "read", lambda folder, names: [folder, *names])
    return calls


def test_parts_hand_their_settings_on(invoke: Invoke, handed_on: list[tuple[Any, ...]]) -> None:
    options = ["--out", "x", "--tolerance", "0.5", "--max-gradients", "7"]
    several = ["--posteriordb", "y", "--seeds", "2", "--problem", "a", "--problem", "b"]
    assert invoke("bench", "posteriors", *options, *several).exit_code == 0
    assert invoke("bench", "scaling", *options, "--max-dim", "20", "--max-rows", "3000").exit_code == 0
    assert invoke("bench", "posteriors", "--posteriordb", "y").exit_code == 0
    assert invoke("bench", "nuts", "--out", "x", *several).exit_code == 0
    several = ["--posteriordb", "y", "--repeats", "2", "--tool", "a", "--tool", "b", "--problem", "c"]
    assert invoke("bench", "seconds", "--out", "x", *several).exit_code == 0
    assert handed_on == [
        (Settings(Path("y"), Path("x"), 2, 7, 0.5, ["a", "b"]),),
        (Path("x"), 0.5, 7, 20, 3000),
        (Settings(Path("y"), Path("benchmark"), 3, 100_000, None, []),),
        ([Path("y"), "a", "b"], Path("x"), 2),
        ((Path("y"), Path("x"), 2, ["a", "b"], ["c"]),),
    ]


def test_parts_are_listed(invoke: Invoke) -> None:
    printed = invoke("bench", "--help").stdout
    parts = ["steps", "posteriors", "ablation", "scaling", "peers", "budgets", "nuts", "seconds"]
    parts += ["models", "simulators"]
    assert [part for part in parts if part not in printed] == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["posteriors"], "must be given by --posteriordb or the environment variable PDB_PATH"),
        (["scaling", "--max-dim", "1"], "--max-dim"),
    ],
)
def test_what_is_mistyped_is_told_at_once(invoke: Invoke, arguments: list[str], told: str) -> None:
    result = invoke("bench", *arguments)
    assert result.exit_code == 2
    assert told in result.output


def test_what_is_not_installed_is_told(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dlrd.bench", None)
    result = invoke("bench", "steps")
    assert result.exit_code == 2
    assert result.stderr == "Error: the benchmark needs dlrd.bench: pip install 'dlrd[bench]'\n"
