"""What a worker of Dask knows of a program."""

import sys

import cloudpickle
import numpy as np
import pytest

from dlrd.simulation import pool
from dlrd.simulation.plugin import Program
from dlrd.simulation.run import Question, Simulation

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.mark.usefixtures("nothing_left")
def test_from_its_start_to_its_end() -> None:
    plugin = Program("token", cloudpickle.dumps(Simulation(lambda x: 2 * x)))
    plugin.setup(None)
    np.testing.assert_array_equal(pool.carry_out("token", Question(np.ones(1)), None).outputs, [2.0])
    plugin.teardown(None)
