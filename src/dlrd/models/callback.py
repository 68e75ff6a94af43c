"""Calls from compiled programs to NumPy."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental.buffer_callback import buffer_callback
from jaxtyping import Array

OnHost = Callable[..., Sequence[np.ndarray]]
"""Arrays with a leading axis of draws to arrays with the same; double precision in, any out."""


def call_on_host(fn: OnHost, shapes: Sequence[tuple[int, ...]], *arrays: Array) -> Sequence[Array]:
    """What a function of NumPy gives for arrays of one draw, in their precision.

    Under `jax.vmap` it is called once, with all draws.

    Args:
        fn: of many draws; takes and gives a leading axis that `arrays` and `shapes` do not have.
        shapes: of what it gives for one draw.
        arrays: of one draw.
    """
    own = [array.shape for array in arrays]
    results = [jax.ShapeDtypeStruct(shape, arrays[0].dtype) for shape in shapes]

    def on_host(_: Any, outs: Sequence[Any], *given: Any) -> None:
        rows = [
            np.array(np.asarray(each), float).reshape(-1, *shape)
            for each, shape in zip(given, own, strict=True)
        ]
        computed = fn(*rows)
        for out, part, shape in zip(outs, computed, shapes, strict=True):
            if np.shape(part) != (len(rows[0]), *shape):
                wanted = (len(rows[0]), *shape)
                raise ValueError(f"evaluate must give an array of shape {wanted}, got {np.shape(part)}")
            np.asarray(out)[...] = np.reshape(part, out.shape)

    # The buffers themselves, for whose precision and copies the thread of the callback has no setting.
    return buffer_callback(on_host, results, vmap_method="broadcast_all")(*arrays)
