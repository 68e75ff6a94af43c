"""Rounds of steps, in each of which the rate falls to zero: for families whose geometry is not known.

Many weights of a flow give one distribution, and wander; to a rule that watches them, that looks like
progress. So the rate does not wait for a sign. A round anneals; the next is twice as long, from a lower rate;
and the ELBOs behind the two, on the same noise, tell whether that was worth it.
"""

from dataclasses import replace

from dlrd.families import Family
from dlrd.fitting.automatic.annealing import steps_left
from dlrd.fitting.automatic.plan import Task
from dlrd.fitting.automatic.state import AutomaticState
from dlrd.fitting.automatic.steps.stepping import affordable_steps, step_cost

FIRST_ROUND, FIRST_SHARE = 4096, 1 / 32
"""Gradients of the first round of each rate: so many, or that share of the budget."""
LAST_SHARE = 0.9
"""Of the last round, of what is left; the rest is for its certificate and the comparison."""
GROWTH, FACTOR = 2, 0.5
"""Of the next round: how many times the steps, and what the rate is multiplied by."""


def first_length(task: Task, state: AutomaticState) -> int:
    """Steps of the first round, of which there is one for each rate."""
    num_gradients = min(FIRST_ROUND, FIRST_SHARE * task.max_gradients)
    return max(int(num_gradients) // step_cost(task, state), 1)


def is_last_round(task: Task, state: AutomaticState, length: int) -> bool:
    """Whether a round of so many steps leaves too little for the next."""
    return affordable_steps(task, state) < (1 + GROWTH) * length


def with_round(task: Task, state: AutomaticState, family: Family, rate: float, length: int) -> AutomaticState:
    """At the beginning of a round from `family`; the last one takes all but what it takes to judge it."""
    if is_last_round(task, state, length):
        length = max(int(LAST_SHARE * affordable_steps(task, state)), 1)
    return state.restarted(task.method, family, task.key, (rate, length))


def in_round(task: Task, state: AutomaticState) -> AutomaticState:
    """In the middle of a round: in a new one, if the last is over."""
    if steps_left(state.steps) > 0 or affordable_steps(task, state) == 0:
        return state
    (rate, length), family = state.settings, state.last_iterate
    return with_round(task, replace(state, origin=family), family, FACTOR * rate, GROWTH * round(length))
