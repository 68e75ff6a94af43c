"""Each part of the benchmark from the command line, on tiny settings."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from dlrd.bench import ablation, budgets, scaling, start_cost, steps, timing
from dlrd.bench.peers import compare, ours
from dlrd.bench.posteriors import accuracy, cases
from dlrd.bench.scaling_run import Chain
from dlrd.bench.table import shown
from dlrd.bench.timing import Row
from dlrd.cli import app
from dlrd.families import FullRankNormal, LowRankNormal, MeanFieldNormal, SparseNormal

PROBLEM = "arK-arK"
FILES = {"results.json", "figure.png", "figure.pdf"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With one posterior, of made-up data and a made-up reference."""
    names = ["alpha", "beta[1]", "sigma"]
    content = {
        "data": {"K": 1, "T": 12, "y": np.random.default_rng(0).normal(size=12).tolist()},
        "reference": {name: {"mean": 0.5, "sd": 1.0} for name in names},
    }
    (tmp_path / f"{PROBLEM}.json").write_text(json.dumps(content), encoding="utf-8")
    return tmp_path


def invoke(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "200", "PDB_PATH": ""}).invoke(app, ["bench", *map(str, arguments)])


def run_on(folder: Path, part: str, *arguments: object) -> tuple[str, dict]:
    """What a part printed and wrote for the one problem."""
    given = ("--posteriordb", folder, "--problem", PROBLEM, "--out", folder / "out", "--seeds", 1)
    result = invoke(part, *given, *arguments)
    assert result.exit_code == 0, result.output
    assert {path.name for path in (folder / "out" / part).iterdir()} == FILES
    return result.output, json.loads((folder / "out" / part / "results.json").read_text(encoding="utf-8"))


def test_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two comparisons that are not measured here."""
    rows = [
        Row("a step", "a loop", 2.0, 6.0, "µs", reach=4.0, is_speedup=True),
        Row("the rule", "a fixed rate", 2.1, 2.0, "µs", reach=1.1, is_speedup=False),
    ]
    monkeypatch.setattr(steps, "_rows", lambda: iter(rows))
    monkeypatch.setattr(start_cost, "compilations", lambda: 0)
    result = invoke("steps", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "3.00 × as fast" in result.output
    assert "≤ 1.1" in result.output
    assert {path.name for path in (tmp_path / "steps").iterdir()} == FILES
    written = json.loads((tmp_path / "steps" / "results.json").read_text(encoding="utf-8"))
    assert [row["ratio"] for row in written["rows"]] == [3.0, 1.05]
    assert [row["is_reached"] for row in written["rows"]] == [False, True]
    assert written["compiled_after_first_chunk"] == 0


def test_certificates_are_counted_by_family() -> None:
    rows = [
        {"problem": problem, "family": "mean-field", "outcome": outcome, "gap": gap, "gradients": gradients}
        | {"tolerance": tolerance, "elbo": elbo, "said_elbo": 0.0, "elbo_error": 0.3, "said_elbo_error": 0.4}
        for problem, outcome, gap, gradients, tolerance, elbo in (
            ("easy", "CERTIFIED", 0.001, 100, 0.01, 2.4),
            ("easy", "CERTIFIED", 0.02, 300, 0.01, -2.6),
            ("hard", "CERTIFIED", 0.03, 500, 0.05, 0.0),
            ("hard", "BUDGET", 0.5, 9000, 0.05, float("nan")),
        )
    ]
    (row,) = accuracy.overall(rows)
    assert row["fits"] == 4
    assert row["certified"] == 3
    assert row["right"] == pytest.approx(2 / 3)
    assert row["problems"] == "1 of 2"
    assert row["gradients"] == 300
    assert row["off"] == 2  # by more than five times 0.5, and the one that is none
    assert np.isnan(accuracy.overall(rows[3:])[0]["right"])
    # Certificates that nobody can check are neither right nor wrong.
    unknown = [rows[0], rows[2] | {"gap": float("nan")}]
    assert accuracy.overall(unknown)[0]["right"] == 1


@pytest.mark.slow
def test_posteriors(folder: Path) -> None:
    printed, written = run_on(folder, "posteriors")
    assert "1 of 1" in printed
    assert [row["family"] for row in written["rows"]] == ["mean-field", "full-rank"]
    assert all(abs(row["gap"]) < row["tolerance"] == 0.01 for row in written["rows"])
    assert [row["off"] for row in written["overall"]] == [0, 0]
    assert (folder / "out" / "optima.npz").is_file()
    # The second call finds the best normals, and the same fits.
    again = run_on(folder, "posteriors")[1]
    assert [row["gap"] for row in again["rows"]] == [row["gap"] for row in written["rows"]]


@pytest.mark.slow
def test_ablation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With three of its parts: each of the others compiles a program more."""
    parts = (ablation.COMPLETE, "one start", "no average over the tail")
    monkeypatch.setattr(ablation, "PARTS", {part: ablation.PARTS[part] for part in parts})
    printed, written = run_on(folder, "ablation", "--max-gradients", 1000)
    assert all(part in printed for part in ablation.PARTS)
    assert len(written["rows"]) == 2 * len(ablation.PARTS)
    assert written["summary"][0]["ratio"] == 1


