"""Seconds until an answer: what a process measures, what the tables make of it, and in minutes, all tools."""

import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from dlrd.bench.posteriors import Posterior
from dlrd.bench.seconds import compare, problems
from dlrd.bench.seconds.figure import LARGEST, figure_of
from dlrd.bench.seconds.measured import measure
from dlrd.bench.seconds.tools import NUM_SCORED, TOOLS
from dlrd.cli import app
from dlrd.paper.references.logistic import logistic_reference

PROBLEM = "arK-arK"
NUTS, FULL_RANK = compare.BASELINE, "dlrd, full-rank"
NUM_SDS = 5
"""Of a Monte Carlo error, that moments may be off."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With one posterior, an autoregression of made-up data; its reference is what a fit has found."""
    folder = tmp_path_factory.mktemp("posteriors")
    unknown = {name: {"mean": 0.0, "sd": 1.0} for name in ("alpha", "beta[1]", "sigma")}
    y = np.random.default_rng(0).normal(size=60).tolist()
    content: dict[str, Any] = {"data": {"K": 1, "T": 60, "y": y}, "reference": unknown}
    path = folder / f"{PROBLEM}.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    found = measure(FULL_RANK, PROBLEM, folder, 0)
    for entry, mean, std in zip(unknown.values(), found["mean"], found["std"], strict=True):
        entry |= {"mean": mean, "sd": std}
    path.write_text(json.dumps(content), encoding="utf-8")
    return folder


def row_of(problem: str, tool: str, **values: Any) -> dict[str, Any]:
    times = {"process": 4.0, "call": 2.0, "again": 0.5}
    return (
        {"problem": problem, "tool": tool, "dim": 3, "error": None}
        | times
        | {"mean_error": 0.01, "std_error": 0.02}
        | values
    )


def failed(problem: str, tool: str) -> dict[str, Any]:
    unknown = dict.fromkeys((*compare.TIMES, "mean_error", "std_error"), math.nan)
    return row_of(problem, tool, error="no", **unknown)


def test_a_process_calls_twice_and_knows_what_it_found(folder: Path) -> None:
    """Least squares: with priors as wide as these, the posterior is symmetric around them."""
    y = np.array(json.loads((folder / f"{PROBLEM}.json").read_text(encoding="utf-8"))["data"]["y"])
    slope, intercept = np.polyfit(y[:-1], y[1:], 1)
    found = measure("dlrd, mean-field", PROBLEM, folder, 1)
    assert min(found["call"], found["again"]) > 0
    # A shift by so many sds costs as many nats as the fit's tolerance; the draws have an error, too.
    num_sds = (2 * 0.01) ** 0.5 + NUM_SDS / NUM_SCORED**0.5
    shifts = (np.array(found["mean"][:2]) - [intercept, slope]) / found["std"][:2]
    assert np.max(np.abs(shifts)) < num_sds


def test_medians_of_the_processes_that_did_not_fail() -> None:
    rows = [
        row_of("p", NUTS, call=3.0),
        row_of("p", NUTS, call=1.0, mean_error=0.2),
        row_of("p", NUTS, call=2.0, mean_error=0.2),
        row_of("p", FULL_RANK),
        failed("p", FULL_RANK),
    ]
    first, second = compare.summary(rows)
    assert (first["call"], first["mean_error"], first["is_within"], first["failed"]) == (2.0, 0.2, False, 0)
    assert (second["call"], second["is_within"], second["failed"]) == (2.0, True, 1)


def test_all_problems_together_beside_nuts() -> None:
    medians = compare.summary(
        [
            *(row_of(name, NUTS, call=2.0, again=1.0) for name in "pqr"),
            row_of("p", FULL_RANK, call=1.0, again=0.1),
            row_of("q", FULL_RANK, call=4.0, again=0.2, std_error=0.2),
            failed("r", FULL_RANK),
        ]
    )
    nuts, ours = compare.overall(medians)
    assert (nuts["within"], nuts["call_ratio"], nuts["again_ratio"]) == ("3 of 3", 1.0, 1.0)
    assert (ours["within"], ours["call"]) == ("1 of 3", 2.5)
    assert (ours["call_ratio"], ours["again_ratio"]) == pytest.approx((1.25, 0.15))
    (alone,) = compare.overall([row for row in medians if row["tool"] == FULL_RANK])
    assert math.isnan(alone["call_ratio"])


