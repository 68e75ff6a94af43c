"""The checks that all rooms share."""

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from dlrd.checks import MAX_SHOWN, check_count, shown


@pytest.mark.parametrize("value", [1, 7, 2**70, np.int8(1), np.uint64(3)])
def test_whole_numbers_of_at_least_1_pass(value: Any):
    check_count("num_draws", value)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0, "int 0"),
        (-3, "int -3"),
        (np.int32(0), "int32 np.int32(0)"),
        (2.0, "float 2.0"),
        (np.float64(2), "float64 np.float64(2.0)"),
        (float("nan"), "float nan"),
        (True, "bool True"),
        (np.True_, "bool np.True_"),
        ("3", "str '3'"),
        (None, "NoneType None"),
        (np.array(3), "ndarray array(3)"),
    ],
)
def test_all_else_is_refused_by_name(value: Any, told: str):
    message = f"num_draws must be a whole number of at least 1, got {told}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_count("num_draws", value)


def test_long_values_are_cut():
    fits = "x" * (MAX_SHOWN - 2)  # and two quotation marks
    assert shown(fits) == f"str '{fits}'"
    assert shown(fits + "x") == f"str '{fits[:-2]}..."
    assert len(shown(list(range(1000)))) == len("list ") + MAX_SHOWN


def test_no_array_library_is_imported():
    code = "import dlrd.checks, sys; print([m for m in ('jax', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
