"""Checkpoints and Ctrl-C in an automatic fit: it goes on as if nothing had been."""

import os
import pathlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.fitting import loop
from dlrd.fitting.automatic import run
from dlrd.fitting.automatic.start import candidates, structure
from dlrd.fitting.automatic.steps import refine, stepping

AssertSame = Callable[[dlrd.Fit, dlrd.Fit], None]
KilledAndWhole = Callable[[pathlib.Path], tuple[dlrd.Fit, dlrd.Fit]]

RUN = pathlib.Path(__file__).with_name("checkpointed_automatic_run.py")


def log_gammas(z: jax.Array) -> jax.Array:
    """Skewed, and correlated by what is quadratic."""
    return jnp.sum(z - jnp.exp(z)) - 0.5 * jnp.sum(z) ** 2


def fit(folder: pathlib.Path | None, **changed: Any) -> dlrd.Fit:
    arguments: dict[str, Any] = {
        "log_density": log_gammas,
        "family": dlrd.MeanFieldNormal.standard(3),
        "key": 0,
        "tolerance": 2e-4,
        "checkpoint": folder,
        "progress": False,
    }
    return dlrd.fit(**(arguments | changed))


@pytest.fixture(scope="module")
def whole() -> dlrd.Fit:
    found = fit(None)
    assert found.outcome is dlrd.Outcome.CERTIFIED
    assert found.verdict is not None
    assert found.verdict.gradients["curvature"] > 0
    return found


