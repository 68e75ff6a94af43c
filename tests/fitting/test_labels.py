"""The variables of a fit, and the labels of their entries."""

from typing import Any, ClassVar

import numpy as np
import pytest

from dlrd.fitting.labels import as_variables, dims_of, entry_names, flat_shapes, labels_along
from dlrd.models import Model


class Labels:
    dims: ClassVar = {"x": ("side", "other"), "bad": ("side",)}
    coords: ClassVar = {"side": np.array(["left", "right"])}


@pytest.fixture
def labels() -> Any:
    return Labels()


def test_coordinates_without_names_are_one_array() -> None:
    assert flat_shapes(("z[0, 0]", "z[0, 1]"), (1, 2)) == {"z": (1, 2)}
    assert flat_shapes(("z",), ()) == {"z": ()}
    draws = np.arange(6.0).reshape(3, 1, 2)
    (given,) = as_variables(draws, ("z[0, 0]", "z[0, 1]")).values()
    np.testing.assert_array_equal(given, draws)


def test_named_coordinates_are_variables() -> None:
    draws = np.arange(6.0).reshape(3, 2)
    given = as_variables(draws, ("slope", "offset"))
    assert list(given) == ["slope", "offset"]
    np.testing.assert_array_equal(given["offset"], draws[:, 1])


def test_variables_stay() -> None:
    given = as_variables({"a": [1.0, 2.0]}, ("log a",))
    assert list(given) == ["a"]
    np.testing.assert_array_equal(given["a"], [1.0, 2.0])


def test_axes_are_the_models_or_numbered(labels: Model) -> None:
    assert dims_of("x", (2, 3), labels) == ("side", "other")
    assert dims_of("bad", (2, 3), labels) == ("bad_dim_0", "bad_dim_1")  # of another number of axes
    assert dims_of("y", (2,), labels) == ("y_dim_0",)
    assert dims_of("x", (2,), None) == ("x_dim_0",)
    assert labels_along("side", 2, labels).tolist() == ["left", "right"]
    assert labels_along("side", 3, labels).tolist() == [0, 1, 2]
    assert labels_along("other", 2, None).tolist() == [0, 1]


def test_entries_have_labels(labels: Model) -> None:
    assert entry_names("x", (2, 2), labels) == ["x[left, 0]", "x[left, 1]", "x[right, 0]", "x[right, 1]"]
    assert entry_names("sigma", (), labels) == ["sigma"]
    assert entry_names("none", (0,), labels) == []


def test_a_single_coordinate_that_is_called_as_if_it_had_no_name():
    (values,) = as_variables(np.zeros((5, 1)), ("z",)).values()
    assert values.shape == (5,) == (5, *flat_shapes(("z",), (1,))["z"])


def test_the_likelihood_of_vectors_has_the_leading_axes_of_the_data():
    class Named:
        dims: ClassVar = {"y": ("row", "column")}
        coords: ClassVar = {}

    assert dims_of("y", (3,), Named()) == ("row",)
    assert dims_of("y", (3, 2), Named()) == ("row", "column")
    assert dims_of("y", (3, 2, 1), Named()) == ("y_dim_0", "y_dim_1", "y_dim_2")
