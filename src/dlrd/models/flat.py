"""A model from a jax function of one draw, an array."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.checks import shown
from dlrd.models.names import coordinate_names


class FunctionModel:
    """The log density of one draw, of any shape, as a model; equal to others of the same function.

    To jax a model is a tree, whose arrays are its data. Programs take these as arguments, so that models of
    other data of the same shapes share them.

    Args:
        log_density: one draw to a scalar; with data, of these, too.
        shape: of a draw.
        names: of its coordinates; z[0], z[1], … if not given.
        data: a tree of arrays.
    """

    has_gradient = True
    is_exact = True
    can_fail = False

    def __init__(
        self,
        log_density: Callable[..., Float[Array, ""]],
        shape: tuple[int, ...],
        names: tuple[str, ...] | None = None,
        data: Any = None,
    ):
        self._log_density_fn = log_density
        self.shape = shape
        self._given_names = names
        self._data = data

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _register(cls)

    def log_density(self, draw: Float[Array, "..."]) -> Float[Array, ""]:
        """Of one draw."""
        return self.with_data_of(self._log_density_fn)(draw)

    def with_data(self, data: Any) -> Self:
        """The same model of other data."""
        if data is None and self._data is None:
            return self
        other = copy.copy(self)
        other._data = data
        return other

    def with_data_of(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function of one thing, and of the data, if there are any, as one of the former alone."""
        if self._data is None:
            return fn
        data = jax.tree.map(jnp.asarray, self._data)
        return lambda given: fn(given, data)

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
        return hashable(self._log_density_fn), self.shape, self._given_names

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, FunctionModel)
            and self._identity == other._identity
            and _are_same(self._data, other._data)
        )

    def __hash__(self) -> int:
        return hash(self._identity)


def hashable(fn: Any) -> Any:
    """What makes a function the same as another; one that holds arrays and has no hash is only itself."""
    try:
        hash(fn)
    except TypeError:
        return id(fn)
    return fn


def _are_same(one: Any, other: Any) -> bool:
    """Whether data are the very same arrays."""
    leaves, others = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(leaves) == len(others) and all(map(lambda a, b: a is b, leaves, others))


def _register(kind: type[FunctionModel]) -> None:
    """Makes models of this kind trees, whose arrays are their data."""
    jax.tree_util.register_pytree_node(
        kind,
        lambda model: ((model._data,), model.with_data(None)),
        lambda model, children: model.with_data(children[0]),
    )


_register(FunctionModel)


def checked_data(data: Any) -> Any:
    """The data as copies of their arrays, with which users may go on."""
    copies = jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else np.array(leaf), data)
    for leaf in jax.tree.leaves(copies):
        if not jnp.issubdtype(leaf.dtype, jnp.number) and leaf.dtype != bool:
            raise TypeError(f"data must be arrays of numbers, or a tree of them, got {shown(leaf)}")
    return copies


def checked_names(names: Sequence[str] | None, dim: int) -> tuple[str, ...] | None:
    """The names as a tuple, once it is sure that there is one for each coordinate."""
    if names is None:
        return None
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"names must be a sequence of strings, got {shown(names)}")
    if len(set(names)) != dim or len(names) != dim:
        raise ValueError(f"names must be {dim} different ones, one for each coordinate, got {shown(names)}")
    return tuple(names)
