"""Back to the best that was measured, with smaller steps; or on, where only the average has fallen behind."""

from dataclasses import replace

from dlrd.fitting.automatic.judge.certificate import CONFIDENCE, improvement
from dlrd.fitting.automatic.plan import Task
from dlrd.fitting.automatic.state import AutomaticState
from dlrd.fitting.automatic.steps.rounds import with_round
from dlrd.fitting.automatic.steps.stepping import certificate_key

MAX_ROLLBACKS = 20
NUM_DRAWS = 128
"""Behind the comparison of the last iterate with the best family, with the same noise for both."""


def can_roll_back(state: AutomaticState) -> bool:
    """Whether there is something to go back to, and that has not been tried too often."""
    return state.best is not None and state.num_rollbacks < MAX_ROLLBACKS


def catch_up_or_roll_back(task: Task, state: AutomaticState) -> AutomaticState:
    """From the last iterate with a new average, if that is no worse than the best; else back to that.

    While a fit travels, its average over the steps lags behind: it may be a bad family between two good ones.
    """
    assert state.best is not None
    if task.is_annealed or task.max_gradients - state.num_gradients < 2 * NUM_DRAWS:
        return roll_back(task, state)
    last, key = state.last_iterate, certificate_key(task, state, use=4)
    gain, error = improvement(task.method.model, state.best.family, last, key, NUM_DRAWS)
    state = state.spent("certificates", 2 * NUM_DRAWS)
    if not (gain > -CONFIDENCE * error and gain + error < float("inf")):
        return roll_back(task, state)
    return replace(state, origin=last).restarted(task.method, last, task.key, state.rate)


def roll_back(task: Task, state: AutomaticState) -> AutomaticState:
    """From the best family, with the rate times the rule's factor."""
    assert state.best is not None
    rate = state.rate * task.plan.factor
    if task.is_annealed:
        back = with_round(task, state, state.best.family, rate, round(state.settings[1]))
    else:
        back = state.restarted(task.method, state.best.family, task.key, rate)
    return replace(back, num_rollbacks=state.num_rollbacks + 1)
