"""Steps and certificates in turn: what was measured is what is returned, whatever ends the fit."""

import os
import pathlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families import member_of
from dlrd.fitting import loop
from dlrd.fitting.automatic import run
from dlrd.fitting.automatic.fit import fit_automatically
from dlrd.fitting.automatic.judge.certificate import Certificate
from dlrd.fitting.automatic.plan import Plan, Task
from dlrd.fitting.automatic.state import AutomaticState, Measured
from dlrd.fitting.automatic.steps import stepping, stride
from dlrd.fitting.request import Aim, Request, Sampling, Stepping, Watching

Seen = list[tuple[Any, Certificate]]


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """All families that were measured, each with its certificate."""
    kept: Seen = []

    def spied(original: Callable[..., Certificate]) -> Callable[..., Certificate]:
        def measure(model: Any, family: Any, *args: Any, **options: Any) -> Certificate:
            kept.append((member_of(family), original(model, family, *args, **options)))
            return kept[-1][1]

        return measure

    for name in ("certify", "with_more_values"):
        monkeypatch.setattr(stepping, name, spied(getattr(stepping, name)))
    return kept


def check_measured(fit: dlrd.Fit, seen: Seen) -> None:
    """Asserts that the verdict is that of the family that the fit returns."""
    assert fit.verdict is not None
    same = [
        certificate
        for family, certificate in seen
        if all(map(np.array_equal, jax.tree.leaves(family), jax.tree.leaves(fit.family)))
    ]
    assert any((each.elbo, each.gap) == (fit.verdict.elbo, fit.verdict.gap) for each in same)


def log_gammas(z: jax.Array) -> jax.Array:
    return jnp.sum(z - jnp.exp(z)) - 0.5 * jnp.sum(z) ** 2


def walled(z: jax.Array) -> jax.Array:
    return jnp.where(z[0] > 0, -z[0] - 0.5 * jnp.sum(z[1:] ** 2), -jnp.inf)


