"""The larger problems with their families: which there are, and the best normals near what a fit finds."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from dlrd.bench.posteriors import accuracy, larger_cases
from dlrd.bench.posteriors.cases import Kept, Settings
from dlrd.bench.posteriors.larger_cases import FAMILIES, LargerCase
from dlrd.bench.posteriors.models import Posterior
from dlrd.cli import app
from dlrd.families import FullRankNormal, LowRankNormal, MeanFieldNormal, SparseNormal
from dlrd.fitting.automatic.plan import default_tolerance

PROBLEM, DIM = "lsat", 8
PRECISION = np.diag(np.full(3, 2.0)) + np.diag([-1.0, -0.5], 1) + np.diag([-1.0, -0.5], -1)
MEAN = np.array([1.0, 2.0, 3.0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With one larger posterior, of made-up data and a made-up reference."""
    responses = [[0, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 1]]
    reference = {"alpha": 3, "beta": None, "theta": 4}
    content = {
        "data": {"R": 4, "T": 3, "N": 4, "response": responses, "culm": [1, 2, 3, 4]},
        "reference_unconstrained": {
            name: {"mean": 0.5, "sd": 1.0} if size is None else {"mean": size * [0.5], "sd": size * [1.0]}
            for name, size in reference.items()
        },
    }
    (tmp_path / "larger").mkdir()
    (tmp_path / "larger" / f"{PROBLEM}.json").write_text(json.dumps(content), encoding="utf-8")
    return tmp_path


def settings_of(folder: Path, *problems: str, tolerance: float | None = None) -> Settings:
    return Settings(folder, folder / "out", 1, 1000, tolerance, problems)


def cases_of(folder: Path, *problems: str, tolerance: float | None = None) -> list[LargerCase]:
    return list(larger_cases.larger_cases(settings_of(folder, *problems, tolerance=tolerance)))


def normal_case(folder: Path, family: str) -> LargerCase:
    """A posterior that is normal."""

    def log_density(z: jax.Array) -> jax.Array:
        return -0.5 * (z - MEAN) @ PRECISION @ (z - MEAN)

    unknown = np.full(3, np.nan)
    posterior = Posterior("normal", 3, log_density, lambda z: z, ["a", "b", "c"], unknown, unknown)
    return LargerCase(posterior, family, 0.01, Kept(folder))


def test_each_problem_has_its_families(folder: Path) -> None:
    cases = cases_of(folder, PROBLEM, "made_spline", "made_state_space")
    assert [(case.problem, case.family) for case in cases] == [
        *((PROBLEM, family) for family in FAMILIES),
        *(("made_spline", family) for family in FAMILIES),
        *(("made_state_space", family) for family in FAMILIES if family != "full-rank"),
    ]
    assert all(isinstance(case.start, FAMILIES[case.family]) for case in cases)
    assert [case.dim for case in cases[::4]] == [DIM, 82, 390]


def test_the_tolerance_is_given_or_grows_with_the_dimension(folder: Path) -> None:
    names = PROBLEM, "made_state_space"
    assert {case.tolerance for case in cases_of(folder, *names)} == {0.01, default_tolerance(390)}
    assert {case.tolerance for case in cases_of(folder, *names, tolerance=0.5)} == {0.5}


def test_made_data_take_part_if_they_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(larger_cases, "LARGER", {PROBLEM: None})
    assert {case.problem for case in cases_of(folder)} == {PROBLEM}
    names = {case.problem for case in cases_of(folder, "made")}
    assert names == set(larger_cases.MADE)


def test_without_a_folder_they_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    assert cases_of(tmp_path) == []
    larger_cases.check(settings_of(tmp_path, "made_spline"))
    with pytest.raises(FileNotFoundError, match="folder of the larger posteriors must exist"):
        larger_cases.check(settings_of(tmp_path, PROBLEM))
    with pytest.raises(ValueError, match=r"must be one of kidiq.*, lsat, .*, made, got mice"):
        larger_cases.check(settings_of(tmp_path, "mice"))