@pytest.mark.slow
def test_peers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one of the two families and one rate."""
    monkeypatch.setattr(cases, "FAMILIES", {"full-rank": FullRankNormal})
    monkeypatch.setattr(ours, "GRID", (1e-2,))
    printed, written = run_on(folder, "peers", "--max-gradients", 1000)
    assert all(method in printed for method in [*compare.METHODS, compare.BEST_RATE])
    gaps = {row["method"]: row["gap"] for row in written["rows"]}
    assert min(gaps, key=gaps.__getitem__) == compare.AUTOMATIC


@pytest.mark.slow
def test_budgets(folder: Path) -> None:
    """With one budget that is smaller than the usual ones."""
    printed, written = run_on(folder, "budgets", "--max-gradients", 2000)
    assert "2,000" in printed
    assert [row["family"] for row in written["rows"]] == ["mean-field", "full-rank"]
    for row in written["rows"]:
        assert row["rate"] in ours.GRID
        assert row["is_lowest"]
        assert row[budgets.AUTOMATIC] < 0.01 < min(row[budgets.RULE], row[budgets.STATIC])


@pytest.mark.slow
def test_scaling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the smallest dimension alone: each size is a process that compiles anew."""
    monkeypatch.setattr(scaling, "DRAWS", ())
    monkeypatch.setattr(scaling, "DATA", ())
    options = ("--max-dim", 10, "--max-gradients", 1000)
    result = invoke("scaling", "--out", tmp_path, *options)
    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "scaling").iterdir()} == FILES
    rows = json.loads((tmp_path / "scaling" / "results.json").read_text(encoding="utf-8"))["rows"]
    assert [row["family"] for row in rows] == ["mean-field", "low-rank", "sparse"]
    assert all(row["seconds_per_step"] > 0 and row["peak_megabytes"] > 10 for row in rows)
    assert 0 <= rows[0]["gap"] < 0.01
    assert 0 <= rows[2]["gap"] == rows[2]["divergence"] < 0.01


def test_exponents_of_a_power_law() -> None:
    rows = [
        {"axis": "dimension", "family": "mean-field", "size": size, "outcome": "CERTIFIED"}
        | {"seconds_per_step": size**2 / 7, "seconds": 3 * size, "peak_megabytes": 5.0}
        for size in (10, 100, 1000)
    ]
    (found,) = scaling.fitted_exponents(rows)
    assert [found[key] for key in ("step", "fit", "memory")] == pytest.approx([2, 1, 0])


@pytest.mark.usefixtures("x64")
def test_the_divergence_from_the_chain_is_that_of_dense_matrices() -> None:
    chain, dim, rng = Chain(6), 6, np.random.default_rng(1)
    precision = np.diag(chain.banded[1]) + np.diag(chain.banded[0, 1:], 1) + np.diag(chain.banded[0, 1:], -1)
    np.testing.assert_allclose(precision @ chain.mean, chain.seen)
    other = np.eye(dim)
    other[[0, 4], [4, 0]] = 0.5  # couples states that are no neighbours, and none that are
    for family in (
        MeanFieldNormal(rng.normal(size=dim), rng.normal(size=dim)),
        LowRankNormal(rng.normal(size=dim), rng.normal(size=dim), rng.normal(size=(dim, 2))),
        SparseNormal.from_precision(rng.normal(size=dim), precision + other),
        SparseNormal.from_precision(rng.normal(size=dim), other),
    ):
        covariance = np.diag(family.std**2) if isinstance(family, MeanFieldNormal) else family.covariance
        shift = np.asarray(family.loc) - chain.mean
        log_det = np.linalg.slogdet(precision @ np.asarray(covariance))[1]
        expected = 0.5 * (np.trace(precision @ covariance) + shift @ precision @ shift - dim - log_det)
        assert chain.divergence(family) == pytest.approx(expected)
    best = MeanFieldNormal(chain.mean, -0.5 * np.log(chain.banded[1]))
    assert chain.divergence(best) == pytest.approx(chain.mean_field_divergence())
    posterior = SparseNormal.from_precision(chain.mean, precision)
    assert chain.divergence(posterior) == pytest.approx(chain.least_divergence(posterior), abs=1e-12)


@pytest.mark.parametrize("part", ["posteriors", "ablation", "peers", "budgets", "nuts", "seconds", "shapes"])
def test_a_missing_folder_is_told_in_a_sentence(part: str, folder: Path) -> None:
    no_folder = invoke(part)
    assert no_folder.exit_code == 2
    assert "must be given by --posteriordb or the environment variable PDB_PATH" in no_folder.output
    nowhere = invoke(part, "--posteriordb", folder / "nowhere")
    assert nowhere.exit_code == 2
    assert "posteriors must exist" in nowhere.output


def test_an_unknown_problem_is_told_in_a_sentence(folder: Path) -> None:
    result = invoke("posteriors", "--posteriordb", folder, "--problem", "arK")
    assert result.exit_code == 2
    assert "a problem must be one of" in result.output


def test_values_as_tables_show_them() -> None:
    values = [(True, ""), (None, ".2g"), (float("nan"), ".2g"), (0.1234, ".2g"), (12345, ",d"), ("as is", "")]
    assert [shown(*value) for value in values] == ["✓", "–", "–", "0.12", "12,345", "as is"]


def test_pairs_see_the_ratio_through_changes_of_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def seconds(fn: object) -> float:
        calls.append(fn)
        slowness = [1, 1, 7][(len(calls) - 1) // 2 % 3]  # the same for both calls of a pair
        return slowness * (1.5 if fn is ours else 1.0)

    ours, theirs = (lambda: None), (lambda: None)
    monkeypatch.setattr(timing, "seconds", seconds)

    assert timing.paired(ours, theirs, 5) == (1.5, 1.0)
    assert [fn is ours for fn in calls] == [False, True, True, False] * 2 + [False, True]