@pytest.fixture
def usual_handler() -> Iterator[None]:
    """What a program in the foreground has; in the background, shells have SIGINT ignored."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def press_at_call(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, number: int) -> list[int]:
    """Ctrl-C at the `number`-th call of a function, before it does anything; gives a list of the calls."""
    original, calls = getattr(module, name), []

    def pressed(*args: Any, **kwargs: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGINT)
        return original(*args, **kwargs)

    monkeypatch.setattr(module, name, pressed)
    return calls


def test_finished_fit_is_returned_at_once(
    whole: dlrd.Fit, tmp_path: pathlib.Path, assert_same_fit: AssertSame
) -> None:
    assert_same_fit(fit(tmp_path), whole)
    assert_same_fit(fit(tmp_path), whole)
    # A larger tolerance has been reached too.
    assert fit(tmp_path, tolerance=1e-2).num_steps == whole.num_steps


def test_smaller_tolerance_goes_on(whole: dlrd.Fit, tmp_path: pathlib.Path) -> None:
    first = fit(tmp_path, tolerance=0.1)
    assert first.outcome is dlrd.Outcome.CERTIFIED
    assert first.num_steps < whole.num_steps
    second = fit(tmp_path)
    assert second.outcome is dlrd.Outcome.CERTIFIED
    assert second.num_steps == whole.num_steps
    assert second.verdict is not None
    assert second.verdict.gap < 2e-4


@pytest.mark.parametrize("number", [1, 3])
def test_interrupted_at_a_certificate_and_resumed(
    whole: dlrd.Fit,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    usual_handler: None,
    assert_same_fit: AssertSame,
    number: int,
) -> None:
    with monkeypatch.context() as patched:
        calls = press_at_call(patched, stepping, "certify", number)
        interrupted = fit(tmp_path)
    assert len(calls) == number
    assert interrupted.outcome is dlrd.Outcome.INTERRUPTED
    assert jnp.isfinite(interrupted.family.mean).all()
    assert "Interrupted" in str(interrupted.summary())
    assert_same_fit(fit(tmp_path), whole)


def test_interrupted_at_the_curvature_and_resumed(
    whole: dlrd.Fit,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    usual_handler: None,
    assert_same_fit: AssertSame,
) -> None:
    with monkeypatch.context() as patched:
        press_at_call(patched, refine, "mean_curvature", 1)
        assert fit(tmp_path).outcome is dlrd.Outcome.INTERRUPTED
    assert_same_fit(fit(tmp_path), whole)


def test_interrupted_while_looking_for_a_start(
    whole: dlrd.Fit,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    usual_handler: None,
    assert_same_fit: AssertSame,
) -> None:
    with monkeypatch.context() as patched:
        press_at_call(patched, candidates, "driven_together", 1)
        interrupted = fit(tmp_path)
    assert interrupted.outcome is dlrd.Outcome.INTERRUPTED
    assert interrupted.num_steps == 0
    np.testing.assert_array_equal(interrupted.family.mean, 0)
    assert "Interrupted" in str(interrupted.summary())
    assert_same_fit(fit(tmp_path), whole)


@pytest.mark.parametrize("after", [1, 100])
def test_interrupted_in_the_steps_and_resumed(
    whole: dlrd.Fit,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    usual_handler: None,
    assert_same_fit: AssertSame,
    after: int,
) -> None:
    """Of the first 32, which try out a start, or later; the next call goes on with chunks as usual."""
    with monkeypatch.context() as patched:
        patched.setattr(loop, "CHUNK_SECONDS", 1e-9)  # one step each
        press_at_call(patched, loop, "Rows", after)
        interrupted = fit(tmp_path)
    assert interrupted.outcome is dlrd.Outcome.INTERRUPTED
    assert interrupted.num_steps <= after
    assert_same_fit(fit(tmp_path), whole)


@pytest.mark.parametrize("number", [2, 3])
def test_what_was_learnt_is_kept(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    usual_handler: None,
    assert_same_fit: AssertSame,
    number: int,
) -> None:
    """Fourth derivatives that certificates have shown; interrupted at one, or while it is prolonged."""
    arguments = {
        "log_density": lambda z: -0.5 * jnp.sum(z**2) - jnp.sum(z**4) + z[0] * z[1],
        "family": dlrd.FullRankNormal.standard(2),
        "tolerance": 1e-4,
        "max_gradients": 20_000,
    }
    uninterrupted = fit(None, **arguments)
    with monkeypatch.context() as patched:
        press_at_call(patched, stepping, "certify", number)
        assert fit(tmp_path, **arguments).outcome is dlrd.Outcome.INTERRUPTED
    assert_same_fit(fit(tmp_path, **arguments), uninterrupted)


def counts(z: jax.Array) -> jax.Array:
    """Of thirty groups, whose logarithms are around a mean with an unknown spread: a flat way."""
    mean, log_spread, effects = z[0], z[1], z[2:]
    seen = jnp.asarray(np.random.default_rng(0).poisson(np.exp(np.linspace(0, 2, 30))), float)
    prior = -0.5 * jnp.sum((effects - mean) ** 2) * jnp.exp(-2 * log_spread) - 30 * log_spread
    return prior - 0.5 * (mean**2 + log_spread**2) + jnp.sum(seen * effects - jnp.exp(effects))


def test_interrupted_while_looking_for_flat_ways_and_resumed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, usual_handler: None, assert_same_fit: AssertSame
) -> None:
    """And gone on with after it had ended, corrected along such ways: nothing is left of these."""
    arguments = {"log_density": counts, "family": dlrd.MeanFieldNormal.standard(32), "key": 2}
    loose, strict = {"tolerance": 0.03}, {"tolerance": 1e-3}
    uninterrupted = fit(None, **arguments, **loose)
    assert uninterrupted.outcome is dlrd.Outcome.CERTIFIED
    with monkeypatch.context() as patched:
        calls = press_at_call(patched, stepping, "flat_ways", 1)
        assert fit(tmp_path, **arguments, **loose).outcome is dlrd.Outcome.INTERRUPTED
    assert len(calls) == 1
    assert_same_fit(fit(tmp_path, **arguments, **loose), uninterrupted)
    assert fit(tmp_path, **arguments, **strict).outcome is dlrd.Outcome.CERTIFIED


@pytest.mark.slow
def test_interrupted_comparison_and_resumed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, usual_handler: None, assert_same_fit: AssertSame
) -> None:
    """Of a family without a certificate."""
    arguments = {"family": dlrd.LowRankNormal.standard(3, 1), "tolerance": 1e-2, "max_gradients": 20_000}
    uninterrupted = fit(None, **arguments)
    with monkeypatch.context() as patched:
        press_at_call(patched, run, "improvement", 1)
        assert fit(tmp_path, **arguments).outcome is dlrd.Outcome.INTERRUPTED
    assert_same_fit(fit(tmp_path, **arguments), uninterrupted)


def test_checkpoint_of_another_fit_is_refused(tmp_path: pathlib.Path) -> None:
    fit(tmp_path, max_gradients=600)
    with pytest.raises(ValueError, match="belongs to another fit"):
        fit(tmp_path, key=1)
    with pytest.raises(ValueError, match="belongs to another fit"):
        fit(tmp_path, num_draws=4)
    with pytest.raises(ValueError, match="belongs to another fit"):
        fit(tmp_path, log_density=lambda z: log_gammas(z) - jnp.sum(z**2))


@pytest.mark.slow
def test_killed_at_random_moments(killed_and_whole: KilledAndWhole, assert_same_fit: AssertSame) -> None:
    """A real process, killed with SIGKILL again and again, ends like one that was left alone."""
    assert_same_fit(*killed_and_whole(RUN))


def hierarchy(z: jax.Array) -> jax.Array:
    """Twenty effects around a mean, with an unknown spread."""
    mean, log_spread, effects = z[0], z[1], z[2:]
    prior = -0.5 * jnp.sum((effects - mean) ** 2) * jnp.exp(-2 * log_spread) - 20 * log_spread
    seen = jnp.linspace(-2, 3, 20)
    return prior - 0.5 * jnp.exp(2 * log_spread) + log_spread - 0.5 * jnp.sum((seen - effects) ** 2)


@pytest.mark.parametrize("family", [dlrd.SparseNormal, dlrd.FullRankNormal])
def test_pattern_of_the_model_is_kept(
    family: Any,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    usual_handler: None,
    assert_same_fit: AssertSame,
) -> None:
    """Of a fit that takes Hessians: the next call goes on without looking for the pattern again."""
    settings = {
        "log_density": hierarchy,
        "family": family.standard(22),
        "tolerance": 1e-3,
        "max_gradients": 20_000,
    }
    undisturbed = fit(None, **settings)
    with monkeypatch.context() as patched:
        press_at_call(patched, run, "take_certificate", 2)
        assert fit(tmp_path, **settings).outcome is dlrd.Outcome.INTERRUPTED
    with monkeypatch.context() as patched:
        looked = press_at_call(patched, structure, "find_pattern", 0)
        assert_same_fit(fit(tmp_path, **settings), undisturbed)
        assert not looked


NUM_TIED = 220


def tied(z: jax.Array) -> jax.Array:
    """Skewed, and each coordinate with all others: no pattern, and more than `MAX_WHOLE` of them."""
    return jnp.sum(z - jnp.exp(z)) - 0.5 * jnp.sum(z) ** 2 / NUM_TIED


@pytest.mark.parametrize(
    "family", [dlrd.MeanFieldNormal, pytest.param(dlrd.LowRankNormal, marks=pytest.mark.slow)]
)
def test_curvature_of_a_foothold_is_kept(
    family: Any,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    usual_handler: None,
    assert_same_fit: AssertSame,
) -> None:
    """The whole matrix, which a family as it is given has not in so many dimensions."""
    settings = {
        "log_density": tied,
        "family": family.standard(NUM_TIED),
        "tolerance": 1e-3,
        "max_gradients": 20_000,
    }
    undisturbed = fit(None, **settings)
    with monkeypatch.context() as patched:
        press_at_call(patched, run, "take_certificate", 1)
        interrupted = fit(tmp_path, **settings)
    assert interrupted.outcome is dlrd.Outcome.INTERRUPTED
    assert interrupted.num_steps > 0
    assert_same_fit(fit(tmp_path, **settings), undisturbed)
