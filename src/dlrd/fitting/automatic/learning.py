"""Rounds of learning: an emulator is fitted, and runs at draws of the answer tell what it misses."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.families import Family
from dlrd.fitting.automatic.judge.certificate import Certificate, certify, of_looks
from dlrd.fitting.automatic.judge.look import NUM_BLOCKS, Look, look
from dlrd.fitting.automatic.judge.stopping import CERTAIN
from dlrd.fitting.automatic.keys import derived
from dlrd.fitting.automatic.plan import Plan
from dlrd.fitting.automatic.start.approach import Runs
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.request import Aim, Request, Watching
from dlrd.fitting.result import Fit
from dlrd.models import Audit, Model
from dlrd.models.emulator import AuditedEmulator, Emulator
from dlrd.models.polynomial import Polynomial, regression

MIN_DRAWS, MAX_DRAWS, FIRST_SHARE = 32, 64, 0.125
"""Of a first audit: within these a power of two, about that share of the budget."""
GROWTH = 0.5
"""Of the runs that an emulator knows: so many are for the audit of what it led to."""
NUM_EMULATED = 8192
"""Draws of the emulator for each audit, at which runs tell nothing but what the emulator misses."""
MAX_BLIND = 3
"""Audits in a row all of whose runs failed, and a fit has diverged."""
INNER_SHARE = 0.1
"""Of the tolerance, within which emulators are fitted: that costs no runs."""

FitFn = Callable[[Model, Family, Key[Array, ""], Request, Plan], tuple[Fit, Family]]
"""An automatic fit, and its family in the form that it has worked with."""


class Answer(NamedTuple):
    """A fit of an emulator, with what runs at draws of it have shown, if there were any."""

    fit: Fit
    certificate: Certificate | None = None
    is_sure: bool = False  # whether it has twice shown a gap within the tolerance
    num_failed: int = 0  # of these runs

    @property
    def is_blind(self) -> bool:
        """Whether all of them failed."""
        return self.certificate is not None and self.num_failed == self.certificate.num_draws

    @property
    def elbo_bound(self) -> float:
        return float("-inf") if self.certificate is None else self.certificate.elbo_bound


class Rounds(NamedTuple):
    """Of fits of emulators."""

    runs: Runs
    key: Key[Array, ""]  # of all draws
    request: Request
    tolerance: float
    fit_fn: FitFn
    size: int  # of the smallest audit; all others have a multiple of that

    def answers(self, tangent: Polynomial, start: Any) -> Iterator[Answer]:
        """Fits of emulators, each of which knows more runs, until the budget ends.

        Args:
            tangent: the outputs near the mode.
            start: where to begin.
        """
        polynomial, seen, num_blind = tangent, list[Audit](), 0
        for number in itertools.count():
            fit, family = self._fitted(polynomial, start, number)
            answer, audits = self._audited(Answer(fit), polynomial, family, number, len(seen))
            yield answer
            num_blind = num_blind + 1 if answer.is_blind else 0
            if not self.runs.num_left // self.size or num_blind == MAX_BLIND:
                return
            seen += audits
            start, polynomial = family, _learned(self.runs, seen, tangent)

    def _fitted(self, polynomial: Polynomial, start: Any, number: int) -> tuple[Fit, Family]:
        """The fit of an emulator: without runs, but within the time that is left."""
        aim = Aim(INNER_SHARE * self.tolerance, max_seconds=self.runs.seconds_left, starts=1)
        request = self.request._replace(aim=aim, watching=Watching(None, progress=False))
        model, key = Emulator(self.runs.model, polynomial), derived(self.key, 6, number)
        fit, family = self.fit_fn(model, start, key, request, Plan(num_starts=1))
        if fit.outcome is Outcome.INTERRUPTED:
            raise KeyboardInterrupt
        return fit, family

    def _audited(
        self, answer: Answer, polynomial: Polynomial, family: Family, number: int, num_known: int
    ) -> tuple[Answer, list[Audit]]:
        """The answer with a certificate, and all that runs at draws of it have shown.

        Args:
            answer: without a certificate.
            polynomial: of the emulator.
            family: that was fitted, in the form that fits work with.
            number: of the round.
            num_known: audits before.
        """
        audited = AuditedEmulator(self.runs.model, polynomial)
        keys, looks = (derived(self.key, 7, number), derived(self.key, 8, number)), list[Look]()
        emulated = None
        for _ in range(2):  # what some draws promise, as many others must confirm
            affordable = self.runs.num_left // self.size
            wanted = max(int(GROWTH * num_known), 1)
            if not affordable:
                break
            num = wanted if affordable >= 2 * wanted else -(-affordable // 2)
            emulated = emulated or certify(
                Emulator(self.runs.model, polynomial), family, keys[0], NUM_EMULATED, came_from=family
            )
            self.runs.count(num * self.size)
            looks += [
                look(audited, family, keys[1], index, batch=self.size // NUM_BLOCKS)
                for index in range(len(looks), len(looks) + num)
            ]
            seen = _certificate(looks, emulated, family)
            is_within = not seen.is_outside and seen.gap_bound <= CERTAIN * self.tolerance
            is_sure = is_within and answer.certificate is not None
            answer = answer._replace(certificate=seen, is_sure=is_sure, num_failed=_num_failed(looks))
            if not is_within:
                break
        return answer, [each.audit for each in looks if each.audit is not None]


def _certificate(looks: Sequence[Look], emulated: Certificate, family: Family) -> Certificate:
    """What audits have shown.

    The gradient and the ELBO are those of the emulator, with as many draws as that takes, and what it misses,
    by the runs.
    """
    whole = [
        each._replace(gradients=each.gradients + emulated.gradients)
        for each in looks
        if each.gradients is not None and emulated.gradients is not None
    ]
    seen = of_looks(whole or looks, family, family, can_fail=True)
    missed = np.concatenate([each.audit.residuals.ravel() for each in looks if each.audit is not None])
    missed = missed[np.isfinite(missed)]
    if len(missed) < 2:
        return seen
    error = np.hypot(emulated.elbo_error, np.std(missed) / np.sqrt(len(missed) - 1))
    return seen._replace(elbo=emulated.elbo + float(np.mean(missed)), elbo_error=float(error))


def _num_failed(looks: Sequence[Look]) -> int:
    return sum(int(np.isnan(each.audit.residuals).sum()) for each in looks if each.audit is not None)


def first_audit(max_runs: int) -> int:
    """How many draws it has."""
    affordable = min(max(FIRST_SHARE * max_runs, MIN_DRAWS), MAX_DRAWS)
    return 2 ** int(math.log2(affordable))


def _learned(runs: Runs, seen: Sequence[Audit], tangent: Polynomial) -> Polynomial:
    """The polynomial that predicts the log densities of runs best."""
    shape, num = runs.model.output_shape, runs.model.num_emulated
    points = np.concatenate([np.reshape(each.draws, (-1, runs.model.dim)) for each in seen])
    outputs = np.concatenate([np.reshape(each.outputs, (-1, math.prod(shape))) for each in seen])
    is_good = np.isfinite(outputs).all(axis=1)
    if not is_good.any():
        return tangent
    points, outputs = points[is_good], outputs[is_good]
    truth = runs.log_densities(outputs.reshape(-1, *shape), points)

    def misses(predicted: Float[np.ndarray, "run output"]) -> float:
        """The variance of what is missed."""
        return float(np.var(truth - runs.log_densities(predicted.reshape(-1, *shape), points)))

    return regression(points[:, :num], outputs, tangent, misses)
