"""Steps and certificates in turn, until the fit is sure, or the budget ends."""

from dataclasses import replace

from dlrd.fitting.automatic.annealing import steps_left
from dlrd.fitting.automatic.judge.certificate import CONFIDENCE, improvement
from dlrd.fitting.automatic.judge.stopping import (
    CERTAIN,
    MAX_CERTIFICATE_SHARE,
    PROMISING,
    Action,
    Evidence,
    decide,
    is_confirmed,
)
from dlrd.fitting.automatic.plan import Task
from dlrd.fitting.automatic.state import AutomaticState
from dlrd.fitting.automatic.steps.refine import refine, refining_cost
from dlrd.fitting.automatic.steps.rollback import can_roll_back, catch_up_or_roll_back, roll_back
from dlrd.fitting.automatic.steps.rounds import in_round
from dlrd.fitting.automatic.steps.stepping import (
    Report,
    affordable_steps,
    certificate_key,
    confirming_cost,
    correct,
    lengthen_certificate,
    probe,
    probing_cost,
    step_cost,
    steps_for,
    take_certificate,
    take_steps,
    taught,
)
from dlrd.fitting.automatic.steps.stride import take_stride
from dlrd.fitting.outcome import Outcome

CERTIFICATE_SHARE, ROUGH_SHARE = 0.25, 0.05
"""Draws of a certificate, as a share of the steps' gradients so far, and of what is left of the budget."""
ANNEALED_SHARE = 0.05
"""Likewise, behind a round."""
LENGTHENING, MAX_COMPARED_SHARE = 2, 0.25
"""Of a comparison that noise alone keeps from being sure; at most that share of the steps' gradients."""


def run_until_sure(task: Task, state: AutomaticState, report: Report) -> tuple[AutomaticState, Outcome]:
    """Takes steps and certificates in turn until the outcome is known; tells `report` of each new state."""
    while True:
        if not state.is_judged:
            state, outcome = judge(task, state)
            report(state)
            if outcome is not Outcome.RUNNING:
                return state, outcome
        if task.is_annealed:
            state = in_round(task, state)
        goal = _next_goal(task, state)
        if state.latest is not None and (goal <= state.latest.step or task.is_late):
            return state, Outcome.BUDGET
        state = take_steps(task, state.running, goal, report)
        if state.outcome is Outcome.INTERRUPTED:
            return state, state.outcome
        if state.outcome is Outcome.DIVERGED:
            if not can_roll_back(state):
                return state, state.outcome
            state = roll_back(task, state)
            continue
        state = take_certificate(task, state, _num_draws(task, state))
        report(state)


def judge(task: Task, state: AutomaticState) -> tuple[AutomaticState, Outcome]:
    """Does what follows from the latest certificate; `RUNNING` if the fit should go on."""
    assert state.latest is not None
    looked_at, done = state.latest.step, frozenset[Action]()
    while True:
        evidence = _evidence(task, state, done)
        decision = decide(evidence, task.plan)
        if decision.action is Action.STOP:
            return state, decision.outcome
        if decision.action is Action.LOOK_LONGER:
            state = lengthen_certificate(task, state, decision.num)
        elif decision.action is Action.CORRECT:
            moved = correct(task, state)
            assert moved.latest is not None
            if is_confirmed(moved.latest.certificate, evidence):
                return moved, Outcome.CERTIFIED
            state = replace(state, gradients=moved.gradients)
        elif decision.action is Action.COMPARE:
            state = _compare(task, state, decision.num)
        elif decision.action is Action.PROBE:
            state = probe(task, state)
        elif decision.action is Action.STRIDE:
            state = take_stride(task, state)
        elif decision.action is Action.REFINE:
            state = refine(task, state, decision.num)
        else:
            has_fallen = decision.action is Action.ROLL_BACK
            state = catch_up_or_roll_back(task, state) if has_fallen else taught(state)
            return replace(state, judged_at=looked_at), Outcome.RUNNING
        done |= {decision.action}


def _evidence(task: Task, state: AutomaticState, done: frozenset[Action]) -> Evidence:
    assert state.latest is not None
    return Evidence(
        certificate=state.latest.certificate,
        tolerance=task.tolerance,
        step_gradients=state.gradients["steps"],
        num_left=task.max_gradients - state.num_gradients,
        best_bound=float("-inf") if state.best is None else state.best.certificate.elbo_bound,
        is_first=state.judged_at == 0,
        is_at_mode=state.search.is_at_mode,
        num_agreed=state.num_agreed,
        can_roll_back=can_roll_back(state),
        refining_cost=refining_cost(task.method.model, state.origin),
        confirming_cost=confirming_cost(task.method.model, state.latest.certificate),
        probing_cost=probing_cost(task.method.model, state.latest.family, state.latest.certificate),
        done=done,
    )


def _compare(task: Task, state: AutomaticState, num_draws: int) -> AutomaticState:
    """Whether the steps since the certificate before have raised the ELBO by more than the tolerance.

    With twice as many draws, as long as these are few, where noise alone keeps that from being sure.
    """
    assert state.latest is not None
    before, family = state.latest.came_from, state.latest.family
    model, tolerance = task.method.model, task.tolerance
    while True:
        key = certificate_key(task, state, use=2)
        gain, error = improvement(model, before, family, key, num_draws)
        state = state.spent("certificates", 2 * num_draws)
        has_agreed = gain + CONFIDENCE * error <= tolerance
        longer = LENGTHENING * num_draws
        left = min(task.max_gradients - state.num_gradients, MAX_COMPARED_SHARE * state.gradients["steps"])
        if has_agreed or not gain <= PROMISING * tolerance or 2 * longer > left:
            return replace(state, num_agreed=state.num_agreed + 1 if has_agreed else 0)
        num_draws = longer


def _num_draws(task: Task, state: AutomaticState) -> int:
    """Of the next certificate: few as long as the noise of the steps alone must keep the gap too large."""
    num_steps, share = state.gradients["steps"], ANNEALED_SHARE if task.is_annealed else CERTIFICATE_SHARE
    if state.latest is not None and not task.is_annealed:
        seen = state.latest.certificate
        expected = seen.noise * seen.num_draws / ((1 + MAX_CERTIFICATE_SHARE) * num_steps)
        share = ROUGH_SHARE if expected > CERTAIN * task.tolerance else CERTIFICATE_SHARE
    left = task.max_gradients - state.num_gradients
    return max(int(min(share * num_steps, left)) // task.first_gradients, 1) * task.first_gradients


def _next_goal(task: Task, state: AutomaticState) -> int:
    """The step behind which the next certificate is due: each time twice as many, or what is affordable."""
    if task.is_annealed:
        return state.step + min(steps_left(state.steps), affordable_steps(task, state))
    looked_at = 0 if state.latest is None else state.latest.step
    stop = steps_for(task, state, task.first_gradients)
    while stop <= looked_at:
        stop *= 2
    # With a certificate behind the last step, for which what is left must not be too little.
    left = task.max_gradients - state.num_gradients
    share = min(CERTIFICATE_SHARE * state.gradients["steps"], CERTIFICATE_SHARE * left)
    affordable = int(left - max(share, task.first_gradients)) // step_cost(task, state)
    return min(stop, state.step + affordable)
