"""A model outside jax: compiled steps call back for it."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.checks import check_count, shown
from dlrd.models.callback import call_on_host
from dlrd.models.flat import checked_names
from dlrd.models.names import coordinate_names

Evaluate = Callable[[Float[np.ndarray, "draw dim"]], Any]
"""A batch of draws to their log densities, or to these and their gradients; NumPy in, NumPy out."""


class HostModel:
    """A function of a batch of draws, in NumPy; a draw that fails is nan there, and left out.

    Args:
        evaluate: the draws to values and gradients, or to values alone.
        dim: the numbers of a draw.
        names: of the coordinates.
        has_gradient: whether `evaluate` gives gradients.
    """

    is_exact = True
    can_fail = True

    def __init__(self, evaluate: Evaluate, dim: int, names: tuple[str, ...], has_gradient: bool):
        self.evaluate = evaluate
        self.dim = dim
        self.names = names
        self.has_gradient = has_gradient

    def values(self, draws: Float[Array, "draw dim"], key: Key[Array, ""] | None) -> Float[Array, " draw"]:
        return _differentiable_values(self, draws) if self.has_gradient else self._called(draws)[0]

    def values_and_gradients(
        self, draws: Float[Array, "draw dim"], key: Key[Array, ""] | None
    ) -> tuple[Float[Array, " draw"], Float[Array, "draw dim"]]:
        values, gradients = self._called(draws)
        return values, gradients

    def constrained(self, draws: Float[Array, "draw dim"]) -> Float[Array, "draw dim"]:
        return draws

    def unconstrained(self, variables: Any) -> Float[Array, "draw dim"]:
        return jnp.asarray(variables)

    def _called(self, draws: Float[Array, "draw dim"]) -> Sequence[Array]:
        """What the host gives, in the precision of the draws."""
        shapes = [(), (self.dim,)][: 1 + self.has_gradient]
        return jax.vmap(functools.partial(call_on_host, self._on_host, shapes))(draws)

    def _on_host(self, draws: Float[np.ndarray, "draw dim"]) -> Sequence[np.ndarray]:
        given = self.evaluate(draws)
        return given if self.has_gradient else [given]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiable_values(model: HostModel, draws: Float[Array, "draw dim"]) -> Float[Array, " draw"]:
    return model._called(draws)[0]


def _forward(model: HostModel, draws: Float[Array, "draw dim"]) -> tuple[Array, Array]:
    values, gradients = model._called(draws)
    # Those of failed draws count for nothing, but nan times nothing would be nan.
    return values, jnp.where(jnp.isfinite(gradients), gradients, 0)


def _backward(model: HostModel, gradients: Array, weights: Array) -> tuple[Array]:
    return (weights[:, None] * gradients,)


_differentiable_values.defvjp(_forward, _backward)


def host(
    evaluate: Evaluate, dim: int, *, names: Sequence[str] | None = None, has_gradient: bool = True
) -> HostModel:
    """A model from a NumPy function of many draws, for log densities that are not written with jax.

    The compiled steps call it back with all draws of a step at once. Draws that come back as nan count as
    failed, and are left out of that step.

    Args:
        evaluate: an array of shape (draws, `dim`) to the log densities, and, with `has_gradient`, their
            gradients, as arrays of shapes (draws,) and (draws, `dim`).
        dim: how many numbers a draw has.
        names: one for each; z[0], z[1], … if not given.
        has_gradient: whether `evaluate` gives gradients. Without, fits take `dlrd.score_function`.

    Example:
        >>> import dlrd
        >>> model = dlrd.models.host(lambda z: (-0.5 * (z**2).sum(axis=1), -z), 2)
        >>> fit = dlrd.fit(model, progress=False)
        >>> fit.outcome.name
        'CERTIFIED'
    """
    if not callable(evaluate):
        raise TypeError(f"evaluate must be a function of an array of draws, got {shown(evaluate)}")
    check_count("dim", dim)
    return HostModel(evaluate, dim, checked_names(names, dim) or coordinate_names((dim,)), has_gradient)
