"""Fits beside NUTS: chains, runs that get longer, and what the table makes of them."""

import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from dlrd.bench import nuts
from dlrd.bench.posteriors.models import Posterior
from dlrd.cli import app


def normal_posterior(dim: int = 2) -> Posterior:
    names = [f"z[{index}]" for index in range(dim)]
    return Posterior("normal", dim, lambda z: -0.5 * (z @ z), lambda z: z, names, np.zeros(dim), np.ones(dim))


def row_of(problem: str = "p", **values: Any) -> dict[str, Any]:
    trials = [
        nuts.Trial(50, 1.0, 500, 0.3, 0.3),
        nuts.Trial(100, 2.0, 600, 0.15, 0.12),
        nuts.Trial(200, 4.0, 800, 0.08, 0.1),
    ]
    return {
        "problem": problem,
        "dim": 3,
        "family": "FullRankNormal",
        "outcome": "CERTIFIED",
        "seconds": 0.5,
        "gradients": 70,
        "mean_error": 0.05,
        "std_error": 0.05,
        "nuts": [trial._asdict() for trial in trials],
    } | values


def test_fits_that_reach_the_targets_are_compared_there() -> None:
    (row,) = nuts.summary([row_of(), row_of(seconds=1.0), row_of(seconds=9.0)])
    assert row["reached"] == "yes"
    assert row["certified"] == "3 of 3"
    assert [row[key] for key in ("nuts_draws", "nuts_seconds", "nuts_gradients")] == [200, 4.0, 800]
    assert row["same_seconds"] == 4.0
    assert row["ratio"] == 4.0


def test_fits_that_do_not_are_compared_with_as_large_errors() -> None:
    """The errors of the sds may still be those of the target."""
    (row,) = nuts.summary([row_of(mean_error=0.16)])
    assert row["reached"] == "the best normal: 0.160, 0.050"
    assert row["nuts_seconds"] == 4.0
    assert row["same_seconds"] == 2.0
    assert row["ratio"] == 4.0
    (row,) = nuts.summary([row_of(mean_error=0.16, outcome="BUDGET")])
    assert row["reached"] == "no: 0.160, 0.050"
    (row,) = nuts.summary([row_of(mean_error=0.16, family="MeanFieldNormal")])
    assert row["reached"] == "no: 0.160, 0.050"


def test_chains_that_never_arrive_take_for_ever() -> None:
    cut = row_of(nuts=row_of()["nuts"][:1])
    first, second = nuts.summary([cut, row_of("q"), row_of("q"), cut | {"problem": "q"}])
    assert math.isinf(first["nuts_seconds"])
    assert second["nuts_seconds"] == 4.0


@pytest.mark.usefixtures("x64")
def test_runs_get_longer_until_their_errors_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """With draws whose mean is off by 8 / their number."""
    calls = []

    def chains_fn(posterior: Posterior, num_draws: int) -> nuts.ChainsFn:
        def run(keys: jax.Array) -> tuple[jax.Array, jax.Array]:
            calls.append(num_draws)
            exact = np.resize([-1.0, 1.0], (nuts.NUM_CHAINS, num_draws, 1)) + 8 / num_draws
            exact = np.concatenate([exact, exact], axis=-1)
            return jnp.asarray(exact), jnp.asarray([3, 4])

        return run

    monkeypatch.setattr(nuts, "chains_fn", chains_fn)
    compiled: dict[int, nuts.ChainsFn] = {}
    trials = nuts._trials(normal_posterior(), 0, compiled)
    assert [trial.draws for trial in trials] == [50, 100]
    assert [trial.gradients for trial in trials] == [7, 7]
    assert trials[0].mean_error == pytest.approx(0.16)
    assert calls == [50, 50, 100, 100]  # the first of each compiles
    nuts._trials(normal_posterior(), 1, compiled)
    assert calls[4:] == [50, 100]
    monkeypatch.setattr(nuts, "MAX_DRAWS", 60)
    assert len(nuts._trials(normal_posterior(), 0, compiled)) == 1


@pytest.mark.usefixtures("x64")
def test_chains_sample_and_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nuts, "NUM_WARMUP", 100)
    draws, gradients = nuts.chains_fn(normal_posterior(), 400)(nuts._keys(0))
    assert draws.shape == (2, 400, 2)
    assert gradients.shape == (2,)
    assert np.all(np.asarray(gradients) >= 500)  # one at least for each draw, those of the warm-up included
    assert not np.allclose(draws[0], draws[1])
    # A tenth as many independent draws would do, at five standard errors.
    errors = nuts.errors_of_moments(
        normal_posterior(), *(fn(np.asarray(draws), axis=(0, 1)) for fn in (np.mean, np.std))
    )
    assert max(errors) < 5 / np.sqrt(80)


@pytest.mark.slow
def test_the_whole_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "")  # set by NumPyro, for this process and those that it starts
    monkeypatch.setattr(nuts, "NUM_WARMUP", 100)
    monkeypatch.setattr(nuts, "MAX_DRAWS", 100)
    data = {"R": 3, "T": 2, "N": 3, "response": [[0, 1], [1, 0], [1, 1]], "culm": [1, 2, 3]}
    reference = {"alpha": {"mean": [0.0, 0.0], "sd": [90.0, 90.0]}, "beta": {"mean": 4.0, "sd": 1.0}}
    reference |= {"theta": {"mean": [0.0, 0.0, 0.0], "sd": [1.0, 1.0, 1.0]}}
    (tmp_path / "larger").mkdir()
    content = json.dumps({"data": data, "reference_unconstrained": reference})
    (tmp_path / "larger" / "lsat.json").write_text(content, encoding="utf-8")
    given = ("--posteriordb", tmp_path, "--problem", "lsat", "--out", tmp_path / "out", "--seeds", 1)
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["bench", "nuts", *map(str, given)])
    assert result.exit_code == 0, result.output
    found = {path.name for path in (tmp_path / "out" / "nuts").iterdir()}
    assert found == {"results.json", "figure.png", "figure.pdf"}
    written = json.loads((tmp_path / "out" / "nuts" / "results.json").read_text(encoding="utf-8"))
    (row,) = written["rows"]
    assert row["family"] == "FullRankNormal"
    assert row["seconds"] > 0
    assert [trial["draws"] for trial in row["nuts"]] in ([50], [50, 100])
    assert written["summary"][0]["problem"] == "lsat"
