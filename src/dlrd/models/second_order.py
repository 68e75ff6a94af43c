"""The curvature of a model's log density, times vectors: exactly where jax can, else by differences."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.models.protocol import Model

COST = 2
"""Of a product of the Hessian with a vector, in gradients; that of a difference, too."""


def hessian_products(
    model: Model,
    draws: Float[Array, "draw dim"],
    directions: Float[Array, "direction dim"],
    key: Key[Array, ""] | None,
) -> Float[Array, "draw direction dim"]:
    """∇² log p at each draw, times each direction.

    Args:
        model: with gradients.
        draws: one a row.
        directions: likewise.
        key: of the part of the data, as for `Model.values_and_gradients`.
    """

    def slopes(points: Float[Array, "draw dim"]) -> Float[Array, "draw dim"]:
        return model.values_and_gradients(points, key)[1]

    if is_twice_differentiable(model, draws.dtype):
        forward = jax.linearize(slopes, draws)[1]
        products = jax.vmap(lambda row: forward(jnp.broadcast_to(row, draws.shape)))(directions)
        return jnp.swapaxes(products, 0, 1)
    # The cube root balances the rounding of the gradients against the third derivative.
    step = (10 * float(jnp.finfo(draws.dtype).eps)) ** (1 / 3)
    ends = draws[:, None] + step * jnp.stack([directions, -directions])[:, None]
    above, below = slopes(ends.reshape(-1, draws.shape[1])).reshape(ends.shape)
    return (above - below) / (2 * step)


def is_twice_differentiable(model: Model, dtype: jnp.dtype) -> bool:
    """Whether jax can: not if the gradient comes from outside, by a callback or a rule of the user's own."""
    leaves, form = jax.tree.flatten(model)
    shapes = (
        jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if isinstance(leaf, (np.ndarray, jax.Array)) else leaf
        for leaf in leaves
    )
    return _is_twice_differentiable(form, tuple(shapes), dtype)


@functools.lru_cache(maxsize=8)
def _is_twice_differentiable(form: Any, leaves: tuple[Any, ...], dtype: jnp.dtype) -> bool:
    """The same for models of all data of these shapes, which are not kept."""
    point = jax.ShapeDtypeStruct((1, form.unflatten(leaves).dim), dtype)
    data = [leaf for leaf in leaves if isinstance(leaf, jax.ShapeDtypeStruct)]

    def product(points: Array, *data: Array) -> Array:
        rest, key = iter(data), jax.random.key(0)
        model = form.unflatten(
            [next(rest) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf for leaf in leaves]
        )
        return jax.jvp(lambda each: model.values_and_gradients(each, key)[1], (points,), (points,))[1]

    try:
        jax.eval_shape(product, point, *data)
    except Exception:  # of any kind: it is the model's code that fails here
        return False
    return True
