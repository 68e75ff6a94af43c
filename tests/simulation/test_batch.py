"""Batches: draws that failed are nan, and differences are exact where they should be."""

import threading
from typing import Any

import numpy as np
import pytest

from dlrd.simulation import batch
from dlrd.simulation.misfit import Misfit
from dlrd.simulation.run import Answer, Question, Simulation, answered


class Direct:
    """In place of a session: answers at once, in this process."""

    shape = (2,)

    def __init__(self, run_fn: Any, sensitivity_fn: Any = None) -> None:
        self.simulation = Simulation(run_fn, sensitivity_fn)
        self.num_asked = 0

    def ask(self, questions: list[Question]) -> list[Answer]:
        self.num_asked += len(questions)
        return [answered(self.simulation, question._replace(shape=self.shape)) for question in questions]


def quadratic(x: np.ndarray) -> np.ndarray:
    if x[0] > 5:
        raise ValueError("too large")
    return np.array([x[0] * x[1], x[1] ** 2])


POINTS = np.array([[1.0, 2.0], [6.0, 1.0], [-1.0, 0.5]])


def test_failed_draws_are_nan() -> None:
    session: Any = Direct(lambda x: (quadratic(x), np.array([[x[1], x[0]], [0, 2 * x[1]]])))
    found = batch.asked(session, np.concatenate([POINTS, [[np.inf, 1.0]]]), True)
    assert session.num_asked == 3  # infinite parameters are not run
    assert np.isnan(found.outputs[3]).all()
    assert found.derivatives is not None
    assert np.isnan(found.outputs[1]).all()
    assert np.isnan(found.derivatives[1]).all()
    np.testing.assert_array_equal(found.outputs[0], [2, 4])
    np.testing.assert_array_equal(found.derivatives[2], [[0.5, -1.0], [0.0, 1.0]])
    assert batch.asked(session, POINTS, False).derivatives is None


def test_differences_of_a_quadratic_are_exact() -> None:
    """A power of two as a step leaves nothing to rounding."""
    offsets = np.concatenate([np.zeros((1, 2)), np.eye(2) / 64, -np.eye(2) / 64])
    found = batch.differenced(Direct(quadratic), POINTS[:, None] + offsets)  # pyright: ignore[reportArgumentType]
    assert found.derivatives is not None
    np.testing.assert_array_equal(found.derivatives[0], [[2, 1], [0, 4]])
    assert np.isnan(found.derivatives[1]).all()


def test_reduced_to_a_misfit_either_way() -> None:
    misfit = Misfit(np.array([1.0, 1.0]), 0.5)
    jacobian = np.array([[2.0, 1.0], [0.0, 4.0]])
    whole: Any = Direct(lambda x: (quadratic(x), jacobian))
    pulled: Any = Direct(lambda x: (quadratic(x), jacobian), misfit.sensitivity)
    values, gradients = batch.reduced(misfit, batch.asked(whole, POINTS, True), 2, is_pulled=False)
    for left, right in zip(
        (values, gradients),
        batch.reduced(misfit, batch.asked(pulled, POINTS, True), 2, is_pulled=True),
        strict=True,
    ):
        np.testing.assert_array_equal(left, right)
    np.testing.assert_allclose(values[0], -0.5 * (1 + 9) / 0.25)
    np.testing.assert_allclose(gradients[0], -(np.array([1, 3]) / 0.25) @ jacobian)
    assert np.isnan(values[1])


def test_ctrl_c_is_passed_on_when_the_batch_is_over() -> None:
    class Interrupted(Direct):
        def ask(self, questions: list[Question]) -> list[Answer]:
            raise KeyboardInterrupt

    def interrupted() -> None:
        found = batch.asked(Interrupted(quadratic), POINTS, False)  # pyright: ignore[reportArgumentType]
        assert np.isnan(found.outputs).all()
        for _ in range(200):
            threading.Event().wait(0.01)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
