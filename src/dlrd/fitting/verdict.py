"""What an automatic fit says about itself."""

from dataclasses import dataclass

import numpy as np

GOOD_TAIL, FAIR_TAIL = 0.5, 0.7
"""Values of k̂ up to which importance sampling works well, and works at all."""


@dataclass(frozen=True)
class Verdict:
    """How sure an automatic fit is; measured at its result, with draws that no step has seen."""

    tolerance: float  # that was asked for, in nats
    gap: float  # ELBO of the best member of the family nearby, less that of the result; nan if not known
    gap_error: float  # its standard error
    elbo: float
    elbo_error: float  # its standard error
    tail_shape: float  # k̂ of the importance ratios
    gradients: dict[str, int]  # spent, by phase
    warnings: list[str]  # what may be wrong, and what to do

    @property
    def num_gradients(self) -> int:
        """Spent in all."""
        return sum(self.gradients.values())

    @property
    def tail_sentence(self) -> str:
        """k̂ in plain words."""
        if np.isnan(self.tail_shape):
            return "k̂ is not known: there were too few draws."
        if self.tail_shape <= GOOD_TAIL:
            meaning = "the family is close to the posterior."
        elif self.tail_shape <= FAIR_TAIL:
            meaning = "the family is fair; importance sampling would correct it."
        else:
            meaning = "the family is far from the posterior in its tails; means and sds may be off."
        return f"k̂ = {self.tail_shape:.2f}: {meaning}"

    @property
    def gap_sentence(self) -> str:
        """The gap in plain words."""
        if not np.isfinite(self.gap):
            return f"ELBO {self.elbo:,.3f} ± {self.elbo_error:.2g}."
        return (
            f"ELBO {self.elbo:,.3f} ± {self.elbo_error:.2g}, within {max(self.gap, 0):.2g} ± "
            f"{self.gap_error:.1g} of the family's best nearby (tolerance {self.tolerance:g})."
        )

    @property
    def sentences(self) -> list[str]:
        """All of it, in words."""
        spent = ", ".join(f"{phase} {number:,}" for phase, number in self.gradients.items() if number)
        return [
            self.gap_sentence,
            self.tail_sentence,
            f"Gradients: {self.num_gradients:,} ({spent}).",
            *(f"Warning: {warning}" for warning in self.warnings),
        ]
