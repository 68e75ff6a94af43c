"""Automatic fits side by side: each is the fit alone, and nothing hangs."""

import os
import pathlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import dlrd
from dlrd.fitting.automatic import many

AssertSame = Callable[[dlrd.Fit, dlrd.Fit], None]


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "num_cores", lambda: 2)


@pytest.fixture
def usual_handler() -> Iterator[None]:
    """What a program in the foreground has; in the background, shells have SIGINT ignored."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def skewed(z: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(z**2) - jnp.sum(jnp.exp(z - 1.0))


def in_numpyro(y: np.ndarray) -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 3.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    numpyro.sample("y", dist.Normal(mean, sigma), obs=y)


@pytest.mark.parametrize("kind", ["function", "numpyro"])
def test_each_is_the_fit_alone(kind: str, assert_same_fit: AssertSame) -> None:
    y = np.array([0.3, 1.2, 2.2])
    model: Any = skewed if kind == "function" else dlrd.models.numpyro(in_numpyro, y)
    family = dlrd.FullRankNormal.standard(2)
    fits = dlrd.fit_many(model, family, keys=range(4), progress=False)
    for key, fit in enumerate(fits):
        alone = dlrd.fit(model, family, key=key, progress=False)
        assert_same_fit(fit, alone)
        assert fit.verdict is not None
        assert alone.verdict is not None
        assert (fit.outcome, fit.verdict.gap) == (alone.outcome, alone.verdict.gap)
    assert len({fit.elbo for fit in fits}) == 4


def test_ctrl_c_ends_all_and_the_same_call_goes_on(
    tmp_path: pathlib.Path, usual_handler: None, assert_same_fit: AssertSame
) -> None:
    pressed: list[int] = []

    def press(num_steps: int) -> None:
        if num_steps > 0 and not pressed:
            pressed.append(num_steps)
            os.kill(os.getpid(), signal.SIGINT)

    def fits(name: str, progress: Any) -> list[dlrd.Fit]:
        family = dlrd.FullRankNormal.standard(3)
        return dlrd.fit_many(
            skewed, family, keys=range(4), tolerance=1e-4, checkpoint=tmp_path / name, progress=progress
        )

    interrupted = fits("one", press)
    assert pressed
    assert len(interrupted) < 4
    assert dlrd.Outcome.INTERRUPTED in {fit.outcome for fit in interrupted}
    for resumed, whole in zip(fits("one", False), fits("other", False), strict=True):
        assert_same_fit(resumed, whole)
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["0", "1", "2", "3"]


def test_progress_shows_one_bar_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    dlrd.fit_many(skewed, dlrd.FullRankNormal.standard(2), keys=range(3))
    assert "3/3 fits" in capsys.readouterr().out
    told: list[int] = []
    fits = dlrd.fit_many(skewed, dlrd.FullRankNormal.standard(2), keys=range(3), progress=told.append)
    assert told == sorted(told)
    assert told[-1] == sum(fit.num_steps for fit in fits)


def test_an_error_of_one_is_raised() -> None:
    def fail(num_steps: int) -> None:
        raise ZeroDivisionError("of the caller")

    with pytest.raises(ZeroDivisionError, match="of the caller"):
        dlrd.fit_many(skewed, dlrd.FullRankNormal.standard(2), keys=range(3), progress=fail)


def test_models_on_the_host_are_fitted_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "in_turns", None)
    model = dlrd.models.host(lambda z: (-0.5 * np.sum(z**2, axis=1), -z), 2)
    fits = dlrd.fit_many(model, keys=range(2), progress=False)
    assert [fit.outcome.name for fit in fits] == ["CERTIFIED", "CERTIFIED"]
    with jax.default_matmul_precision("float32"):  # threads would not have it
        dlrd.fit_many(skewed, dlrd.MeanFieldNormal.standard(2), keys=range(2), progress=False)
