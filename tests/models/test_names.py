"""Names of the entries of arrays."""

import numpy as np
import pytest

from dlrd.models import coordinate_names, free_names


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        ((), ("z",)),
        ((1,), ("z[0]",)),
        ((3,), ("z[0]", "z[1]", "z[2]")),
        ((2, 2), ("z[0, 0]", "z[0, 1]", "z[1, 0]", "z[1, 1]")),
        ((0,), ()),
    ],
)
def test_one_for_each_entry(shape: tuple[int, ...], names: tuple[str, ...]) -> None:
    assert coordinate_names(shape) == names


def test_a_name_of_its_own() -> None:
    assert coordinate_names((2,), "beta") == ("beta[0]", "beta[1]")
    assert coordinate_names((), "sigma") == ("sigma",)


def test_they_are_in_the_order_of_the_flat_array() -> None:
    array = np.arange(6).reshape(2, 3)
    for name, entry in zip(coordinate_names(array.shape), array.ravel(), strict=True):
        row, column = map(int, name.removeprefix("z[").removesuffix("]").split(", "))
        assert array[row, column] == entry


def test_coordinates_behind_a_variable_tell_how_they_come_from_it() -> None:
    assert free_names((), "mu", None) == ("mu",)
    assert free_names((), "sigma", "log") == ("log sigma",)
    assert free_names((2,), "weights", "free") == ("free weights[0]", "free weights[1]")
