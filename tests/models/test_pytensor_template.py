"""Graphs as what they share with others, and their data."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor import shared

from dlrd.models.pytensor_template import Parted, arrays_of, parted

ONE, OTHER = np.array([1.0, 2.0, 4.0]), np.array([0.5, 8.0, 1.0])


def of_data(build: Callable[[Any, Any], Any], data: Any) -> Parted:
    """The graph that is built of a vector of three and of the data."""
    vector, leaf = pt.vector("v", shape=(3,)), data if hasattr(data, "type") else pt.as_tensor(data)
    outputs = [build(vector, leaf)]
    return parted([vector], outputs, arrays_of(outputs, [leaf]), [(3,)])


def value(graph: Parted) -> Any:
    return graph.template.jaxified()(jnp.arange(3.0), *map(jnp.asarray, graph.data))[0]


def test_other_numbers_are_the_same_template() -> None:
    first, second = (of_data(lambda v, data: pt.sum(v**2 * data), data) for data in (ONE, OTHER))
    assert first.template is second.template
    np.testing.assert_array_equal(second.data, [OTHER])
    np.testing.assert_allclose([value(first), value(second)], [18.0, 12.0])


@pytest.mark.parametrize(
    ("build", "data"),
    [
        (lambda v, data: pt.sum(v**3 * data), ONE),
        (lambda v, data: pt.sum(v**2 + data), ONE),
        (lambda v, data: pt.sum(v**2 * data), ONE[:1]),
        (lambda v, data: pt.sum(v**2 * data), ONE.astype("float32")),
        (lambda v, data: pt.sum(v**2 * data * ONE), OTHER),
        (lambda v, data: pt.sum(data**2 * v), ONE),
    ],
    ids=["exponent", "operation", "shape", "type", "more data", "order"],
)
def test_other_graphs_are_other_templates(build: Callable[[Any, Any], Any], data: np.ndarray) -> None:
    assert of_data(build, data).template != of_data(lambda v, data: pt.sum(v**2 * data), ONE).template


def test_one_array_twice_is_not_two_arrays() -> None:
    """Else the second would be taken for the first."""
    twice = of_data(lambda v, data: pt.sum(v * data * pt.exp(data)), ONE)
    apart = of_data(lambda v, data: pt.sum(v * data * pt.exp(OTHER)), ONE)
    assert twice.template != apart.template
    assert len(twice.data) == 1
    np.testing.assert_allclose(value(apart), np.sum(np.arange(3) * ONE * np.exp(OTHER)), rtol=1e-6)


def test_what_decides_about_lengths_is_no_data() -> None:
    masks = np.array([1, 0, 1]), np.array([1, 1, 1])
    chosen = [of_data(lambda v, data: pt.cumsum(v[data > 0])[-1], mask) for mask in masks]
    assert [each.data for each in chosen] == [(), ()]
    assert chosen[0].template != chosen[1].template
    assert list(map(value, chosen)) == [2.0, 3.0]


def test_lengths_beside_data_leave_these_what_they_are() -> None:
    rows = of_data(lambda v, data: pt.sum(pt.reshape(v, np.array([3, 1])) * data), ONE)
    np.testing.assert_array_equal(rows.data, [ONE])
    assert value(rows) == 3 * ONE.sum()


def test_single_numbers_are_data_if_they_are_named() -> None:
    named = [of_data(lambda v, data: pt.sum(v) * data, np.array(number)) for number in (2.0, 3.0)]
    assert named[0].template is named[1].template
    assert [value(each) for each in named] == [6.0, 9.0]
    unnamed = [of_data(lambda v, data, by=by: pt.sum(v) * data * by, ONE) for by in (2.0, 3.0)]
    assert unnamed[0].template != unnamed[1].template


def test_shared_variables_are_data_as_they_are_then() -> None:
    leaf = shared(ONE)
    graph = of_data(lambda v, data: pt.sum(v * data), leaf)
    leaf.set_value(OTHER)
    assert value(graph) == 10.0
    assert graph.template is of_data(lambda v, data: pt.sum(v * data), leaf).template


def test_each_precision_has_a_function_of_its_own() -> None:
    graph = of_data(lambda v, data: pt.sum(v * data * 0.1), ONE)
    for has_x64 in (False, True, False):
        with jax.enable_x64(has_x64):
            assert value(graph).dtype == (jnp.float64 if has_x64 else jnp.float32)
            np.testing.assert_allclose(value(graph), 1.0, rtol=1e-12 if has_x64 else 1e-6)
