"""`dlrd.fit` without an optimiser: an automatic fit from the call to its result."""

import contextlib
import time
from typing import Any, cast

import numpy as np
from jaxtyping import Array, Key

from dlrd.families import Family, member_of, split
from dlrd.fitting import inputs
from dlrd.fitting.automatic.emulation import can_emulate, fit_emulated
from dlrd.fitting.automatic.judge.advice import warnings
from dlrd.fitting.automatic.judge.psis import tail_shape
from dlrd.fitting.automatic.plan import Plan, Task, task_for
from dlrd.fitting.automatic.run import run_until_sure
from dlrd.fitting.automatic.snapshot import restore, snapshot
from dlrd.fitting.automatic.start.first_rounds import begin_rounds
from dlrd.fitting.automatic.start.short_runs import begin
from dlrd.fitting.automatic.state import AutomaticState, fresh_steps
from dlrd.fitting.automatic.steps.stepping import look_at_tail, with_values
from dlrd.fitting.checkpoint import Checkpoint
from dlrd.fitting.history import Recorder
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.progress import Reading, elbo_reading, progress_display
from dlrd.fitting.request import Request
from dlrd.fitting.result import Fit
from dlrd.fitting.verdict import FAIR_TAIL, Verdict
from dlrd.models import Emulable, Model


def fit_automatically(
    model: Model, family: Family, key: Key[Array, ""], request: Request, plan: Plan | None = None
) -> Fit:
    """Fits with nothing to tune.

    Args:
        model, family, key: those of `dlrd.fit`, checked.
        request: one with an aim.
        plan: that of the automatic mode, if not given.
    """
    if can_emulate(model, family, request):
        return fit_emulated(cast("Emulable", model), family, key, request, fit_with_form)
    return fit_with_form(model, family, key, request, plan)[0]


def fit_with_form(
    model: Model, family: Family, key: Key[Array, ""], request: Request, plan: Plan | None
) -> tuple[Fit, Family]:
    """Fits by the model's own gradients or values.

    Args:
        model, family, key, request, plan: as for `fit_automatically`.

    Returns:
        The fit, and its family in the form that it has worked with.
    """
    begun = time.perf_counter()
    aim, (num_draws, gradient), watching = request.aim, request.sampling, request.watching
    assert aim is not None
    plan = plan or Plan(num_starts=aim.starts, num_draws=num_draws)
    task = task_for(model, family, key, gradient, aim, plan)
    state, outcome, reached, checkpoint = None, Outcome.RUNNING, np.inf, None
    if watching.checkpoint is not None:
        initial = fresh_steps(task.method, family, key, task.first_rate)
        checkpoint = Checkpoint(watching.checkpoint, task.method, split(family)[1], initial)
        saved = checkpoint.read()
        if saved is not None:
            state, outcome, reached = restore(saved, task, family)
    first = "looking for a start"
    with progress_display(watching.progress, aim.max_gradients, "gradients", first, model=model) as show:

        def report(new: AutomaticState) -> None:
            nonlocal state
            state = new
            show(_reading(state, task.tolerance))
            if checkpoint is not None:
                checkpoint.write_now_and_then(lambda: snapshot(new, Outcome.RUNNING, task.tolerance))

        is_sure = outcome in (Outcome.CERTIFIED, Outcome.AGREED) and reached <= task.tolerance
        try:
            if state is None:
                state = begin_rounds(task, family) if task.is_annealed else begin(task, family)
                if state.step == 0 and state.outcome is Outcome.DIVERGED:
                    inputs.raise_bad_start(model, family, key, task.method.num_draws)
            if not is_sure and outcome is not Outcome.DIVERGED:
                state, outcome = run_until_sure(task, state, report)
                state = state if outcome is Outcome.INTERRUPTED else look_at_tail(task, state)
        except KeyboardInterrupt:
            # While it was not in the loop of steps, which notes the first one by itself.
            outcome = Outcome.INTERRUPTED
        if state is not None:
            show(_reading(state, task.tolerance))
    if state is None:  # interrupted before there was a start; the next call looks for one again
        initial = fresh_steps(task.method, family, key, task.first_rate)
        state = AutomaticState(initial, split(family)[1], Recorder(every=1), {"start": 0}, family)
    elif checkpoint is not None:
        checkpoint.write(snapshot(state, outcome, task.tolerance))
    return _result(task, state, outcome, time.perf_counter() - begun)


def _result(task: Task, state: AutomaticState, outcome: Outcome, seconds: float) -> tuple[Fit, Family]:
    """What was measured, and nothing else."""
    measured = state.answer(outcome)
    if measured is not None and outcome is not Outcome.INTERRUPTED:
        with contextlib.suppress(KeyboardInterrupt):  # all that matters is there
            measured = with_values(task, measured)
    model = task.method.model
    form = state.origin if measured is None else measured.family
    family = member_of(form)
    seen = None if measured is None else measured.certificate
    # The tail of ratios that have a noise of their own says nothing about the family.
    shape, shape_error = float("nan"), float("nan")
    if seen is not None and model.is_exact:
        shape, shape_error = tail_shape(seen.log_ratios)
    is_far = shape > FAIR_TAIL
    numbers: dict[str, Any] = {
        name: float("nan") if seen is None else getattr(seen, name)
        for name in ("gap", "gap_error", "elbo", "elbo_error")
    }
    fit = Fit(
        family=family,
        history=state.recorder.history(),
        outcome=outcome,
        num_steps=state.step,
        num_draws=task.method.num_draws,
        seconds=seconds,
        names=tuple(model.names),
        model=model,
        verdict=Verdict(
            tolerance=task.tolerance,
            tail_shape=shape,
            tail_shape_error=shape_error,
            is_certain=outcome is Outcome.CERTIFIED,
            gradients=state.gradients,
            warnings=warnings(state, family, seen, outcome, is_far, model, task.tolerance),
            **numbers,
        ),
    )
    return fit, form


def _reading(state: AutomaticState, tolerance: float) -> Reading:
    """As much as fits beside a bar into the 80 columns of a usual terminal."""
    text = elbo_reading([state.recorder])
    seen = None if state.latest is None else state.latest.certificate
    if seen is not None and np.isfinite(seen.gap):
        text += f" gap {max(seen.gap, 0):.1g} ± {seen.gap_error:.1g} to {tolerance:g}"
    return Reading(state.step, state.num_gradients, text)
