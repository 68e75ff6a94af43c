"""Why a fit ended."""

import enum


class Outcome(enum.Enum):
    """Why a fit ended; `sentence` says it in words. The numbers are those of the compiled loop."""

    RUNNING = 0
    CERTIFIED = 1
    AGREED = 2
    BUDGET = 3
    DIVERGED = 4
    INTERRUPTED = 5

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Outcome.RUNNING: "The fit has not ended yet.",
    Outcome.CERTIFIED: (
        "Certified: the gradient, measured with draws of its own, bounds the gap to the best member of the "
        "family nearby by the tolerance."
    ),
    Outcome.AGREED: (
        "Agreed: twice in a row, twice as many steps have not raised the ELBO by more than the tolerance."
    ),
    Outcome.BUDGET: "All steps of the budget were done.",
    Outcome.DIVERGED: (
        "The ELBO or the parameters became infinite or nan; the result is the last state before that. "
        "Try a smaller learning rate, or another start."
    ),
    Outcome.INTERRUPTED: "Interrupted by the user; the result is the latest that there was.",
}
