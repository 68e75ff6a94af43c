"""Eight doubles as one value in compiled code.

Numba turns long loops into vector instructions, but neither a loop over eight lanes, which it unrolls first,
nor eight scalars side by side. So the vectors are spelled out here, and LLVM maps them to whatever width the
processor has.
"""

import operator
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import extending
from numba.core import cgutils, types
from numba.core.datamodel import models, register_default

NUM_LANES = 8
"""The doubles of one 512-bit vector."""

compiled = numba.njit(cache=True, fastmath={"contract"}, error_model="numpy", nogil=True)

_intrinsic: Any = extending.intrinsic  # which does not tell type checkers that callers leave out the context
_VECTOR = ir.VectorType(ir.DoubleType(), NUM_LANES)


class _Lanes(types.Type):
    """Numba's type of such a value."""


_LANES = _Lanes("Lanes")


@register_default(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: Any) -> None:
        super().__init__(manager, numba_type, _VECTOR)


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    (array_type, index_type), (array, index) = signature.args[:2], arguments[:2]
    is_tuple = isinstance(index_type, types.BaseTuple)
    indices = cgutils.unpack_tuple(builder, index) if is_tuple else [index]
    first_lane = context.get_constant(types.intp, 0)
    array = context.make_array(array_type)(context, builder, array)
    pointer = cgutils.get_item_pointer(context, builder, array_type, array, [*indices, first_lane])
    return builder.bitcast(pointer, _VECTOR.as_pointer())


@_intrinsic
def load(_: Any, array: Any, index: Any) -> Any:
    """`array[index]`, whose last axis holds the lanes."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_pointer(context, builder, signature, arguments), align=8)

    return _LANES(array, index), build


@_intrinsic
def store(_: Any, array: Any, index: Any, value: Any) -> Any:
    """`array[index] = value`, the last axis of `array` holding the lanes."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _pointer(context, builder, signature, arguments), align=8)
        return context.get_dummy_value()

    return types.void(array, index, _LANES), build


def _extend(function: Callable[[Any, Any], Any], instruction: str) -> None:
    """Lets `function` take lanes, and numbers as the same in all lanes."""

    @_intrinsic
    def emit(_: Any, a: Any, b: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vectors = [
                value if of_type is _LANES else _spread(builder, value)
                for of_type, value in zip(signature.args, arguments, strict=True)
            ]
            return getattr(builder, instruction)(*vectors, flags=["contract"])

        return _LANES(a, b), build

    @extending.overload(function)
    def implementation(a, b):
        if {a, b} in ({_LANES}, {_LANES, types.float64}):
            return lambda a, b: emit(a, b)
        return None


def _spread(builder: Any, number: Any) -> Any:
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    zero = ir.IntType(32)(0)
    first = builder.insert_element(undefined, number, zero)
    zeros = ir.Constant(ir.VectorType(zero.type, NUM_LANES), None)
    return builder.shuffle_vector(first, undefined, zeros)


_extend(operator.add, "fadd")
_extend(operator.sub, "fsub")
_extend(operator.mul, "fmul")
_extend(operator.truediv, "fdiv")


@compiled
def empty_lanes(num):
    """Room for `num` values, none of them across a boundary of cache lines, which would take two accesses."""
    numbers = np.empty((num + 1) * NUM_LANES)
    start = -numbers.ctypes.data % (8 * NUM_LANES) // 8
    return numbers[start : start + num * NUM_LANES].reshape(num, NUM_LANES)
