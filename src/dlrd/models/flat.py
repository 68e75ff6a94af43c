"""A model from a jax function of one draw, an array."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from dlrd.checks import shown
from dlrd.models.names import coordinate_names
from dlrd.models.protocol import LogDensity


class FunctionModel:
    """The log density of one draw, of any shape, as a model; equal to others of the same function.

    Args:
        log_density: one draw to a scalar.
        shape: of a draw.
        names: of its coordinates; z[0], z[1], … if not given.
    """

    has_gradient = True
    is_exact = True
    can_fail = False

    def __init__(self, log_density: LogDensity, shape: tuple[int, ...], names: tuple[str, ...] | None = None):
        self.log_density = log_density
        self.shape = shape
        self._given_names = names

    @property
    def dim(self) -> int:
        return math.prod(self.shape)

    @property
    def names(self) -> tuple[str, ...]:
        return self._given_names or coordinate_names(self.shape)

    def values(self, draws: Float[Array, "draw ..."], key: Key[Array, ""] | None) -> Float[Array, " draw"]:
        return jax.vmap(self.log_density)(draws)

    def values_and_gradients(
        self, draws: Float[Array, "draw ..."], key: Key[Array, ""] | None
    ) -> tuple[Float[Array, " draw"], Float[Array, "draw ..."]]:
        both_fn = jax.value_and_grad(self.log_density)
        if len(draws) == 1:  # an axis of length one would slow many operations
            value, gradient = both_fn(draws[0])
            return value[None], gradient[None]
        return jax.vmap(both_fn)(draws)

    def constrained(self, draws: Float[Array, "draw ..."]) -> Any:
        return draws

    def unconstrained(self, variables: Any) -> Float[Array, "draw ..."]:
        return jnp.asarray(variables)

    @property
    def _identity(self) -> tuple[Any, ...]:
        """What makes two models the same; a function that holds arrays and has no hash is only itself."""
        try:
            hash(self.log_density)
        except TypeError:
            return id(self.log_density), self.shape, self._given_names
        return self.log_density, self.shape, self._given_names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionModel) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)


def checked_names(names: Sequence[str] | None, dim: int) -> tuple[str, ...] | None:
    """The names as a tuple, once it is sure that there is one for each coordinate."""
    if names is None:
        return None
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"names must be a sequence of strings, got {shown(names)}")
    if len(set(names)) != dim or len(names) != dim:
        raise ValueError(f"names must be {dim} different ones, one for each coordinate, got {shown(names)}")
    return tuple(names)
