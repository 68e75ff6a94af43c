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
        "The fit diverged, also with smaller steps where it went back for another try; the result is the "
        "last good state. Try another start or a smaller learning rate, and mind where the log density is "
        "infinite or nan."
    ),
    Outcome.INTERRUPTED: "Interrupted by the user; the result is the latest that there was.",
}
