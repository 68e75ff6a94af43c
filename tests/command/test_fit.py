"""`dlrd fit`: what it makes of a model, and how it ends."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

import dlrd
from dlrd.command.folder import DRAWS, FIT, SUMMARY

Invoke = Callable[..., Result]


def test_a_log_density(invoke: Invoke) -> None:
    source = "import jax.numpy as jnp\ndef normal(z):\n    return -0.5 * jnp.sum((z - 1.0) ** 2)\n"
    Path("model.py").write_text(source)
    call = ["fit", "model.py:normal", "--dim", "2", "--draws", "50", "--precision", "32", "--seed", "3"]
    done = invoke(*call)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0].split() == ["mean", "sd", "5%", "50%", "95%"]
    assert done.stdout.endswith("Wrote fit.dlrd, draws.npz, draws.nc, report.html, summary.json to fit.\n")
    fit = dlrd.load(Path("fit") / FIT)
    with np.load(Path("fit") / DRAWS) as draws:
        assert draws["z"].dtype == np.float32
        np.testing.assert_array_equal(draws["z"], fit.sample(3, 50))
    Path("model.py").write_text(source.replace("1.0", "2.25"))
    changed = invoke(*call)
    assert changed.exit_code == 2
    assert "Error: fit holds another fit (the model or its data have changed, or jax has)" in changed.stderr


def test_long_tables_are_cut(fitted: Any) -> None:
    assert "theta[28]" in fitted.stdout
    assert "theta[29]" not in fitted.stdout
    assert f"The table has 40 rows: dlrd show {fitted.folder}\n" in fitted.stdout


def test_out_of_budget(invoke: Invoke, models: Path) -> None:
    """The folder is then that of this fit, and of no other."""
    call = ["fit", f"{models}:counted", "--tolerance", "0.001", "--max-gradients", "600"]
    done = invoke(*call)
    assert done.exit_code == 3, done.output
    assert json.loads((Path("fit") / SUMMARY).read_text())["outcome"] == "BUDGET"
    other = invoke(*call, "--seed", "1")
    assert other.exit_code == 2
    assert "fit holds another fit (seed was 0, and is 1)" in other.stderr


def test_diverged(invoke: Invoke, models: Path) -> None:
    """Half of the space has no density."""
    done = invoke("fit", f"{models}:walled", "--dim", "1", "--family", "mean-field")
    assert done.exit_code == 4, done.output
    assert "Transform bounded parameters" in done.stdout
    summary = json.loads((Path("fit") / SUMMARY).read_text())
    assert (summary["outcome"], summary["family"]) == ("DIVERGED", "MeanFieldNormal")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["normal"],
            "normal needs z, but no --data are given; if it is the log density of a vector, say how",
        ),
        (["measured", "--dim", "2", "--data", "nowhere.npz"], "there is no file nowhere.npz"),
        (["measured", "--dim", "1", "--data", "y.json"], "log_density must return one number for one draw"),
        (
            ["normal", "--dim", "2", "--tolerance", "-1"],
            "tolerance must be a positive number, got float -1.0",
        ),
        (["normal", "--dim", "2", "--out", "y.json"], "--out must name a folder, got the file y.json"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    invoke: Invoke, models: Path, arguments: list[str], told: str
) -> None:
    Path("y.json").write_text('{"y": [[1, 2], [3, 4]]}')
    done = invoke("fit", f"{models}:{arguments[0]}", *arguments[1:])
    assert done.exit_code == 2
    assert told in done.stderr
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
