"""`dlrd.fit` without an optimiser: the course of an automatic fit from the call to its result."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Array, Key

from dlrd.families import Family
from dlrd.fitting import inputs
from dlrd.fitting.automatic.advice import warnings
from dlrd.fitting.automatic.begin import begin
from dlrd.fitting.automatic.course import Course, fresh_state
from dlrd.fitting.automatic.journal import Journal
from dlrd.fitting.automatic.plan import Plan, first_rate, method_for
from dlrd.fitting.automatic.tail_shape import tail_shape
from dlrd.fitting.automatic.turns import go_on
from dlrd.fitting.history import Recorder
from dlrd.fitting.loop import Rows
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.result import Fit
from dlrd.fitting.step import State
from dlrd.fitting.verdict import Verdict
from dlrd.gradients import Estimator, LogDensity
from dlrd.gradients.curvature import Curved

MAX_GRADIENTS = 100_000


def fit_automatically(
    log_density: LogDensity,
    family: Family,
    key: Key[Array, ""],
    *,
    gradient: Estimator | None,
    tolerance: float,
    max_gradients: int,
    checkpoint: Path | None,
    progress: bool | Callable[[int], None],
    plan: Plan,
) -> Fit:
    """Fits with nothing to tune; the arguments are those of `dlrd.fit`, checked."""
    started = time.perf_counter()
    method = method_for(log_density, family, gradient, plan)
    initial = fresh_state(method, family, key, first_rate(method))
    course, outcome, reached = None, Outcome.RUNNING, np.inf
    journal = None if checkpoint is None else Journal(checkpoint, method, family, initial)
    if journal is not None:
        course, outcome, reached = journal.restore() or (course, outcome, reached)
    with contextlib.ExitStack() as stack:
        show = stack.enter_context(_display(progress, max_gradients, tolerance))

        def observe(state: State, rows: Rows) -> None:
            assert course is not None
            show(course)
            if journal is not None:
                journal.write_now_and_then(course, tolerance)

        def after_look(course: Course) -> None:
            show(course)
            if journal is not None:
                journal.write(course, Outcome.RUNNING, tolerance)

        is_sure = outcome in (Outcome.CERTIFIED, Outcome.AGREED) and reached <= tolerance
        try:
            if course is None:
                course = begin(method, family, key, max_gradients, plan)
                if course.state.step[0] == 0 and course.state.outcome[0] == Outcome.DIVERGED.value:
                    inputs.raise_bad_start(log_density, family, key, method.num_draws)
            if not is_sure and outcome is not Outcome.DIVERGED:
                outcome = go_on(
                    method,
                    course,
                    key,
                    tolerance=tolerance,
                    max_gradients=max_gradients,
                    plan=plan,
                    observers=[observe],
                    after_look=after_look,
                )
        except KeyboardInterrupt:
            # While it was not in the loop of steps, which notes the first one by itself.
            outcome = Outcome.INTERRUPTED
        if course is not None:
            show(course)
    if course is None:  # interrupted before there was a start; the next call looks for one again
        course = Course(family, initial, Recorder(every=1), {"start": 0})
    elif journal is not None:
        journal.write(course, outcome, tolerance)
    return _result(course, outcome, tolerance, method.num_draws, time.perf_counter() - started)


def _result(course: Course, outcome: Outcome, tolerance: float, num_draws: int, seconds: float) -> Fit:
    seen, family, unknown = (course.looks or [None])[-1], course.found, float("nan")
    if outcome is Outcome.DIVERGED and course.best[1] is not None:
        family = course.with_arrays(course.best[1])
        seen = max(course.looks, key=lambda look: look.elbo_bound if not look.is_outside else -np.inf)
    shape = unknown if seen is None else tail_shape(seen.log_ratios)
    return Fit(
        family=family.family if isinstance(family, Curved) else family,
        history=course.recorder.history(),
        outcome=outcome,
        num_steps=int(course.state.step[0]),
        num_draws=num_draws,
        seconds=seconds,
        verdict=Verdict(
            tolerance=tolerance,
            gap=unknown if seen is None else seen.gap,
            gap_error=unknown if seen is None else seen.gap_error,
            elbo=unknown if seen is None else seen.elbo,
            elbo_error=unknown if seen is None else seen.elbo_error,
            tail_shape=shape,
            gradients=course.gradients,
            warnings=warnings(course, outcome, shape),
        ),
    )


@contextlib.contextmanager
def _display(
    progress: bool | Callable[[int], None], max_gradients: int, tolerance: float
) -> Iterator[Callable[[Course], None]]:
    """A function that shows where a course stands: on a bar, to a function, or not at all."""
    if callable(progress):
        yield lambda course: progress(int(course.state.step[0]))
        return
    if not progress:
        yield lambda course: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    columns = [
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} gradients"),
        BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=6)),
        TimeElapsedColumn(),
        TextColumn("[cyan]{task.fields[reading]}"),
    ]
    with Progress(*columns, expand=True, refresh_per_second=4) as bar:
        task = bar.add_task("", total=max_gradients, reading="looking for a start")

        def show(course: Course) -> None:
            # As much as fits beside a bar into the 80 columns of a usual terminal.
            newest = course.recorder.latest()
            reading = f"ELBO {np.mean(newest.elbo):,.2f}" if len(newest.elbo) else ""
            if course.looks and np.isfinite(course.looks[-1].gap):
                seen = course.looks[-1]
                reading += f" gap {max(seen.gap, 0):.1g} ± {seen.gap_error:.1g} to {tolerance:g}"
            bar.update(task, completed=course.num_gradients, reading=reading)

        yield show
