"""The checks that all rooms share."""

import re
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest

from dlrd.checks import MAX_SHOWN, check_between, check_count, check_not_negative, shown

INF, NAN = float("inf"), float("nan")


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


@pytest.mark.parametrize(
    ("check_fn", "good", "bad", "message"),
    [
        (
            lambda value: check_between("factor", value, 0, 1),
            0.5,
            [0, 1, NAN],
            "factor must be between 0 and 1",
        ),
        (lambda value: check_between("min_snr", value, 0, INF), 1e9, [0, -1, INF], "min_snr must be above 0"),
        (
            lambda value: check_not_negative("exponent", value),
            0,
            [-1, INF, NAN],
            "exponent must be at least 0",
        ),
    ],
    ids=["between", "above", "not negative"],
)
def test_bad_numbers_are_named(check_fn: Any, good: float, bad: list[float], message: str):
    check_fn(good)
    for value in bad:
        with pytest.raises(ValueError, match=f"^{re.escape(f'{message}, got {value}')}$"):
            check_fn(value)
        jax.jit(lambda traced: check_fn(traced))(value)  # has no value yet


def test_long_values_are_cut():
    fits = "x" * (MAX_SHOWN - 2)  # and two quotation marks
    assert shown(fits) == f"str '{fits}'"
    assert shown(fits + "x") == f"str '{fits[:-2]}..."
    assert len(shown(list(range(1000)))) == len("list ") + MAX_SHOWN


def test_no_array_library_is_imported():
    code = "import dlrd.checks, sys; print([m for m in ('jax', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