@pytest.mark.parametrize(
    ("imports", "told"),
    [
        ("raise ImportError('no licence')", "ImportError: no licence"),
        ("time.sleep(60)", "not done after 1 seconds"),
    ],
)
def test_a_process_that_fails_is_a_row_too(imports: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOOLS, FULL_RANK, TOOLS[FULL_RANK]._replace(imports=imports))
    monkeypatch.setattr(compare, "MAX_SECONDS", 1)
    posterior = Posterior("p", 1, lambda z: -0.5 * (z @ z), lambda z: z, ["z"], np.zeros(1), np.ones(1))
    row = compare._measured(Path(), posterior, FULL_RANK, 0)
    assert row["error"] == told
    assert math.isnan(row["process"])
    assert compare._in_words(row) == f"p, {FULL_RANK}: {told}"


def test_what_is_wanted_is_checked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def given(tools: list[str], names: list[str]) -> compare.Settings:
        return compare.settings(folder, folder / "out", 1, tools, names)

    with pytest.raises(ValueError, match=r"a tool must be one of: dlrd; dlrd, mean-field; .*, got NUTS"):
        given(["NUTS"], [])
    with pytest.raises(ValueError, match=r"a problem must be one of: .*; logistic, got field"):
        given([], ["field"])
    monkeypatch.setitem(TOOLS, "DADVI", TOOLS["DADVI"]._replace(package="not_there"))
    with pytest.raises(ValueError, match="a tool must be installed, DADVI needs the package not_there"):
        given(["DADVI"], [PROBLEM])
    assert "DADVI" not in given([], [PROBLEM]).tools
    assert [posterior.name for posterior in given([], [PROBLEM, "logistic"]).posteriors] == [
        PROBLEM,
        "logistic",
    ]


def test_the_figure_shows_the_larger_error_over_its_target() -> None:
    medians = compare.summary(
        [
            row_of("p", NUTS, mean_error=0.2),
            row_of("q", NUTS, std_error=math.inf),
            row_of("p", FULL_RANK, std_error=0.15),
            failed("q", FULL_RANK),
        ]
    )
    left, right = figure_of(medians, (0.1, 0.15)).axes
    heights = [np.asarray(dots.get_offsets())[:, 1].tolist() for dots in left.collections]
    assert heights == [[2.0, LARGEST], [1.0]]
    assert [np.asarray(dots.get_offsets())[:, 0].tolist() for dots in right.collections] == [
        [0.5, 0.5],
        [0.5],
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_the_reference_of_the_logistic_regression() -> None:
    """Against draws from the best normal, weighted by what the posterior says of them."""
    posterior = problems.problem(Path(), "logistic")
    found = problems.with_reference(posterior)
    best = logistic_reference()
    draws = best.sample(jax.random.key(0), (200_000,))
    log_weights = jax.vmap(posterior.log_density)(draws) - best.log_prob(draws)
    weights = np.asarray(jax.nn.softmax(log_weights))
    mean = weights @ np.asarray(draws)
    error = NUM_SDS * found.reference_std * np.sqrt(np.sum(weights**2) + 1 / problems.NUM_DRAWS)
    assert np.all(np.abs(found.reference_mean - mean) < error)
    assert problems.with_reference(found) is found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tool", TOOLS)
def test_each_tool(tool: str, folder: Path) -> None:
    """All but those whose steps are few and short find the right place."""
    found = measure(tool, PROBLEM, folder, 0)
    assert np.isfinite([found["call"], found["again"], *found["mean"], *found["std"]]).all()
    reference = problems.problem(folder, PROBLEM)
    shifts = (np.array(found["mean"]) - reference.reference_mean) / reference.reference_std
    assert np.max(np.abs(shifts)) < 1 or tool in ("NumPyro SVI", "PyMC ADVI")


@pytest.mark.slow
def test_the_whole_part(folder: Path, tmp_path: Path) -> None:
    given = ("--posteriordb", folder, "--problem", PROBLEM, "--out", tmp_path, "--repeats", 1)
    tools = ("--tool", FULL_RANK, "--tool", NUTS)
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["bench", "seconds", *map(str, (*given, *tools))])
    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "seconds").iterdir()} == {
        "results.json",
        "figure.png",
        "figure.pdf",
    }
    written = json.loads((tmp_path / "seconds" / "results.json").read_text(encoding="utf-8"))
    assert [row["tool"] for row in written["overall"]] == [FULL_RANK, NUTS]
    for row in written["rows"]:
        assert row["error"] is None
        assert row["process"] > row["call"] > 0
    assert written["summary"][0]["is_within"]
