"""What PyTensor graphs have in common, whatever the numbers of their data."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs, io_toposort
from pytensor.tensor.shape import Reshape
from pytensor.tensor.type import TensorType

from dlrd.models import _pymc


class Template:
    """A graph without the numbers of its data; equal to others of the same operations on the same shapes.

    Args:
        inputs: of the graph.
        outputs: likewise.
        data: constants and shared variables of the graph, which become inputs behind the others.
    """

    def __init__(self, inputs: Sequence[Any], outputs: Sequence[Any], data: Sequence[Any]):
        self._content = _structure([*inputs, *data], outputs)
        self._hash = hash(self._content)  # a long walk, and asked for often
        places = [each.type() for each in data]
        self._inputs = [*inputs, *places]
        self._outputs = clone_replace(list(outputs), dict(zip(data, places, strict=True)))

    def jaxified(self) -> Callable[..., Sequence[Any]]:
        """The graph as a jax function, in the precision of now."""
        return _jaxified(self, _pymc.is_double_precision())

    def translated(self) -> Callable[..., Sequence[Any]]:
        """The same, made anew."""
        return _pymc.jaxified(self._inputs, self._outputs)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Template) and self._content == other._content)

    def __hash__(self) -> int:
        return self._hash


class Parted(NamedTuple):
    """A graph as what it has in common with others, and its data."""

    template: Template
    data: tuple[np.ndarray, ...]


def arrays_of(outputs: Sequence[Any], named: Sequence[Any]) -> list[np.ndarray]:
    """Arrays of numbers in a graph; of those that are single numbers, in whatever shape, the named ones."""
    leaves = [each for each in graph_inputs(outputs) if isinstance(each, (Constant, SharedVariable))]
    numbers = [
        each
        for each in leaves
        if isinstance(each.type, TensorType) and np.dtype(each.type.dtype).kind in "biuf"
    ]
    # Other single numbers are the model's own, as a square's exponent, of which PyTensor makes good use.
    return [_value(each) for each in numbers if np.size(_value(each)) > 1 or each in named]


def parted(
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    arrays: Sequence[np.ndarray],
    shapes: Sequence[tuple[int, ...]],
) -> Parted:
    """A graph and its data, which are none where jax must know their numbers, as those of lengths.

    Args:
        inputs: of the graph.
        outputs: likewise.
        arrays: the very ones that are data, where the graph has them.
        shapes: of the inputs.
    """
    wanted = set(map(id, arrays))
    found = [each for each in _leaves(outputs) if id(_value(each)) in wanted]
    values = tuple(np.array(_value(each)) for each in found)
    template = _first(Template(inputs, outputs, found))
    own = tuple((each.shape, each.dtype) for each in values)
    if found and not _is_traceable(template, tuple(shapes), own, _pymc.is_double_precision()):
        return Parted(_first(Template(inputs, outputs, [])), ())
    return Parted(template, values)


def _leaves(outputs: Sequence[Any]) -> list[Any]:
    """What the graph begins with, in the order in which it comes to them; no lengths of arrays."""
    nodes = io_toposort([], outputs)
    lengths = {node.inputs[1] for node in nodes if isinstance(node.op, Reshape)}
    leaves = dict.fromkeys([each for node in nodes for each in node.inputs] + list(outputs))
    return [each for each in leaves if isinstance(each, (Constant, SharedVariable)) and each not in lengths]


def _value(leaf: Any) -> Any:
    return leaf.get_value(borrow=True) if isinstance(leaf, SharedVariable) else leaf.data


def _structure(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
    """What is done with the inputs: one operation after another, each with the places of what it takes."""
    places: dict[Any, Any] = {each: place for place, each in enumerate(inputs)}

    def place(variable: Any) -> Any:
        if variable not in places:  # a constant that is no data: by its number
            places[variable] = variable.signature() if isinstance(variable, Constant) else variable
        return places[variable]

    rows = []
    for node in io_toposort(inputs, outputs):
        types = tuple(each.type for each in node.outputs)
        rows.append((node.op, tuple(map(place, node.inputs)), types))
        places.update({each: len(places) + number for number, each in enumerate(node.outputs)})
    return tuple(each.type for each in inputs), tuple(rows), tuple(map(place, outputs))


@functools.lru_cache(maxsize=32)
def _first(template: Template) -> Template:
    """The first of equal ones, so that comparing them is quick."""
    return template


@functools.lru_cache(maxsize=32)
def _jaxified(template: Template, has_x64: bool) -> Callable[..., Sequence[Any]]:
    """Made once for graphs of other data; for each precision, in which it keeps its constants."""
    return template.translated()


@functools.lru_cache(maxsize=32)
def _is_traceable(template: Template, shapes: Any, data: Any, has_x64: bool) -> bool:
    """Whether jax can trace the graph without the numbers of its data."""
    inputs = [jax.ShapeDtypeStruct(shape, jnp.zeros(0).dtype) for shape in shapes]
    try:
        jax.eval_shape(template.jaxified(), *inputs, *(jax.ShapeDtypeStruct(*each) for each in data))
    except Exception:  # of any kind: PyTensor and the model's own operations may raise what they like
        return False
    return True
