"""The command `dlrd`: what it hands on, what it prints, and what it says to those who mistype."""

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import dlrd
from dlrd.bench import nuts, scaling
from dlrd.bench.posteriors import accuracy, larger_cases
from dlrd.bench.posteriors.cases import Settings
from dlrd.cli import app
from dlrd.paper import reproduce
from dlrd.paper.claims import Claim

CLAIMS = [Claim("first", "as the paper says", "1.5 of 2", True), Claim("second", "so too", "3", False)]


def invoke(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "PDB_PATH": ""}).invoke(app, arguments)


@pytest.fixture
def handed_on(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the commands hand on, in place of the work."""
    calls: list[tuple[Any, ...]] = []

    def record(*arguments: Any) -> list[Claim]:
        calls.append(arguments)
        return CLAIMS

    for module, name in [(reproduce, "reproduce"), (accuracy, "run"), (scaling, "run"), (nuts, "run")]:
        monkeypatch.setattr(module, name, record)
    monkeypatch.setattr(larger_cases, "check", lambda settings: None)
    monkeypatch.setattr(nuts, "read", lambda folder, names: [folder, *names])
    return calls


def test_version_and_help() -> None:
    assert invoke("--version").stdout == f"dlrd {dlrd.__version__}\n"
    for arguments, expected in [
        (["--help"], ["reproduce", "bench"]),
        (["bench", "--help"], ["steps", "posteriors", "ablation", "scaling", "peers", "budgets", "nuts"]),
        (["reproduce", "--help"], ["--scale", "--out", "--seeds"]),
    ]:
        printed = invoke(*arguments).stdout
        assert [word for word in expected if word not in printed] == []


def test_reproduce_hands_its_settings_on(handed_on: list[tuple[Any, ...]]) -> None:
    assert invoke("reproduce").exit_code == 0
    assert (
        invoke("reproduce", "snr", "logistic", "--scale", "paper", "--out", "x", "--seeds", "3").exit_code
        == 0
    )
    assert handed_on == [
        ([], "quick", Path("reproduction"), None),
        (["snr", "logistic"], "paper", Path("x"), 3),
    ]


def test_reproduce_tells_which_claims_hold(handed_on: list[tuple[Any, ...]]) -> None:
    assert invoke("reproduce", "--out", "x").stdout.splitlines() == [
        "holds          first: 1.5 of 2",
        "does not hold  second: 3",
        f"1 of 2 claims hold; see {Path('x') / 'index.html'}",
    ]


def test_parts_of_the_benchmark_hand_their_settings_on(handed_on: list[tuple[Any, ...]]) -> None:
    options = ["--out", "x", "--tolerance", "0.5", "--max-gradients", "7"]
    several = ["--posteriordb", "y", "--seeds", "2", "--problem", "a", "--problem", "b"]
    assert invoke("bench", "posteriors", *options, *several).exit_code == 0
    assert invoke("bench", "scaling", *options, "--max-dim", "20", "--max-rows", "3000").exit_code == 0
    assert invoke("bench", "posteriors", "--posteriordb", "y").exit_code == 0
    assert invoke("bench", "nuts", "--out", "x", *several).exit_code == 0
    assert handed_on == [
        (Settings(Path("y"), Path("x"), 2, 7, 0.5, ["a", "b"]),),
        (Path("x"), 0.5, 7, 20, 3000),
        (Settings(Path("y"), Path("benchmark"), 3, 100_000, None, []),),
        ([Path("y"), "a", "b"], Path("x"), 2),
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["reproduce", "quadnormals"], "figure must be one of 1d_convergence, snr"),
        (["reproduce", "--scale", "huge"], "--scale"),
        (["reproduce", "--seeds", "0"], "--seeds"),
        (["bench", "posteriors"], "must be given by --posteriordb or the environment variable PDB_PATH"),
        (["bench", "scaling", "--max-dim", "1"], "--max-dim"),
    ],
)
def test_what_is_mistyped_is_told_at_once(arguments: list[str], told: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert told in result.output


@pytest.mark.parametrize(
    ("arguments", "module", "told"),
    [
        (["reproduce"], "dlrd.paper", "the reproduction needs dlrd.paper: pip install 'dlrd[paper]'"),
        (["bench", "steps"], "dlrd.bench", "the benchmark needs dlrd.bench: pip install 'dlrd[bench]'"),
    ],
)
def test_what_is_not_installed_is_told(
    arguments: list[str], module: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert told in result.output
