"""Why a fit ended."""

import enum


class Outcome(enum.Enum):
    """Why a fit ended; `sentence` says it in words. The numbers are those of the compiled loop."""

    RUNNING = 0
    SETTLED = 1
    BUDGET = 2
    DIVERGED = 3
    INTERRUPTED = 4

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Outcome.RUNNING: "The fit has not ended yet.",
    Outcome.SETTLED: "The parameters settled: the learning rate decayed until its steps no longer mattered.",
    Outcome.BUDGET: "All steps were done.",
    Outcome.DIVERGED: (
        "The ELBO or the parameters became infinite or nan; the result is the last state before that. "
        "Try a smaller learning rate, or another start."
    ),
    Outcome.INTERRUPTED: "Interrupted by the user; the result is the state at that moment.",
}
