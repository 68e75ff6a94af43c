"""What all rules share: argument checks, and the step that a rate makes of a direction."""

from collections.abc import Callable
from numbers import Real
from typing import Any, cast

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, PyTree

NO_PARAMS_MESSAGE = (
    "You are using a transformation that requires the current value of parameters, but you are not "
    "passing `params` when calling `update`."
)


def check_learning_rate(value: ArrayLike) -> None:
    if isinstance(value, Real) and not 0 < cast("float", value) < float("inf"):
        raise ValueError(f"learning_rate must be a positive number, got {value}; 1e-2 is a usual start")


def scalar(value: ArrayLike) -> Float[Array, ""]:
    """A copy in the default float type: the state shares neither types nor buffers with the caller."""
    return jnp.array(value, dtype=float)


def transformation(
    init_fn: Callable[..., Any],
    update_fn: Callable[..., tuple[optax.Updates, Any]],
) -> optax.GradientTransformation:
    """The two functions as a transformation; each rule's own type of state is fine there."""
    return optax.GradientTransformation(init_fn, update_fn)


def apply_rate(updates: optax.Updates, learning_rate: Float[Array, ""]) -> optax.Updates:
    """−rate · direction, each leaf in its own type; leaves that cannot be scaled stay as they are."""

    def scale(direction: Any) -> Any:
        if not jnp.issubdtype(jnp.result_type(direction), jnp.inexact):
            return direction
        direction = jnp.asarray(direction)
        return jnp.asarray(-learning_rate, direction.dtype) * direction

    return jax.tree.map(scale, updates)


def inner(left: PyTree, right: PyTree) -> Float[Array, ""]:
    """⟨left, right⟩ over the real and complex leaves of two trees of one structure."""
    terms = [
        jnp.sum(_scalar_product(jnp.asarray(a), jnp.asarray(b)))
        for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
        if jnp.issubdtype(jnp.result_type(a), jnp.inexact)
    ]
    return scalar(sum(terms))


def _scalar_product(a: Array, b: Array) -> Array:
    """Elementwise products whose sum is the real inner product, at least in single precision."""
    wide = jnp.promote_types(jnp.promote_types(a.dtype, b.dtype), jnp.float32)
    return jnp.real(jnp.conj(a.astype(wide)) * b.astype(wide))
