"""Standard normal noise, drawn once."""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Key


def standard_noise(key: Key[Array, ""], shape: tuple[int, ...], dtype: DTypeLike) -> Float[Array, "..."]:
    """Independent N(0, 1), as `jax.random.normal`.

    XLA would draw them anew in each expression that uses them, at the cost of all the rest of a step. What a
    condition gives it writes out once; the barrier hides that this condition always holds.
    """
    return jax.lax.cond(
        jax.lax.optimization_barrier(jnp.asarray(True)),
        lambda: jax.random.normal(key, shape, dtype),
        lambda: jnp.zeros(shape, dtype),
    )


def standard_log_prob(noise: Float[Array, "*batch size"]) -> Float[Array, "*batch"]:
    """The log density of N(0, I)."""
    return -0.5 * jnp.sum(noise**2, axis=-1) - 0.5 * noise.shape[-1] * jnp.log(2 * jnp.pi)