def test_interrupted_between_certificates(
    seen: Seen, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the steps behind the second certificate: the parameters have moved on, the result has not."""
    monkeypatch.setattr(loop, "CHUNK_SECONDS", 1e-9)  # one step each
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)

    told: list[int] = []

    def press(num_steps: int) -> None:
        if num_steps == 90 and 90 not in told:
            os.kill(os.getpid(), signal.SIGINT)
        told.append(num_steps)

    try:
        found = dlrd.fit(
            log_gammas, dlrd.MeanFieldNormal.standard(3), tolerance=1e-6, progress=press, checkpoint=tmp_path
        )
    finally:
        signal.signal(signal.SIGINT, previous)
    assert found.outcome is dlrd.Outcome.INTERRUPTED
    assert found.num_steps == 90
    assert len(seen) >= 2
    check_measured(found, seen)


@pytest.mark.parametrize("max_gradients", [1300, 1800, 2300])
def test_stride_at_the_end_of_the_budget(
    seen: Seen, monkeypatch: pytest.MonkeyPatch, max_gradients: int
) -> None:
    """From far away, where strides help; with too little budget to measure where they lead."""
    original, lengths = stride.stride, []

    def spied(*args: Any) -> Any:
        found = original(*args)
        lengths.append(found[0] is not args[2])
        return found

    monkeypatch.setattr(stride, "stride", spied)
    model = dlrd.models.function(log_gammas, 3)
    request = Request(Aim(max_gradients=max_gradients), Stepping(), Sampling(), Watching(progress=False))
    start = dlrd.MeanFieldNormal(jnp.full(3, -30.0), jnp.full(3, -3.0))
    found = fit_automatically(model, start, jax.random.key(0), request, Plan(has_start=False))
    assert any(lengths)  # some did help
    assert found.outcome is dlrd.Outcome.BUDGET
    check_measured(found, seen)


def test_diverged_and_resumed(seen: Seen, tmp_path: pathlib.Path) -> None:
    """The best that is returned may be from before the call."""
    start = dlrd.MeanFieldNormal(jnp.asarray([3.0, 0.0, 0.0]), jnp.full(3, -1.0))
    arguments: dict[str, Any] = {"progress": False, "checkpoint": tmp_path, "starts": 1}
    first = dlrd.fit(walled, start, max_gradients=700, **arguments)
    check_measured(first, seen)
    second = dlrd.fit(walled, start, **arguments)
    assert second.outcome is dlrd.Outcome.DIVERGED
    check_measured(second, seen)
    again = dlrd.fit(walled, start, **arguments)
    assert repr(again.verdict) == repr(second.verdict)  # k̂ is nan where few draws have a density
    check_measured(again, seen)


def wrapped_natural_gradient(*args: Any) -> Any:
    """As a user would write it, to watch or to change something."""
    return dlrd.natural_gradient(*args)


@pytest.mark.parametrize(
    "gradient",
    [
        dlrd.natural_gradient,
        wrapped_natural_gradient,
        dlrd.sticking_the_landing,
        dlrd.reparameterized,
        dlrd.score_function,
    ],
)
def test_any_estimator(gradient: Any, seen: Seen) -> None:
    """The target is in the family; Adam at 1e-2 needs thousands of gradients, natural ones some hundred."""

    def round_normal(z: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum((z - 1.0) ** 2)

    found = dlrd.fit(
        round_normal,
        dlrd.MeanFieldNormal.standard(2),
        gradient=gradient,
        num_draws=16,
        max_gradients=40_000,
        progress=False,
    )
    exact = dlrd.MeanFieldNormal(jnp.ones(2), jnp.zeros(2))
    is_natural = gradient in (dlrd.natural_gradient, wrapped_natural_gradient)
    assert found.verdict is not None
    assert (found.verdict.num_gradients < 2000) == is_natural
    assert found.history.learning_rate[0] == (0.3 if is_natural else 1e-2)
    assert found.outcome is dlrd.Outcome.CERTIFIED
    assert dlrd.kl(found.family, exact) < 0.01
    check_measured(found, seen)


def test_score_function_keeps_what_factors_are_good_for() -> None:
    """The working form of a mean-field normal does not hide that its coordinates are independent."""

    def density(z: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum(z**2)

    family = dlrd.MeanFieldNormal(jnp.ones(20), jnp.zeros(20))
    key = jax.random.key(0)
    plain = dlrd.score_function(density, family, key, 8).gradient
    working = dlrd.score_function(density, family.as_start(), key, 8).gradient.member
    np.testing.assert_array_equal(working.loc, plain.loc)
    np.testing.assert_array_equal(working.log_scale, plain.log_scale)


@pytest.mark.parametrize(
    ("gain", "noise", "draws", "agreed"),
    [
        (0.001, 0.01, [128], 1),  # sure at once
        (0.003, 0.1, [128, 256, 512, 1024], 1),  # sure at 1,024
        (0.004, 1.0, [128, 256, 512, 1024], 0),  # not sure with all that it may take
        (0.02, 0.1, [128], 0),  # it has gained
        (float("nan"), 0.1, [128], 0),
    ],
)
def test_comparisons_grow_where_noise_alone_is_in_the_way(
    task: Callable[..., Task],
    state: Callable[..., AutomaticState],
    certificate: Callable[..., Certificate],
    monkeypatch: pytest.MonkeyPatch,
    gain: float,
    noise: float,
    draws: list[int],
    agreed: int,
) -> None:
    asked = []

    def improvement(model: Any, old: Any, new: Any, key: Any, num_draws: int) -> tuple[float, float]:
        asked.append(num_draws)
        return gain, noise / num_draws**0.5

    monkeypatch.setattr(run, "improvement", improvement)
    made = task()
    family = dlrd.MeanFieldNormal.standard(2)
    before = replace(state(made), latest=Measured(family, certificate(), family, 0)).spent("steps", 16_000)
    after = run._compare(made, before, 128)
    assert asked == draws
    assert after.num_agreed == agreed
    assert after.gradients["certificates"] == 2 * sum(draws)
