"""The benchmark of simulators, on a tiny setting."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dlrd.bench import few_runs, simulators
from dlrd.bench.timing import Row
from dlrd.cli import app


def test_is_printed_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a comparison of fits that is not measured here."""
    row = Row("a fit", "one worker", 1.0, 7.0, "s", reach=6.0, is_speedup=True)
    monkeypatch.setattr(simulators, "speed_up", lambda num_starts: row)
    monkeypatch.setattr(simulators, "NUM_IDLE", 16)
    monkeypatch.setattr(simulators, "few_runs", lambda: [{"problem": "a fit of few runs"}])
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["bench", "simulators", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "7.00 × as fast" in result.output
    assert "Dask alone" in result.output
    written = json.loads((tmp_path / "simulators" / "results.json").read_text())
    rows = written["rows"]
    assert [row["is_reached"] for row in rows[:2]] == [True, True]
    assert all(row["ours"] > 0 for row in rows)
    assert written["budgets"] == [{"problem": "a fit of few runs"}]


@pytest.mark.slow
def test_few_runs_are_never_more_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_runs, "NUM_SEEDS", 1)
    rows = few_runs.few_runs()
    assert [row["budget"] for row in rows] == 4 * list(few_runs.BUDGETS)
    assert all(0 < row["most"] <= row["budget"] for row in rows)
    assert all(-0.01 < row["gap"] < 100 for row in rows)
    certified = [row for row in rows if row["num_certified"]]
    assert len(certified) >= 6  # five dimensions, from a hundred runs on
    assert all(row["gap"] < few_runs.TOLERANCE for row in certified)
    assert rows[-1]["gap"] < 0.1
