"""Fits of a program without gradients, on what is learnt of its outputs."""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd

sys.path.insert(0, str(Path(__file__).parents[2] / "models"))
from toy_emulable import ToyEmulable

pytestmark = pytest.mark.usefixtures("x64")
MODEL = ToyEmulable()
TOLERANCE = 0.05


def fit(model: Any = MODEL, family: Any = None, **changed: Any) -> dlrd.Fit:
    family = family or dlrd.FullRankNormal.standard(3)
    settings: dict[str, Any] = {"tolerance": TOLERANCE, "max_gradients": 300, "starts": 1, "progress": False}
    return dlrd.fit(model, family, **(settings | changed))


def gap(found: dlrd.Fit, exact: dlrd.Fit) -> tuple[float, float]:
    """By how much the ELBO is below that of the best, with the same noise for both, and the error of that."""
    noise = jax.random.normal(jax.random.key(7), (20_000, 3))

    def terms(family: Any) -> np.ndarray:
        draws = family.from_noise(noise)
        return np.asarray(jax.vmap(MODEL.log_density)(draws) - family.log_prob(draws))

    each = terms(exact.family) - terms(found.family)
    return float(each.mean()), float(each.std() / np.sqrt(len(each)))


@pytest.fixture(
    scope="module",
    params=["FullRankNormal", "MeanFieldNormal", pytest.param("SparseNormal", marks=pytest.mark.slow)],
)
def both(request: pytest.FixtureRequest) -> tuple[dlrd.Fit, dlrd.Fit]:
    """By values alone, a run each; and with the gradients of jax."""
    with jax.enable_x64(True):
        family = getattr(dlrd, request.param).standard(3)
        exact = dlrd.fit(lambda z: MODEL.log_density(z), family, tolerance=1e-3, progress=False)
        return fit(family=family), exact


def test_is_certified_and_right(both: tuple[dlrd.Fit, dlrd.Fit]) -> None:
    found, exact = both
    assert found.verdict is not None
    assert found.outcome is dlrd.Outcome.CERTIFIED
    true_gap, error = gap(found, exact)
    assert true_gap < TOLERANCE + 3 * error
    assert abs(found.elbo - exact.elbo + true_gap) < 4 * np.hypot(found.elbo_error, exact.elbo_error)
    assert type(found.family) is type(exact.family)


def test_counts_runs(both: tuple[dlrd.Fit, dlrd.Fit]) -> None:
    found, _ = both
    assert found.verdict is not None
    assert found.verdict.spent_on == "runs"
    assert found.verdict.num_gradients < 300
    assert f"Runs: {found.verdict.num_gradients:,} (start " in found.sentence


def test_the_history_has_a_row_for_each_audit(both: tuple[dlrd.Fit, dlrd.Fit], tmp_path: Path) -> None:
    found, _ = both
    assert len(found.history.elbo) == found.num_steps
    assert found.history.elbo[-1] == found.elbo
    found.plot(tmp_path / "fit.png")
    found.report(tmp_path / "fit.html")
    assert "<dt>Runs</dt>" in (tmp_path / "fit.html").read_text(encoding="utf-8")
    found.save(tmp_path / "fit.dlrd")
    assert dlrd.load(tmp_path / "fit.dlrd").verdict == found.verdict


def test_ends_with_the_budget_and_says_so() -> None:
    found = fit(max_gradients=30, tolerance=1e-5)
    assert found.verdict is not None
    assert found.outcome is dlrd.Outcome.BUDGET
    assert 0 < found.verdict.num_gradients <= 30
    assert "the budget ended before the fit was sure" in found.sentence
    assert ("ELBO is not known" in found.sentence) == np.isnan(found.elbo)


def test_the_same_key_gives_the_same_answer() -> None:
    first, second = fit(key=3), fit(key=3)
    np.testing.assert_array_equal(first.family.mean, second.family.mean)
    assert first.elbo == second.elbo


def test_failed_runs_are_left_out_and_counted() -> None:
    """One in five of them, wherever it is."""
    model = ToyEmulable(fails=lambda z: jnp.sin(1e4 * jnp.sum(z)) > 0.8)
    found = fit(model, max_gradients=1000)
    exact = dlrd.fit(lambda z: MODEL.log_density(z), dlrd.FullRankNormal.standard(3), progress=False)
    assert found.verdict is not None
    assert found.outcome is dlrd.Outcome.CERTIFIED
    assert found.history.failed[-1] > 0
    true_gap, error = gap(found, exact)
    assert true_gap < TOLERANCE + 3 * error


def test_a_fit_whose_runs_all_fail_at_some_time_ends_with_what_was_good() -> None:
    """After about a hundred runs, as when a licence has expired."""
    made = []

    class Expiring(ToyEmulable):
        def outputs_at(self, draw: jax.Array) -> jax.Array:
            def is_over(_: np.ndarray) -> np.ndarray:
                made.append(1)
                return np.asarray(len(made) > 100)

            over = jax.pure_callback(is_over, jax.ShapeDtypeStruct((), bool), draw, vmap_method="sequential")
            return jnp.where(over, jnp.nan, super().outputs_at(draw))

    found = fit(Expiring(), tolerance=1e-7, max_gradients=100_000)
    assert found.outcome is dlrd.Outcome.DIVERGED
    assert len(made) < 1000
    assert np.isfinite(found.elbo)


def test_a_fit_without_time_gives_the_family_as_it_was() -> None:
    start = dlrd.FullRankNormal.standard(3)
    found = fit(family=start, max_seconds=1e-9)
    assert found.outcome is dlrd.Outcome.BUDGET
    assert found.verdict is not None
    assert found.verdict.num_gradients == 0
    np.testing.assert_array_equal(found.family.mean, start.mean)


def test_an_interrupted_fit_gives_what_was_audited() -> None:
    def stop(step: int) -> None:
        if step == 2:
            raise KeyboardInterrupt

    found = fit(tolerance=1e-6, progress=stop)
    assert found.outcome is dlrd.Outcome.INTERRUPTED
    assert len(found.history.elbo) == 2
    assert np.isfinite(found.elbo)


def test_other_modes_are_told() -> None:
    model = ToyEmulable(lambda z: jnp.array([z[0] ** 2 + 0.05 * z[0], z[1]]), (1.0, 0.5), noise=0.1)
    found = fit(model, dlrd.FullRankNormal.standard(2), max_gradients=1000, starts=16)
    assert "1 other mode(s) were found" in found.sentence


def test_a_checkpoint_is_refused_for_the_log_has_it_all() -> None:
    with pytest.raises(ValueError, match="checkpoint must not be given for a simulator without gradients"):
        fit(checkpoint="somewhere")
