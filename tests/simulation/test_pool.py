"""The processes of one machine."""

import os
import sys

import cloudpickle
import numpy as np
import pytest

from dlrd.simulation import pool
from dlrd.simulation.run import Question, Simulation, Status

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def run(x: np.ndarray) -> np.ndarray:
    if x[0] < 0:
        os._exit(1)
    return x


@pytest.mark.usefixtures("nothing_left")
def test_a_free_process_is_asked_again_and_a_dead_one_is_not() -> None:
    kept = []
    pool.learn("token", cloudpickle.dumps(Simulation(run)))
    pool.listen("token", lambda question, answer: kept.append(answer))
    pool.start("token", 1)
    answers = [pool.carry_out("token", Question(np.array([x])), None) for x in (1.0, 2.0, -1.0, 3.0)]
    assert kept == answers
    first, second, dead, new = answers
    assert first.worker == second.worker != new.worker
    assert dead.status is Status.EXIT
    np.testing.assert_array_equal(new.outputs, [3.0])
    pool.forget("token")
    with pytest.raises(KeyError):
        pool.carry_out("token", Question(np.array([1.0])), None)