@pytest.mark.usefixtures("x64")
def test_the_best_normal_near_a_fit(tmp_path: Path) -> None:
    near = SparseNormal.from_precision(MEAN + 0.1, 1.2 * PRECISION)
    best = normal_case(tmp_path, "sparse").best_near(near)
    assert isinstance(best, FullRankNormal)
    np.testing.assert_allclose(best.loc, MEAN, atol=1e-6)
    np.testing.assert_allclose(best.covariance, np.linalg.inv(PRECISION), atol=1e-6)
    # Of the full-rank normals it is the best, too, and it is kept.
    far = FullRankNormal(np.full(3, np.inf), np.eye(3))
    assert normal_case(tmp_path, "full-rank").best_near(far) is None
    again = normal_case(tmp_path, "full-rank").best_near(FullRankNormal.standard(3))
    np.testing.assert_array_equal(again.loc, best.loc)
    best = normal_case(tmp_path, "mean-field").best_near(MeanFieldNormal(MEAN, np.zeros(3)))
    assert isinstance(best, MeanFieldNormal)
    np.testing.assert_allclose(best.std**-2, np.diagonal(PRECISION), rtol=1e-6)


def test_where_the_best_is_not_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert normal_case(folder, "low-rank").best_near(LowRankNormal.standard(3)) is None
    large = [case for case in cases_of(folder, "made_state_space") if case.family == "sparse"]
    assert large[0].best_near(SparseNormal.standard(390)) is None

    def endless(*_: object) -> None:
        raise RuntimeError("the search must end")

    monkeypatch.setattr(larger_cases, "optimum", endless)
    assert normal_case(folder, "mean-field").best_near(MeanFieldNormal.standard(3)) is None


@pytest.mark.usefixtures("x64")
def test_fewer_points_in_many_dimensions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def record(log_density: object, start: MeanFieldNormal, num_points: int) -> None:
        asked.append((len(start.loc), num_points))
        raise RuntimeError

    monkeypatch.setattr(larger_cases, "optimum", record)
    for case in cases_of(folder, "made_spline", "made_state_space"):
        if case.family == "mean-field":
            case.best_near(case.start)
    assert asked == [(82, 2**14), (390, 2**12)]


@pytest.mark.usefixtures("x64")
def test_the_independent_elbo_is_the_divergence() -> None:
    """Of N(0, I) from N(μ, diag σ²), with densities that are normalised."""
    family = MeanFieldNormal([0.3, -0.4], np.log([0.5, 1.5]))
    elbo, error = accuracy.independent_elbo(lambda z: jnp.sum(jax.scipy.stats.norm.logpdf(z)), family, seed=0)
    divergence = 0.5 * (0.25 + 2.25 + 0.09 + 0.16 - 2) - np.log(0.75)
    assert abs(elbo + divergence) < 5 * error
    again = accuracy.independent_elbo(lambda z: jnp.sum(jax.scipy.stats.norm.logpdf(z)), family, seed=1)
    assert 0 < abs(again[0] - elbo) < 5 * np.hypot(error, again[1])
    # At the posterior itself all terms are equal.
    best = MeanFieldNormal.standard(2)
    assert accuracy.independent_elbo(best.log_prob, best, seed=0) == (0.0, 0.0)


def test_errors_of_moments_are_in_sds_of_the_reference() -> None:
    names = ["a", "b"]
    posterior = Posterior("p", 2, lambda z: z[0], lambda z: z, names, np.array([1.0, 2]), np.array([2.0, 4]))
    found = accuracy.errors_of_moments(posterior, np.array([3.0, 2.0]), np.array([2.0, 2.0]))
    assert found == pytest.approx((0.5**0.5, 0.125**0.5))


@pytest.mark.slow
def test_posteriors_from_the_command_line(folder: Path) -> None:
    given = ("--posteriordb", folder, "--problem", PROBLEM, "--out", folder / "out", "--seeds", 1)
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["bench", "posteriors", *map(str, given)])
    assert result.exit_code == 0, result.output
    written = json.loads((folder / "out" / "posteriors" / "results.json").read_text(encoding="utf-8"))
    rows = {row["family"]: row for row in written["rows"]}
    assert list(rows) == list(FAMILIES)
    assert rows["low-rank"]["gap"] is None
    for family in ("mean-field", "full-rank", "sparse"):
        assert abs(rows[family]["gap"]) < rows[family]["tolerance"]
    assert rows["full-rank"]["elbo"] == pytest.approx(rows["sparse"]["elbo"], abs=0.1)
    assert all(row["off"] == 0 for row in written["overall"])
    assert all(row["mean_error"] > 0 for row in written["rows"])
