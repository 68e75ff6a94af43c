"""What an automatic fit says about itself."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

GOOD_TAIL, FAIR_TAIL = 0.5, 0.7
"""Values of k̂ up to which importance sampling works well, and works at all."""


class Rung(NamedTuple):
    """What a family gave that was fitted on the way to a richer one, or instead of it."""

    family: str  # its name
    elbo: float
    tail_shape: float  # k̂
    num_gradients: int
    seconds: float


@dataclass(frozen=True)
class Verdict:
    """How sure an automatic fit is; measured at its result, with draws that no step has seen."""

    tolerance: float  # that was asked for, in nats
    gap: float  # ELBO of the best member of the family nearby, less that of the result; nan if not known
    gap_error: float  # its standard error
    elbo: float
    elbo_error: float  # its standard error
    tail_shape: float  # k̂ of the importance ratios
    tail_shape_error: float  # its standard error
    is_certain: bool  # whether the gap is within the tolerance, with confidence
    gradients: dict[str, int]  # spent, by phase
    warnings: list[str]  # what may be wrong, and what to do
    rungs: list[Rung] = field(default_factory=list)  # where the fit was to choose the family: all it tried
    notes: list[str] = field(default_factory=list)  # what the model has to say about its evaluations
    spent_on: str = "gradients"  # or "runs", where the fit counts these

    @property
    def num_gradients(self) -> int:
        """Spent in all."""
        return sum(self.gradients.values())

    @property
    def tail_sentence(self) -> str:
        """k̂ in plain words."""
        if np.isnan(self.tail_shape):
            return "k̂ is not known: there were too few draws."
        shape = f"k̂ = {self.tail_shape:.2f} ± {self.tail_shape_error:.2f}"
        if self.tail_shape <= GOOD_TAIL:
            return f"{shape}: the family is close to the posterior."
        if self.tail_shape <= FAIR_TAIL:
            return f"{shape}: the family is fair; importance sampling would correct it."
        return f"{shape}: the family is far from the posterior in its tails; means and sds may be off."

    @property
    def gap_sentence(self) -> str:
        """The gap in plain words."""
        if np.isnan(self.elbo):
            return "The ELBO is not known: the budget ended before it was measured."
        elbo = f"ELBO {self.elbo:,.3f} ± {self.elbo_error:.2g}"
        if not np.isfinite(self.gap):
            return f"{elbo}."
        gap = f"{max(self.gap, 0):.2g} ± {self.gap_error:.1g}"
        if self.is_certain:
            return f"{elbo}, within {gap} of the family's best nearby (tolerance {self.tolerance:g})."
        return (
            f"{elbo}; from the gradient, a gap of {gap} to the family's best nearby, too much or not sure "
            f"enough for the tolerance of {self.tolerance:g}."
        )

    @property
    def rung_sentences(self) -> list[str]:
        """What the families gave that were tried, a line each."""
        return [
            f"{rung.family}: ELBO {rung.elbo:,.2f}, k̂ {rung.tail_shape:.2f}, "
            f"{rung.num_gradients:,} {self.spent_on}, {rung.seconds:.1f} s"
            for rung in self.rungs
        ]

    @property
    def sentences(self) -> list[str]:
        """All of it, in words."""
        spent = ", ".join(f"{phase} {number:,}" for phase, number in self.gradients.items() if number)
        tried = [f"Tried, each from the one before: {'; '.join(self.rung_sentences)}."]
        return [
            *(tried if len(self.rungs) > 1 else []),
            self.gap_sentence,
            self.tail_sentence,
            f"{self.spent_on.capitalize()}: {self.num_gradients:,} ({spent}).",
            *self.notes,
            *(f"Warning: {warning}" for warning in self.warnings),
        ]
