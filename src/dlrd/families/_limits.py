"""How far one step may change a normal: beyond, the geometry it was computed with no longer holds."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

MAX_CHANGE = 0.5
"""Of a mean in standard deviations, of a log standard deviation, and the norm of a change of the root."""
MAX_STRETCH = 20.0
"""Of the logarithm of a scale, where a family is extrapolated."""


def limited(step: Float[Array, "..."]) -> Float[Array, "..."]:
    """The step with no entry beyond the limit."""
    return jnp.clip(step, -MAX_CHANGE, MAX_CHANGE)


def limited_norm(step: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """The step with a norm within the limit: I + step then has no eigenvalue near zero."""
    largest = jnp.maximum(jnp.max(jnp.abs(step)), MAX_CHANGE)  # taken out, so that squares do not overflow
    scaled = step / largest
    return scaled * jnp.minimum(largest, MAX_CHANGE / jnp.maximum(jnp.linalg.norm(scaled), 1e-30))


def limited_stretch(stretch: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " dim"]:
    """The change of the logarithms of scales, on the host, with none beyond what numbers can hold."""
    return np.clip(stretch, -MAX_STRETCH, MAX_STRETCH)
