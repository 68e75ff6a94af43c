"""What follows from a certificate: stop, go on, or do something first. A pure function of what was seen."""

import enum
from typing import NamedTuple

import numpy as np

from dlrd.fitting.automatic.judge.certificate import CONFIDENCE, MIN_DRAWS, Certificate
from dlrd.fitting.automatic.judge.look import BATCH
from dlrd.fitting.automatic.plan import FIRST_GRADIENTS, MIN_TOLERANCE, Plan
from dlrd.fitting.outcome import Outcome

MAX_CERTIFICATE_SHARE = 0.5
"""Draws of a certificate that is to make sure, as a share of the steps' gradients so far."""
CERTAIN = 0.5
"""The bound on the gap must be below this share of the tolerance: ½ ‖g‖² may be too low, seen by half."""
PROMISING = 0.5
"""A gap or gain below this share of what would be certain is worth more draws."""
MIN_OUTSIDE = 4 * FIRST_GRADIENTS
"""Gradients of the steps before draws without a density end a fit: at first it may still leave them."""
MIN_SETTLED = 4 * FIRST_GRADIENTS
"""Away from modes: gradients of the steps before a wider tolerance than the usual one is believed reached."""
CAUTION = 0.5
"""Share of the tolerance that a fit must reach which did not begin at a mode."""
MAX_CORRECTED = 1.0
"""In tolerances: a gap beyond which no correction is tried, for the gradient does not tell the way so far."""
FALL_ERRORS = 5.0
"""Standard errors by which an ELBO must be below the best one to count as fallen."""
NUM_AGREED = 2
"""Comparisons in a row without an improvement that end a fit without a certificate."""
CURVATURE_SHARE, MIN_CURVATURES, MAX_CURVATURES = 0.5, 4, 32
"""Gradients for Hessians after each certificate, as a share of the steps' so far, and how many Hessians."""


class Action(enum.Enum):
    """What a fit can do about a certificate."""

    STOP = "stop"
    GO_ON = "go on"
    LOOK_LONGER = "look longer"
    COMPARE = "compare with the family before"
    CORRECT = "move by the certificate's own gradient"
    PROBE = "look for ways along which the ELBO is flat"
    STRIDE = "stride"
    ROLL_BACK = "roll back"
    REFINE = "new curvature"


class Decision(NamedTuple):
    """What to do, and with what."""

    action: Action
    outcome: Outcome = Outcome.RUNNING  # of a stop
    num: int = 0  # draws of a longer certificate, in all, or of a comparison; points of a new curvature


class Evidence(NamedTuple):
    """All that a decision depends on."""

    certificate: Certificate
    tolerance: float
    step_gradients: int  # spent on steps
    num_left: int  # gradients, of the budget
    best_bound: float = -np.inf  # the highest that an ELBO was measured to be above
    is_first: bool = False  # whether only the start came before
    is_at_mode: bool = True  # whether the fit began at one, or was not to look for any
    num_agreed: int = 0  # comparisons in a row that saw no improvement
    can_roll_back: bool = True
    refining_cost: int | None = (
        None  # gradients of a Hessian, if the family carries one to be brought up to date
    )
    confirming_cost: int = 0  # gradients that it takes to confirm a correction
    probing_cost: int | None = None  # gradients of a search for flat ways; None if it cannot be done
    done: frozenset[Action] = frozenset()  # since the certificate

    @property
    def can_probe(self) -> bool:
        """Whether there may be ways along which the ELBO is flat that can still be looked for."""
        is_affordable = self.probing_cost is not None and self.probing_cost <= self.num_left
        is_open = self.certificate.flat_ways is None and Action.PROBE not in self.done
        has_gradient = self.certificate.gradients is not None
        return is_affordable and is_open and has_gradient and not self.is_at_mode

    @property
    def certain_tolerance(self) -> float:
        """The tolerance, but a strict one away from modes, unless flat ways there are or will be known.

        There, means and scales depend on each other, and gaps were seen to be up to seven times what the
        gradient told; and a few steps show little of a long flat way.
        """
        if self.is_at_mode or self.can_probe or self.certificate.flat_ways is not None:
            return self.tolerance
        is_early = self.step_gradients < MIN_SETTLED
        return CAUTION * (min(self.tolerance, MIN_TOLERANCE) if is_early else self.tolerance)


