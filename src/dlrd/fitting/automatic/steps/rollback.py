"""Back to the best that was measured, with smaller steps."""

from dataclasses import replace

from dlrd.fitting.automatic.plan import Task
from dlrd.fitting.automatic.state import AutomaticState

MAX_ROLLBACKS = 20


def can_roll_back(state: AutomaticState) -> bool:
    """Whether there is something to go back to, and that has not been tried too often."""
    return state.best is not None and state.num_rollbacks < MAX_ROLLBACKS


def roll_back(task: Task, state: AutomaticState) -> AutomaticState:
    """From the best family, with the rate times the rule's factor."""
    assert state.best is not None
    back = state.restarted(task.method, state.best.family, task.key, state.rate * task.plan.factor)
    return replace(back, num_rollbacks=state.num_rollbacks + 1)
