"""Eight doubles as one value in compiled code, against NumPy."""

import operator
from collections.abc import Callable

import numba
import numpy as np
import pytest

from dlrd.paper.problems.lanes import NUM_LANES, empty_lanes, load, store

OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv]


@pytest.mark.parametrize("operation", OPERATORS, ids=lambda operation: operation.__name__)
def test_operators_are_numpys(operation: Callable[[object, object], object]) -> None:
    @numba.njit
    def apply(given, results):
        a, b = load(given, (0, 1)), load(given, (1, 2))
        store(results, 0, operation(a, b))
        store(results, 1, operation(3.0, b))
        store(results, 2, operation(a, 3.0))

    given = np.random.default_rng(0).normal(size=(2, 3, NUM_LANES))
    results = np.zeros((4, NUM_LANES))
    apply(given, results)
    a, b = given[0, 1], given[1, 2]
    expected = [operation(a, b), operation(3.0, b), operation(a, 3.0), np.zeros(NUM_LANES)]
    np.testing.assert_array_equal(results, expected)


def test_room_starts_at_a_cache_line() -> None:
    rooms = [empty_lanes(num) for num in range(20)]
    assert [room.shape for room in rooms] == [(num, NUM_LANES) for num in range(20)]
    assert all(room.ctypes.data % 64 == 0 for room in rooms)
