"""Automatic fits of a program without gradients: most is done on what is learnt of its outputs."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from dlrd.families import Certifiable, Family, Patterned, Startable
from dlrd.fitting.automatic.judge.advice import of_budget, of_draws, of_search, of_tail
from dlrd.fitting.automatic.judge.psis import tail_shape
from dlrd.fitting.automatic.keys import derived
from dlrd.fitting.automatic.learning import Answer, FitFn, Rounds, first_audit
from dlrd.fitting.automatic.plan import default_tolerance
from dlrd.fitting.automatic.start.approach import Landing, Runs, approach, dtype_of
from dlrd.fitting.automatic.start.candidates import laplace_evidence
from dlrd.fitting.automatic.start.objective import SpentError
from dlrd.fitting.automatic.state import Search
from dlrd.fitting.history import History
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.progress import Reading, progress_display
from dlrd.fitting.request import Request
from dlrd.fitting.result import Fit
from dlrd.fitting.verdict import FAIR_TAIL, Verdict
from dlrd.models import Emulable, Model


def can_emulate(model: Model, family: Family, request: Request) -> bool:
    """Whether to fit this way: the model asks for it, and a certificate can tell when it is over."""
    is_wanted = isinstance(model, Emulable) and model.is_emulated and request.sampling.gradient is None
    return is_wanted and isinstance(family, Startable) and isinstance(family.as_start(), Certifiable)


def fit_emulated(model: Emulable, family: Any, key: Key[Array, ""], request: Request, fit_fn: FitFn) -> Fit:
    """Fits with values alone, a run each.

    To the mode with linear outputs, from differences. From there on in rounds: an emulator is fitted, which
    takes no runs; runs at draws of the answer tell how far it is from the best for the program itself, and
    all of them are learnt for the next emulator.

    Args:
        model, family, key, request: as for an automatic fit.
        fit_fn: fits an emulator.
    """
    begun, aim, watching = time.perf_counter(), request.aim, request.watching
    assert aim is not None
    if watching.checkpoint is not None:
        raise ValueError(
            "checkpoint must not be given for a simulator without gradients, whose log has all that matters: "
            'dlrd.models.simulator(..., log="runs.jsonl"); or take gradient="differences"'
        )
    tolerance = aim.tolerance or default_tolerance(model.dim)
    runs = Runs(model, dtype_of(family), aim.max_gradients, time.monotonic() + aim.max_seconds)
    own = Rounds(runs, key, request, tolerance, fit_fn, first_audit(aim.max_gradients))
    spent, answers, outcome = {"start": 0, "certificates": 0}, list[Answer](), Outcome.BUDGET
    landings: list[Landing] = []
    with progress_display(watching.progress, aim.max_gradients, "runs", "to the mode", model=model) as show:
        try:
            landings = approach(runs, family, derived(key, 1), aim.starts)
            spent["start"] = runs.num
            start = _started(family, landings[0])
            for answer in own.answers(landings[0].tangent, start):
                answers.append(answer)
                show(Reading(len(answers), runs.num, _text(answer, tolerance)))
                if answer.is_sure:
                    outcome = Outcome.CERTIFIED
                    break
        except SpentError:  # before there was anything
            pass
        except KeyboardInterrupt:
            outcome = Outcome.INTERRUPTED
    spent["start"] = spent["start"] or runs.num
    spent["certificates"] = runs.num - spent["start"]
    best = max(answers, key=lambda each: each.elbo_bound, default=None)
    if outcome is Outcome.CERTIFIED:
        best = answers[-1]
    if outcome is Outcome.BUDGET and answers and answers[-1].is_blind:
        outcome = Outcome.DIVERGED
    found = family if best is None else best.fit.family
    history = _history(answers)
    evidence = [laplace_evidence(each.mode) for each in landings]
    search = Search(tuple(evidence[0] - each for each in evidence[1:]))
    return Fit(
        family=found,
        history=history,
        outcome=outcome,
        num_steps=len(history.step),
        num_draws=own.size,
        seconds=time.perf_counter() - begun,
        names=tuple(model.names),
        model=model,
        verdict=_verdict(model, found, best, outcome, tolerance, spent, search),
    )


def _started(family: Any, landing: Landing) -> Any:
    """Where fits of emulators begin; for a pattern, which a mode does not show, they look by themselves."""
    is_patterned = isinstance(family, Patterned)
    return family if is_patterned else family.at_mode(landing.mode.point, landing.mode.curvature)


def _text(answer: Answer, tolerance: float) -> str:
    seen = answer.certificate
    if seen is None:
        return ""
    return f"ELBO {seen.elbo:,.2f} gap {max(seen.gap, 0):.1g} ± {seen.gap_error:.1g} to {tolerance:g}"


def _verdict(
    model: Emulable,
    family: Family,
    answer: Answer | None,
    outcome: Outcome,
    tolerance: float,
    spent: dict[str, int],
    search: Search,
) -> Verdict:
    """What the runs at draws of the answer have shown."""
    seen = None if answer is None else answer.certificate
    shape, shape_error = (float("nan"), float("nan")) if seen is None else tail_shape(seen.log_ratios)
    numbers: dict[str, Any] = {
        name: float("nan") if seen is None else getattr(seen, name)
        for name in ("gap", "gap_error", "elbo", "elbo_error")
    }
    return Verdict(
        tolerance=tolerance,
        tail_shape=shape,
        tail_shape_error=shape_error,
        is_certain=outcome is Outcome.CERTIFIED,
        gradients=spent,
        spent_on="runs",
        warnings=[
            *([] if seen is None else of_draws(seen)),
            *of_search(search, model),
            *(of_tail(family, model) if shape > FAIR_TAIL else []),
            *(of_budget(sum(spent.values()), seen, tolerance) if outcome is Outcome.BUDGET else []),
        ],
        **numbers,
    )


def _history(answers: Sequence[Answer]) -> History:
    """A row for each audit, in place of the steps, which emulators alone have seen."""
    seen = [(each.certificate, each.num_failed) for each in answers if each.certificate is not None]
    unknown = np.full(len(seen), np.nan)
    return History(
        step=np.arange(1, len(seen) + 1),
        elbo=np.array([certificate.elbo for certificate, _ in seen]),
        elbo_error=np.array([certificate.elbo_error for certificate, _ in seen]),
        learning_rate=unknown,
        snr=unknown,
        failed=np.array([num_failed for _, num_failed in seen], int),
        decays=np.zeros(0, int),
    )
