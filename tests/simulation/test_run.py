"""A run in the process that carries it out."""

from typing import Any

import numpy as np
import pytest

from dlrd.simulation.run import Answer, Question, Simulation, Status, answered

POINT = np.array([2.0, 3.0])
JACOBIAN = np.array([[3.0, 2.0], [1.0, 1.0], [4.0, 0.0]])


def outputs(x: np.ndarray) -> np.ndarray:
    return np.array([x[0] * x[1], x[0] + x[1], x[0] ** 2])


def ask(run_fn: Any, sensitivity_fn: Any = None, **question: Any) -> Answer:
    return answered(Simulation(run_fn, sensitivity_fn), Question(POINT, **question))


@pytest.mark.parametrize("given", [JACOBIAN, lambda sensitivity: sensitivity @ JACOBIAN])
def test_a_jacobian_and_a_pullback_give_one_gradient(given: Any) -> None:
    def double(outputs: np.ndarray) -> np.ndarray:
        return 2 * outputs

    answer = ask(lambda x: (outputs(x), given), double, has_gradient=True)
    np.testing.assert_array_equal(answer.outputs, [6, 5, 4])
    np.testing.assert_array_equal(answer.gradient, 2 * np.array([6, 5, 4]) @ JACOBIAN)
    chosen = ask(
        lambda x: (outputs(x), given), double, has_gradient=True, sensitivity=np.array([1.0, 0.0, 0.0])
    )
    np.testing.assert_array_equal(chosen.gradient, JACOBIAN[0])
    assert ask(lambda x: (outputs(x), given), double).gradient is None


def test_without_a_sensitivity() -> None:
    """The Jacobian comes as it is, and a pullback says that it is there."""
    np.testing.assert_array_equal(ask(lambda x: (outputs(x), JACOBIAN), has_gradient=True).gradient, JACOBIAN)
    found = ask(lambda x: (outputs(x), lambda sensitivity: 1 / 0), has_gradient=True).gradient
    assert found is not None
    assert found.shape == (0,)


@pytest.mark.parametrize(
    ("run_fn", "status", "message"),
    [
        (lambda x: 1 / 0, Status.RAISED, "ZeroDivisionError: division by zero"),
        (lambda x: exit(3), Status.RAISED, "SystemExit: 3"),
        (lambda x: np.array([1.0, np.nan, 2.0]), Status.NAN, "outputs must be finite, got nan"),
        (lambda x: np.ones(2), Status.SHAPE, r"outputs must have shape \(3,\), got \(2,\)"),
        (lambda x: "three", Status.SHAPE, "outputs must be an array of numbers, got 'three'"),
        (lambda x: (np.ones(3), np.ones(2)), Status.SHAPE, r"the Jacobian must have shape \(3, 2\)"),
        (lambda x: (np.ones(3), lambda s: np.ones(1)), Status.SHAPE, r"the gradient must have shape \(2,\)"),
        (lambda x: (np.ones(3), np.full((3, 2), np.inf)), Status.NAN, "the Jacobian must be finite, got inf"),
    ],
    ids=range(8),
)
def test_what_goes_wrong_is_an_answer(run_fn: Any, status: Status, message: str) -> None:
    answer = ask(run_fn, lambda outputs: outputs, has_gradient=True, shape=(3,))
    assert answer.status is status
    assert answer.outputs is None
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(answer.message)


def test_a_program_cannot_change_the_question() -> None:
    def spoil(x: np.ndarray) -> np.ndarray:
        x[:] = 0
        return np.ones(1)

    question = Question(POINT.copy())
    answered(Simulation(spoil), question)
    np.testing.assert_array_equal(question.parameters, POINT)
