"""Models as people write them beside NUTS: what is compared, and in minutes, that every model is right."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from typer.testing import CliRunner

from dlrd.bench import adapter_cost
from dlrd.bench.models import compare
from dlrd.bench.models.case import Case
from dlrd.bench.models.numpyro_models import CASES
from dlrd.cli import app
from dlrd.models import numpyro as numpyro_model

Y = np.array([0.3, -1.2, 2.0, 0.7])
PRECISION = 1 + len(Y)
NUM_SDS = 5
"""Of a Monte Carlo error, that a mean may be off."""


def conjugate(y: Any) -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def exact(seed: int) -> dict[str, np.ndarray]:
    """Draws from the posterior, which is known."""
    normal = np.random.default_rng(seed).normal(size=10_000)
    return {"mean": Y.sum() / PRECISION + normal / PRECISION**0.5}


def test_a_fit_that_is_right_is_near(tmp_path: Path) -> None:
    case = Case("conjugate", "normal", lambda: (numpyro_model(conjugate, Y), exact))
    (row,) = compare.run([("NumPyro", case)], tmp_path)
    # The draws of both have an error, and the fit one of at most its tolerance.
    assert row["mean_error"] < NUM_SDS * 0.01 * 2**0.5 + 0.02**0.5
    assert row["is_whole"]
    assert row["is_near"]
    assert row["outcome"] == "CERTIFIED"
    written = json.loads((tmp_path / "models" / "results.json").read_text(encoding="utf-8"))
    assert written["rows"][0]["model"] == "conjugate"
    assert (tmp_path / "models" / "figure.png").exists()


def test_the_worst_mean_and_sd_count() -> None:
    noise = np.random.default_rng(0).normal(size=(1_000, 2))
    reference = {"x": noise, "same": np.ones((1_000, 1))}
    draws = {"x": noise * np.array([0.5, 1.5]) + np.array([0.0, 0.3]), "same": np.ones((1_000, 1))}
    spread, shift = noise.std(axis=0), 0.5 * noise.mean(axis=0) * np.array([-1, 1]) + np.array([0.0, 0.3])
    mean_error, std_ratio = compare.errors(draws, reference)
    np.testing.assert_allclose(mean_error, np.max(np.abs(shift) / spread))
    np.testing.assert_allclose(std_ratio, 0.5)


def test_what_is_missing_or_outside_is_seen() -> None:
    draws = {"x": np.ones((3, 2))}
    assert compare.has_same_shapes(draws, {"x": np.zeros((7, 2))})
    assert not compare.has_same_shapes(draws, {"x": np.zeros((7, 3))})
    assert not compare.has_same_shapes(draws, {"x": np.zeros((7, 2)), "y": np.zeros(7)})
    positive = numpyro_model(lambda: numpyro.sample("x", dist.HalfNormal(1.0)))
    assert compare.is_inside(positive, {"x": np.array([0.5, 2.0])})
    assert not compare.is_inside(positive, {"x": np.array([0.5, -2.0])})


def test_names_that_are_unknown_are_told() -> None:
    result = CliRunner(env={"COLUMNS": "400"}).invoke(app, ["bench", "models", "--problem", "nothing"])
    assert result.exit_code == 2
    assert "a problem must be one of regression, robust regression" in result.output


def test_there_are_models_of_many_kinds() -> None:
    assert len({case.kind for case in CASES}) == len(CASES) >= 10


@pytest.mark.usefixtures("x64")
def test_the_adapter_is_timed_against_the_same_density(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the constants of half normals nothing may differ."""
    monkeypatch.setattr(adapter_cost, "STEPS", 50)
    data = adapter_cost.made_data()
    row = adapter_cost.numpyro_hierarchy(repeats=1)
    assert "NumPyro" in row.what
    draws = jax.random.normal(jax.random.key(0), (3, adapter_cost.NUM_GROUPS + 4))
    model = numpyro_model(adapter_cost.hierarchy(*data))
    expected = jax.jit(jax.vmap(adapter_cost.by_hand(*data)))(draws)
    np.testing.assert_allclose(model.values(draws, None), expected, rtol=1e-12)
    assert jnp.isfinite(row.ratio)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_model_beside_nuts(case: Case) -> None:
    """Where the family is near the posterior (k̂ ≤ 0.7), means are; all sites are there either way."""
    row = compare.row_of(case, seed=0)
    assert row["is_whole"]
    assert row["is_near"] or row["tail_shape"] > 0.7
