"""The outputs of a program outside jax as a function that jax can differentiate."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dlrd.models.callback import OnHost, call_on_host

OutputsFn = Callable[[Float[Array, " row"]], Float[Array, "..."]]
"""What one draw asks to be run, to the outputs."""


def with_jacobian(evaluate: OnHost, shape: tuple[int, ...], dim: int) -> OutputsFn:
    """Of a function that gives outputs and Jacobians.

    Args:
        evaluate: rows to outputs and Jacobians.
        shape: of the outputs of one draw.
        dim: of the Jacobian; the row may have more numbers, on which the outputs do not depend.
    """

    def both(row: Float[Array, " row"]) -> Any:
        return call_on_host(evaluate, [shape, (*shape, dim)], row)

    @jax.custom_vjp
    def outputs(row: Float[Array, " row"]) -> Float[Array, "..."]:
        return both(row)[0]

    def forward(row: Float[Array, " row"]) -> tuple[Array, tuple[Array, Array]]:
        value, jacobian = both(row)
        # Those of failed draws count for nothing, but nan times nothing would be nan.
        return value, (jnp.where(jnp.isfinite(jacobian), jacobian, 0), jnp.zeros_like(row[dim:]))

    def backward(kept: tuple[Array, Array], sensitivity: Array) -> tuple[Array]:
        jacobian, rest = kept
        sensitivity = jnp.where(jnp.isfinite(sensitivity), sensitivity, 0)
        return (jnp.concatenate([jnp.tensordot(sensitivity, jacobian, len(shape)), rest]),)

    outputs.defvjp(forward, backward)
    return outputs


def with_pullback(evaluate: OnHost, pull: OnHost, shape: tuple[int, ...]) -> OutputsFn:
    """Of functions that give outputs, and pull sensitivities back, in a call of its own.

    Args:
        evaluate: rows to outputs.
        pull: rows and sensitivities to gradients.
        shape: of the outputs of one draw.
    """

    @jax.custom_vjp
    def outputs(row: Float[Array, " row"]) -> Float[Array, "..."]:
        return call_on_host(evaluate, [shape], row)[0]

    def backward(row: Float[Array, " row"], sensitivity: Array) -> tuple[Array]:
        sensitivity = jnp.where(jnp.isfinite(sensitivity), sensitivity, 0)
        gradient = call_on_host(pull, [row.shape], row, sensitivity)[0]
        return (jnp.where(jnp.isfinite(gradient), gradient, 0),)

    outputs.defvjp(lambda row: (outputs(row), row), backward)
    return outputs


def values_alone(evaluate: OnHost, shape: tuple[int, ...]) -> OutputsFn:
    """Of a function that gives outputs; not to be differentiated."""
    return lambda row: call_on_host(evaluate, [shape], row)[0]
