"""What a run is: a question, how it is answered in the process that does so, and the answer."""

import enum
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

MAX_MESSAGE = 500
"""Characters that are kept of what a failed run has said."""


NOTHING_PULLED = np.zeros(0)
"""The gradient of a run that could pull a sensitivity back, but was given none."""


class Status(enum.Enum):
    """How a run ended."""

    OK = "ok"
    RAISED = "raised"  # an error
    NAN = "nan"  # or infinite, in the outputs or their gradient
    SHAPE = "shape"  # the outputs or their gradient have another one than they should
    EXIT = "exit code"  # of the command or of the process was not 0
    TIME = "time limit"  # was exceeded
    LOST = "worker lost"  # killed from outside; that says nothing about the run


class Question(NamedTuple):
    """What is asked of one run."""

    parameters: Float[np.ndarray, " dim"]
    has_gradient: bool = False  # whether the gradient is wanted, too
    sensitivity: Float[np.ndarray, "..."] | None = None  # that is pulled back; None: the simulation's own
    shape: tuple[int, ...] | None = None  # that the outputs must have, once it is known


class Answer(NamedTuple):
    """What a run has given."""

    status: Status
    seconds: float
    worker: str = ""  # which process, on which machine
    outputs: Float[np.ndarray, "..."] | None = None
    gradient: Float[np.ndarray, "..."] | None = None  # pulled back to the parameters; or the whole Jacobian
    message: str = ""  # what went wrong


class Simulation(NamedTuple):
    """A program, and what is the same for all of its runs."""

    run_fn: Callable[[Float[np.ndarray, " dim"]], Any]  # to the outputs; or to these and how they change
    sensitivity_fn: Callable[[np.ndarray], np.ndarray] | None = None  # of the outputs, to be pulled back
    time_limit: float | None = None  # in seconds


class RunError(Exception):
    """A run that ended otherwise than it should.

    Args:
        status: how.
        message: why.
    """

    def __init__(self, status: Status, message: str):
        super().__init__(message)
        self.status = status


def answered(simulation: Simulation, question: Question) -> Answer:
    """Runs the program, and tells how it went whatever it does."""
    begun = time.perf_counter()
    try:
        outputs, gradient = _given(simulation, question)
    except RunError as error:
        return Answer(error.status, time.perf_counter() - begun, message=str(error)[-MAX_MESSAGE:])
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})"
        return Answer(Status.RAISED, time.perf_counter() - begun, message=message[-MAX_MESSAGE:])
    return Answer(Status.OK, time.perf_counter() - begun, outputs=outputs, gradient=gradient)


def _given(simulation: Simulation, question: Question) -> tuple[np.ndarray, np.ndarray | None]:
    given = simulation.run_fn(question.parameters.copy())
    outputs, derivative = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    outputs = _checked("outputs", outputs, question.shape)
    if derivative is None or not question.has_gradient:
        return outputs, None
    sensitivity = question.sensitivity
    if sensitivity is None and simulation.sensitivity_fn is not None:
        sensitivity = simulation.sensitivity_fn(outputs)
    dim = len(question.parameters)
    if callable(derivative):
        if sensitivity is None:  # nothing to pull back yet: it is enough to know that there is a way
            return outputs, NOTHING_PULLED
        return outputs, _checked("the gradient", derivative(sensitivity), (dim,))
    jacobian = _checked("the Jacobian", derivative, (*outputs.shape, dim))
    return outputs, jacobian if sensitivity is None else np.tensordot(sensitivity, jacobian, outputs.ndim)


def _checked(what: str, given: Any, shape: tuple[int, ...] | None) -> np.ndarray:
    """A copy as floats, of the right shape and finite."""
    try:
        array = np.array(given, float)
    except (TypeError, ValueError) as error:
        raise RunError(Status.SHAPE, f"{what} must be an array of numbers, got {given!r:.60}") from error
    if shape is not None and array.shape != shape:
        raise RunError(Status.SHAPE, f"{what} must have shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise RunError(Status.NAN, f"{what} must be finite, got {array[~np.isfinite(array)][0]}")
    return array
