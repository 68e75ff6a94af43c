"""Batches of draws to outputs and their derivatives: as the runs give them, or by differences of runs."""

import _thread
import threading
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dlrd.simulation.misfit import Misfit, Own
from dlrd.simulation.run import Answer, Question, Status
from dlrd.simulation.session import Session

INTERRUPT_SECONDS = 0.05
"""After which Ctrl-C is passed on, when the callback that it came into is over."""


class Outputs(NamedTuple):
    """Of a batch; draws that failed are nan."""

    outputs: Float[np.ndarray, "draw ..."]
    derivatives: Float[np.ndarray, "draw ..."] | None  # as `Answer.gradient` has them


def asked(
    session: Session,
    points: Float[np.ndarray, "draw dim"],
    has_gradient: bool,
    sensitivities: Float[np.ndarray, "draw ..."] | None = None,
) -> Outputs:
    """One run a draw.

    Args:
        session: that carries them out.
        points: the parameters.
        has_gradient: whether to ask for derivatives.
        sensitivities: to be pulled back, where those of the simulation are not meant.
    """
    # A search for modes may go as far as numbers do; what is not finite is nothing to be run.
    chosen = np.flatnonzero(np.isfinite(points).all(axis=1)).tolist()
    pulled = [None] * len(points) if sensitivities is None else sensitivities
    questions = [Question(points[i], has_gradient, pulled[i]) for i in chosen]
    try:
        answers = dict(zip(chosen, session.ask(questions), strict=True))
    except KeyboardInterrupt:  # which a compiled program that called back would not pass on
        threading.Timer(INTERRUPT_SECONDS, _thread.interrupt_main).start()
        answers: dict[int, Answer] = {}
    good = [i for i, answer in answers.items() if answer.status is Status.OK]
    assert session.shape is not None
    outputs = np.full((len(points), *session.shape), np.nan)
    for i in good:
        outputs[i] = answers[i].outputs
    given = {i: answers[i].gradient for i in good}
    if not has_gradient or not given:
        return Outputs(outputs, None)
    first = np.asarray(given[good[0]])
    derivatives = np.full((len(points), *first.shape), np.nan)
    for i, gradient in given.items():
        derivatives[i] = gradient
    return Outputs(outputs, derivatives)


def differenced(session: Session, points: Float[np.ndarray, "draw side dim"]) -> Outputs:
    """Central differences: a draw itself, then with each parameter moved up, then with each moved down.

    All runs of all draws at once. A draw one of whose runs failed has failed.
    """
    num, sides, dim = points.shape
    runs = asked(session, points.reshape(-1, dim), False).outputs
    outputs = runs.reshape(num, sides, *runs.shape[1:])
    above, below = outputs[:, 1 : 1 + dim], outputs[:, 1 + dim :]
    index = np.arange(dim)
    # The steps as they are, after rounding.
    steps = points[:, 1 + index, index] - points[:, 1 + dim + index, index]
    slopes = (above - below) / steps.reshape(num, dim, *(1,) * (outputs.ndim - 2))
    return Outputs(outputs[:, 0], np.moveaxis(slopes, 1, -1))


def reduced(
    misfit: Misfit | Own, batch: Outputs, dim: int, is_pulled: bool
) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, "draw dim"]]:
    """The negative misfits and their gradients.

    Args:
        misfit: of the outputs.
        batch: the outputs, with derivatives or without.
        dim: how many parameters there are.
        is_pulled: whether the derivatives are those of the misfit already; else Jacobians.
    """
    values, gradients = np.full(len(batch.outputs), np.nan), np.full((len(batch.outputs), dim), np.nan)
    for i, outputs in enumerate(batch.outputs):
        if not np.isfinite(outputs).all():
            continue
        values[i] = -misfit.value(outputs)
        if batch.derivatives is not None:
            derivative = batch.derivatives[i]
            if not is_pulled:
                derivative = np.tensordot(misfit.sensitivity(outputs), derivative, outputs.ndim)
            gradients[i] = -derivative
    return values, gradients
