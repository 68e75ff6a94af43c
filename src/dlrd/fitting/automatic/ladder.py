"""`dlrd.fit` without a family: richer and richer normals, each from the answer of the one before."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from dlrd.families import (
    FullRankNormal,
    LowRankNormal,
    MeanFieldNormal,
    Patterned,
    SparseNormal,
    Startable,
    member_of,
)
from dlrd.families.curvature import MAX_WHOLE, diagonal_curvature
from dlrd.fitting.automatic.fit import fit_automatically
from dlrd.fitting.automatic.judge.certificate import CONFIDENCE
from dlrd.fitting.automatic.plan import Plan, default_tolerance
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.request import Request
from dlrd.fitting.result import Fit
from dlrd.fitting.verdict import Rung
from dlrd.models import Model

MAX_SMALL = 50
"""Dimensions up to which a full-rank normal is no more work than a mean-field one."""
ROUGH = 10.0
"""Times the tolerance, for the first of several rungs: it is a step to the next."""
MIN_GRADIENTS, MIN_GRADIENTS_PER_DIM = 2_000, 40
"""Left of the budget, for another rung."""


def rungs(dim: int) -> list[Any]:
    """The families of the ladder: normals whose cost stays in proportion to what they can tell."""
    if dim <= MAX_SMALL:
        return [FullRankNormal]
    if dim <= MAX_WHOLE:
        return [MeanFieldNormal, FullRankNormal]
    return [MeanFieldNormal, SparseNormal, LowRankNormal]


def climb(model: Model, key: Key[Array, ""], request: Request) -> Fit:
    """Fits the ladder's families, each from the last one's answer, as long as the ELBO gains.

    Args:
        model, key: those of `dlrd.fit`, checked.
        request: one with an aim.
    """
    begun, aim = time.perf_counter(), request.aim
    assert aim is not None
    tolerance = aim.tolerance or default_tolerance(model.dim)
    kinds = rungs(model.dim)
    fits: list[Fit] = []
    for kind in kinds:
        left = aim.max_gradients - sum(_spent(fit) for fit in fits)
        seconds_left = aim.max_seconds - (time.perf_counter() - begun)
        is_over = left < _least(model.dim) or seconds_left <= 0
        if fits and (is_over or fits[-1].outcome in (Outcome.INTERRUPTED, Outcome.DIVERGED)):
            break
        start, plan = kind.standard(model.dim), None
        if fits:
            start = _from_answer(start, fits[-1])
            plan = Plan(has_modes=False, num_starts=aim.starts, num_draws=request.sampling.num_draws)
        is_step = not fits and len(kinds) > 1 and left >= 2 * _least(model.dim)
        own = aim._replace(
            tolerance=tolerance * (ROUGH if is_step else 1.0),
            max_gradients=left // 2 if is_step else left,
            max_seconds=seconds_left,
        )
        # A stricter tolerance gives the first rung another answer, and the others other starts.
        name = kind.__name__ if not fits else f"{kind.__name__}, tolerance {tolerance:g}"
        own_request = request._replace(aim=own).in_folder(name)
        try:
            fits.append(fit_automatically(model, start, key, own_request, plan))
        except KeyboardInterrupt:
            if not fits:
                raise
            fits[-1] = replace(fits[-1], outcome=Outcome.INTERRUPTED)
        if _is_at_the_top(fits, tolerance):
            break
    return _kept(fits, time.perf_counter() - begun)


def _from_answer(family: Startable, fit: Fit) -> Any:
    """A family of the next kind that is the last answer, but for its correlations."""
    before: Any = fit.family
    mean, std = np.asarray(before.mean, float), np.asarray(before.std, float)
    return member_of(family.at_mode(mean, diagonal_curvature(std)))


def _is_at_the_top(fits: list[Fit], tolerance: float) -> bool:
    """Whether no richer normal could be better, or the last step was not worth it."""
    family = fits[-1].family
    if isinstance(family, Patterned):  # with the model's pattern it holds the best normal of all
        return family.has_pattern
    return len(fits) > 1 and fits[-1].elbo - fits[-2].elbo <= tolerance


def _least(dim: int) -> int:
    """Gradients without which no rung is begun: its start alone takes Hessians at several points."""
    return MIN_GRADIENTS + MIN_GRADIENTS_PER_DIM * min(dim, MAX_WHOLE)


def _spent(fit: Fit) -> int:
    assert fit.verdict is not None
    return fit.verdict.num_gradients


def _is_better(fit: Fit, simpler: Fit) -> bool:
    """Whether the ELBO is higher; or, of a richer family that has arrived, not surely lower.

    It has the stricter tolerance, and few draws may show either as the higher one.
    """
    lead = fit.elbo - np.nan_to_num(simpler.elbo, nan=-np.inf)
    has_arrived = fit.outcome in (Outcome.CERTIFIED, Outcome.AGREED)
    allowed = CONFIDENCE * np.nan_to_num(np.hypot(fit.elbo_error, simpler.elbo_error)) if has_arrived else 0
    return bool(lead > -allowed)


def _kept(fits: list[Fit], seconds: float) -> Fit:
    """The fit with the highest ELBO, which tells of the others, too."""
    verdicts = [fit.verdict for fit in fits if fit.verdict is not None]
    best = 0
    for i in range(1, len(fits)):
        best = i if _is_better(fits[i], fits[best]) else best
    shown = [
        Rung(type(fit.family).__name__, verdict.elbo, verdict.tail_shape, verdict.num_gradients, fit.seconds)
        for fit, verdict in zip(fits, verdicts, strict=True)
    ]
    spent = {
        phase: sum(verdict.gradients.get(phase, 0) for verdict in verdicts)
        for phase in verdicts[best].gradients
    }
    outcome = Outcome.INTERRUPTED if fits[-1].outcome is Outcome.INTERRUPTED else fits[best].outcome
    verdict = replace(verdicts[best], gradients=spent, rungs=shown)
    return replace(fits[best], outcome=outcome, seconds=seconds, verdict=verdict)
