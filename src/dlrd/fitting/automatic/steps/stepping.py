"""Steps, one chunk after the other, and certificates behind them."""

from collections.abc import Callable
from dataclasses import replace

import jax
from jaxtyping import Array, Key

from dlrd.fitting.automatic.judge.certificate import certify
from dlrd.fitting.automatic.plan import Task
from dlrd.fitting.automatic.state import AutomaticState, Measured
from dlrd.fitting.loop import Rows, run
from dlrd.fitting.step import State

Report = Callable[[AutomaticState], None]
"""Is told of each new state, so that none is lost when the fit is interrupted."""


def take_steps(task: Task, state: AutomaticState, num_steps: int, report: Report) -> AutomaticState:
    """Goes on until `num_steps` steps are done in all."""

    def observe(steps: State, rows: Rows) -> None:
        nonlocal state
        num_gradients = int(rows.num_done[0]) * task.method.num_draws
        recorder = state.recorder.extended(rows.of_run(0))
        state = replace(state, steps=steps, recorder=recorder).spent("steps", num_gradients)
        report(state)

    steps = run(task.method, state.rest, state.steps, num_steps, [observe])
    return replace(state, steps=steps)


def take_certificate(task: Task, state: AutomaticState, num_draws: int) -> AutomaticState:
    """Measures the family where it stands."""
    family = state.family
    seen = certify(task.method.model, family, certificate_key(task, state), num_draws, state.origin)
    measured = Measured(family, seen, state.origin, state.step)
    return _kept(replace(state, origin=family), measured, seen.num_draws)


def lengthen_certificate(task: Task, state: AutomaticState, num_draws: int) -> AutomaticState:
    """Goes on with the latest certificate, up to `num_draws` draws in all."""
    assert state.latest is not None
    family, shorter, came_from, _ = state.latest
    key = certificate_key(task, state)
    seen = certify(task.method.model, family, key, num_draws, came_from, shorter)
    return _kept(state, state.latest._replace(certificate=seen), seen.num_draws - shorter.num_draws)


def certificate_key(task: Task, state: AutomaticState, use: int = 0) -> Key[Array, ""]:
    """A key for each use of randomness after each step, apart from those of the steps."""
    apart = jax.random.fold_in(task.key, 2**31)
    return jax.random.fold_in(jax.random.fold_in(apart, state.step), use)


def _kept(state: AutomaticState, measured: Measured, num_draws: int) -> AutomaticState:
    state = replace(state.spent("certificates", num_draws), latest=measured)
    seen = measured.certificate
    if seen.is_outside or (state.best is not None and seen.elbo_bound <= state.best.certificate.elbo_bound):
        return state
    return replace(state, best=measured)