def decide(evidence: Evidence, plan: Plan) -> Decision:
    """The next action; again after each, with what that has changed, until the fit stops or goes on."""
    seen, done = evidence.certificate, evidence.done
    if _is_worth_more_draws(evidence):
        return Decision(Action.LOOK_LONGER, num=2 * seen.num_draws)
    if seen.is_outside and evidence.step_gradients >= MIN_OUTSIDE:
        return Decision(Action.STOP, Outcome.DIVERGED)
    if _has_fallen(evidence):
        return (
            Decision(Action.ROLL_BACK) if evidence.can_roll_back else Decision(Action.STOP, Outcome.DIVERGED)
        )
    if np.isnan(seen.gap):
        return _without_gap(evidence)
    if is_certain(seen, evidence.certain_tolerance) and not seen.share_bad:
        return Decision(Action.PROBE) if evidence.can_probe else Decision(Action.STOP, Outcome.CERTIFIED)
    can_correct = not seen.share_bad and evidence.confirming_cost <= evidence.num_left
    if can_correct and Action.CORRECT not in done and _is_certain_if_corrected(evidence):
        return Decision(Action.PROBE if evidence.can_probe else Action.CORRECT)
    if is_far(seen, evidence.certain_tolerance) and plan.has_strides and Action.STRIDE not in done:
        return Decision(Action.PROBE if evidence.can_probe else Action.STRIDE)
    num_points = _num_curvatures(evidence) if plan.is_updating else 0
    if num_points >= MIN_CURVATURES and Action.REFINE not in done:
        return Decision(Action.REFINE, num=num_points)
    return Decision(Action.GO_ON)


def is_certain(seen: Certificate, tolerance: float) -> bool:
    """Whether the gap, what another move would gain and what is left on flat ways are surely small enough."""
    return seen.gap_bound <= CERTAIN * tolerance and max(seen.gain_bound, seen.flat_bound) <= tolerance


def is_far(seen: Certificate, tolerance: float) -> bool:
    """Whether another move would surely gain too much, or a step along flat ways."""
    surely_gained = seen.gain - CONFIDENCE * seen.gain_error
    return surely_gained > tolerance or is_far_along_flat_ways(seen, tolerance)


def is_far_along_flat_ways(seen: Certificate, tolerance: float) -> bool:
    """Whether a step along them would gain too much, and more than noise would lose."""
    return seen.flat_gap > max(CERTAIN * tolerance, seen.flat_noise)


def is_confirmed(corrected: Certificate, evidence: Evidence) -> bool:
    """Whether the ELBO of a corrected family does not contradict what makes it certain."""
    return corrected.gap_bound <= evidence.certain_tolerance and not corrected.share_bad


def _is_certain_if_corrected(evidence: Evidence) -> bool:
    """Whether the corrected family should be."""
    seen, tolerance = evidence.certificate, evidence.certain_tolerance
    there = seen._replace(
        gap=seen.corrected_gap, gap_error=seen.corrected_error, flat_bound=CONFIDENCE**2 * seen.flat_noise
    )
    return seen.gap <= MAX_CORRECTED * tolerance and is_certain(there, tolerance)


def _without_gap(evidence: Evidence) -> Decision:
    """Where the gap cannot be told, twice as many steps that twice do not raise the ELBO are enough."""
    seen = evidence.certificate
    if Action.COMPARE in evidence.done:
        has_agreed = evidence.num_agreed >= NUM_AGREED and not seen.share_bad
        return Decision(Action.STOP, Outcome.AGREED) if has_agreed else Decision(Action.GO_ON)
    # The same noise for both makes a quarter of the certificate's draws enough.
    wanted = max(seen.num_draws // 4, MIN_DRAWS // 2)
    num_draws = min(wanted, evidence.num_left // 2) // BATCH * BATCH
    if evidence.is_first or num_draws <= 0:
        return Decision(Action.GO_ON)
    return Decision(Action.COMPARE, num=num_draws)


def _is_worth_more_draws(evidence: Evidence) -> bool:
    """Whether noise alone keeps the certificate from being sure."""
    seen, tolerance = evidence.certificate, evidence.certain_tolerance
    max_draws = max(4 * MIN_DRAWS, MAX_CERTIFICATE_SHARE * evidence.step_gradients)
    # What a correction with twice the draws is expected to leave.
    half = {name: 0.5 * getattr(seen, name) for name in ("noise", "corrected_error", "flat_noise")}
    longer = seen._replace(**half)
    return (
        (
            seen.gap <= PROMISING * CERTAIN * tolerance
            or (seen.gap <= MAX_CORRECTED * tolerance and longer.corrected_bound <= CERTAIN * tolerance)
        )
        and seen.gain <= PROMISING * tolerance
        and not is_certain(seen, tolerance)
        and not _is_certain_if_corrected(evidence)
        and seen.num_draws < max_draws
        and seen.num_draws <= evidence.num_left
    )


def _has_fallen(evidence: Evidence) -> bool:
    """Whether the ELBO is far below the best that was seen."""
    seen = evidence.certificate
    num_parameters = len(seen.gradients[0]) if seen.gradients is not None else 0
    far = max(FALL_ERRORS * seen.elbo_error, 1.0 + num_parameters**0.5)
    return seen.elbo < evidence.best_bound - far


def _num_curvatures(evidence: Evidence) -> int:
    """Points at which the curvature can be afforded."""
    if evidence.refining_cost is None:
        return 0
    affordable = min(CURVATURE_SHARE * evidence.step_gradients, evidence.num_left)
    return min(MAX_CURVATURES, int(affordable / evidence.refining_cost))
