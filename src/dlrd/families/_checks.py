"""Checks of the arrays that a normal family is made of."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike


def float_array(name: str, value: ArrayLike) -> Array:
    """The value as an array of jax. What is on the host is copied there, without a program to be compiled."""
    is_traced = any(
        isinstance(leaf, Tracer) or hasattr(leaf, "__jax_array__") for leaf in jax.tree.leaves(value)
    )
    if is_traced and not isinstance(value, jax.Array):
        value = jnp.asarray(value)
    array = value if isinstance(value, jax.Array) else np.array(value)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise TypeError(f"{name} must be real, got an array of type {array.dtype}")
    if not jnp.issubdtype(array.dtype, jnp.floating):
        array = array.astype(float)
    return array if isinstance(array, jax.Array) else jax.device_put(array)


def check_vector(name: str, array: Array) -> None:
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a vector with at least one entry, got shape {array.shape}")


def check_shape(name: str, array: Any, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape} to go with loc, got {array.shape}")


def is_concrete(array: Array) -> bool:
    return not isinstance(array, Tracer)
