"""`dlrd bench shapes`: flows and mixtures beside Adam at its best rate in hindsight."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from dlrd.bench import shapes
from dlrd.cli import app


def test_targets_are_densities() -> None:
    """But for the posterior, whose evidence is not known, and the ring, which is one up to a constant."""
    side = jnp.linspace(-12, 12, 801)
    grid = jnp.stack(jnp.meshgrid(side, side), axis=-1).reshape(-1, 2)
    for name, mass in (("banana", 1.0), ("two modes", 1.0), ("ring", 2 * np.pi * 3)):
        log_density, dim = shapes.TARGETS[name]
        assert dim == 2
        density = jnp.exp(jax.vmap(log_density)(grid))
        assert float(density.sum()) * (24 / 800) ** 2 == pytest.approx(mass, rel=1e-3)


@pytest.mark.parametrize("family", shapes.FAMILIES)
@pytest.mark.parametrize("dim", [2, 5])
def test_families_have_the_dimension(family: str, dim: int) -> None:
    made = shapes.FAMILIES[family](dim)
    draws = made.sample(jax.random.key(0), (3,))
    assert draws.shape == (3, dim)
    assert jnp.isfinite(made.log_prob(draws)).all()


def test_targets_on_which_it_is_as_good_are_counted() -> None:
    rows = [
        {"family": "flow", "budget": 10, "automatic": automatic, "static": 1.0, "cosine": 2.0}
        for automatic in (0.5, 1.0 + 0.9 * shapes.AS_GOOD, 1.5, 3.0)
    ]
    (row,) = shapes.overall(rows)
    assert (row["static"], row["cosine"]) == ("2 of 4", "3 of 4")


def test_an_unknown_family_is_told_in_a_sentence(tmp_path: Path) -> None:
    given = ["bench", "shapes", "--posteriordb", str(tmp_path), "--family", "flow"]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, given)
    assert result.exit_code == 2
    assert "a family must be one of coupling flow" in result.output


@pytest.mark.slow
def test_a_mixture_on_two_modes(tmp_path: Path) -> None:
    given = ["--posteriordb", tmp_path, "--out", tmp_path, "--seeds", 2, "--max-gradients", 8000]
    chosen = ["--problem", "two modes", "--family", "2 full-rank normals"]
    result = CliRunner(env={"COLUMNS": "250"}).invoke(app, ["bench", "shapes", *map(str, given + chosen)])
    assert result.exit_code == 0, result.output
    folder = tmp_path / "shapes"
    assert {path.name for path in folder.iterdir()} == {"results.json", "figure.png", "figure.pdf"}
    (row,) = json.loads((folder / "results.json").read_text(encoding="utf-8"))["rows"]
    assert row["automatic"] < 0.005  # the target is in the family
    assert row["is_as_good"]
