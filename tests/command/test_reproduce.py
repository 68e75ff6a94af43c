"""`dlrd reproduce`: what it hands on, what it prints, and what it says to those who mistype."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from dlrd.paper import reproduce
from dlrd.paper.claims import Claim

Invoke = Callable[..., Result]


@pytest.fixture
def handed_on(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the command hands on, in place of the work."""
    calls: list[tuple[Any, ...]] = []

    def record(*arguments: Any) -> list[Claim]:
        calls.append(arguments)
        return [
            Claim("first", "as the paper says", "1.5 of 2", True),
            Claim("second", "so too", "3", False),
        ]

    monkeypatch.setattr(reproduce, "reproduce", record)
    return calls


def test_hands_its_settings_on(invoke: Invoke, handed_on: list[tuple[Any, ...]]) -> None:
    assert invoke("reproduce").exit_code == 0
    settings = ["snr", "logistic", "--scale", "paper", "--out", "x", "--seeds", "3"]
    assert invoke("reproduce", *settings).exit_code == 0
    assert handed_on == [
        ([], "quick", Path("reproduction"), None),
        (["snr", "logistic"], "paper", Path("x"), 3),
    ]


def test_tells_which_claims_hold(invoke: Invoke, handed_on: list[tuple[Any, ...]]) -> None:
    assert invoke("reproduce", "--out", "x").stdout.splitlines() == [
        "holds          first: 1.5 of 2",
        "does not hold  second: 3",
        f"1 of 2 claims hold; see {Path('x') / 'index.html'}",
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["quadnormals"], "figure must be one of 1d_convergence, snr"),
        (["--scale", "huge"], "--scale"),
        (["--seeds", "0"], "--seeds"),
    ],
)
def test_what_is_mistyped_is_told_at_once(invoke: Invoke, arguments: list[str], told: str) -> None:
    result = invoke("reproduce", *arguments)
    assert result.exit_code == 2
    assert told in result.output


def test_what_is_not_installed_is_told(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dlrd.paper", None)
    result = invoke("reproduce")
    assert result.exit_code == 2
    assert result.stderr == "Error: the reproduction needs dlrd.paper: pip install 'dlrd[paper]'\n"
