"""PyTensor's graphs as jax functions.

To be imported by `_pymc.py` alone, which knows what importing PyTensor's jax functions does to settings.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc.sampling.jax  # noqa: F401 - tells PyTensor how jax does PyMC's operations
from pytensor.compile import mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.link.jax.dispatch.basic import jax_funcify
from pytensor.tensor.basic import cast
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import tensor


def jaxified(inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[..., Sequence[Any]]:
    """The graph from inputs to outputs as a jax function, its constants in the current precision."""
    shared = [each for each in graph_inputs(outputs) if isinstance(each, SharedVariable)]
    if any(isinstance(each.type, RandomType) for each in shared):
        raise ValueError(
            "the density and the deterministics of the model must follow from its variables and data, got "
            "one that draws random numbers of its own, as from a .dist() without a name"
        )
    constants: Any = {each: each.type.constant_type(each.type, each.get_value()) for each in shared}
    graph = FunctionGraph(list(inputs), clone_replace(list(outputs), constants), clone=True)
    # XLA fuses better without: what PyTensor has fused, it sends through a map of scalars.
    rewriter: Any = mode.JAX.excluding("fusion").optimizer
    rewriter.rewrite(graph)
    for node in graph.toposort():
        widened = _widened(node)
        if widened is not None:
            graph.replace_all(zip(node.outputs, widened, strict=True), reason="whole numbers made wide")
            continue
        product = _product_with_vector(node)
        if product is not None:
            graph.replace(node.outputs[0], product, reason="product with a vector")
    try:
        # Not a part of the program that may be traced just now: it outlives that.
        with jax.ensure_compile_time_eval(), fewer_bits():
            graph_fn = jax_funcify(graph)
    except NotImplementedError as error:
        raise ValueError(
            "the model must have only operations that PyTensor can turn into jax, got "
            f"{str(error).rpartition(': ')[2]}"
        ) from error

    def fn(*values: Any) -> Sequence[Any]:
        with fewer_bits():
            return graph_fn(*values)

    return fn


@contextlib.contextmanager
def fewer_bits() -> Iterator[None]:
    """Graphs ask for float64, for PyMC works with it; in single precision jax would warn at each place."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Explicitly requested dtype", category=UserWarning)
        yield


class VectorDot(Op):
    """A product with a vector as such; PyTensor's is with a matrix of one column, slow for many draws."""

    def make_node(self, *inputs: Any) -> Apply:
        left, right = inputs
        dtype = np.result_type(left.type.dtype, right.type.dtype).name
        return Apply(
            self, [left, right], [tensor(dtype=dtype, shape=left.type.shape[:-1] + right.type.shape[1:])]
        )

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        output_storage[0][0] = np.dot(*inputs)


@jax_funcify.register(VectorDot)
def _(op: VectorDot, **_: Any) -> Any:
    return jnp.dot


def _widened(node: Apply) -> Any:
    """An operation on whole numbers and floats of 32 bits that PyTensor does in 64, and jax alone in 32."""
    if not isinstance(node.op, Elemwise):
        return None
    kinds, wide = [each.type.dtype for each in node.inputs], node.outputs[0].type.dtype
    if wide != "float64" or "float32" not in kinds or "float64" in kinds:
        return None
    return node.op.make_node(*(cast(each, wide) for each in node.inputs)).outputs


def _product_with_vector(node: Apply) -> Any:
    """What a product with a matrix of one column, or one row, gives as a vector: by a product with that."""
    if not isinstance(node.op, DimShuffle) or node.op.augment or not node.op.drop:
        return None
    product = node.inputs[0].owner
    if product is None or not isinstance(product.op, Dot):
        return None
    left, right = product.inputs
    left = _vector(left, 0) if 0 in node.op.drop else left
    right = _vector(right, 1) if 1 in node.op.drop else right
    return None if left is None or right is None else VectorDot()(left, right)


def _vector(matrix: Any, axis: int) -> Any:
    """The vector that the matrix is, with an axis of length one."""
    made = matrix.owner
    if made is None or not isinstance(made.op, DimShuffle) or made.inputs[0].type.ndim != 1:
        return None
    return made.inputs[0] if tuple(made.op.augment) == (axis,) else None
