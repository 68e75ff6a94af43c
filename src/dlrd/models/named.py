"""A model from a jax function of named variables, each with a support of its own."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dlrd.checks import shown
from dlrd.models.flat import FunctionModel, hashable
from dlrd.models.names import free_names
from dlrd.models.supports import Support, real

NamedLogDensity = Callable[[dict[str, Array]], Float[Array, ""]]
"""The unnormalised log density of named variables, on their natural scale, written with jax."""


class NamedModel(FunctionModel):
    """The log density of named variables as a model of the free numbers behind them.

    `log_density` is that of one vector of free numbers, with the Jacobians of their maps.

    Args:
        log_density: a dict of variables to a scalar.
        supports: of the variables, in the order of the free numbers.
        dims: names of axes, by variable.
        coords: labels along axes.
        data: a tree of arrays, which `log_density` then takes, too.
    """

    def __init__(
        self,
        log_density: Callable[..., Float[Array, ""]],
        supports: dict[str, Support],
        dims: dict[str, tuple[str, ...]],
        coords: dict[str, np.ndarray],
        data: Any = None,
    ):
        sizes = [math.prod(support.free_shape) for support in supports.values()]
        names = [
            name
            for variable, support in supports.items()
            for name in free_names(support.free_shape, variable, support.word)
        ]
        super().__init__(log_density, (sum(sizes),), tuple(names), data)
        self.supports = supports
        self.dims = dims
        self.coords = coords
        self._ends = tuple(np.cumsum(sizes).tolist())

    def constrained(self, draws: Float[Array, "draw dim"]) -> dict[str, Array]:
        variables = jax.vmap(self._variables)(draws)
        return {name: variables[name] for name in self.supports}  # jax sorts them

    def unconstrained(self, variables: Mapping[str, Any]) -> Float[Array, "draw dim"]:
        _check_same("variables", variables, self.supports)
        arrays = {name: jnp.asarray(variables[name], dtype=float) for name in self.supports}
        for name, support in self.supports.items():
            if arrays[name].shape[1:] != support.shape:
                raise ValueError(
                    f"{name} must have draws of shape {support.shape} in its first axis, "
                    f"got an array of shape {arrays[name].shape}"
                )
        parts = [jax.vmap(support.inverse)(arrays[name]) for name, support in self.supports.items()]
        return jnp.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)

    def log_density(self, draw: Float[Array, " dim"]) -> Float[Array, ""]:
        log_dets = [support.log_det(part) for support, part in self._parts(draw)]
        return self.with_data_of(self._log_density_fn)(self._variables(draw)) + sum(log_dets)

    def _variables(self, free: Float[Array, " dim"]) -> dict[str, Array]:
        values = [support.forward(part) for support, part in self._parts(free)]
        return dict(zip(self.supports, values, strict=True))

    def _parts(self, free: Float[Array, " dim"]) -> list[tuple[Support, Array]]:
        """The free numbers of each variable, in the shape that its support takes."""
        supports = list(self.supports.values())
        parts = jnp.split(free, self._ends[:-1])
        return [
            (support, part.reshape(support.free_shape)) for support, part in zip(supports, parts, strict=True)
        ]

    @property
    def _identity(self) -> tuple[Any, ...]:
        return hashable(self._log_density_fn), tuple(self.supports.items())


def named_model(
    log_density: Any,
    variables: Mapping[str, Any],
    dims: Mapping[str, Any] | None,
    coords: Any,
    data: Any = None,
) -> NamedModel:
    """The model, once it is sure that all goes together."""
    if not variables or not all(isinstance(name, str) for name in variables):
        raise TypeError(
            f'variables must be as {{"mu": (), "sigma": dlrd.positive()}}, got {shown(variables)}'
        )
    supports = {name: _support(name, given) for name, given in variables.items()}
    axes = {name: _axes(name, given, supports) for name, given in (dims or {}).items()}
    labels = {dim: np.asarray(given) for dim, given in (coords or {}).items()}
    sizes: dict[str, tuple[int, str]] = {}
    for name, own in axes.items():
        for dim, size in zip(own, supports[name].shape, strict=True):
            if sizes.setdefault(dim, (size, name))[0] != size:
                length, other = sizes[dim]
                raise ValueError(
                    f"dims of one name must have one length, got {dim} with {length} in {other} "
                    f"and {size} in {name}"
                )
    for dim, given in labels.items():
        if dim not in sizes:
            raise ValueError(f"coords must be of axes that dims names, got labels for {dim}")
        if given.shape != sizes[dim][:1]:
            raise ValueError(
                f"coords of {dim} must be {sizes[dim][0]} labels, as {sizes[dim][1]} has there, "
                f"got an array of shape {given.shape}"
            )
    _check_log_density(log_density if data is None else lambda v: log_density(v, data), supports)
    return NamedModel(log_density, supports, axes, labels, data)


def _support(name: str, given: Any) -> Support:
    if isinstance(given, Support):
        return given
    if isinstance(given, tuple):
        return real(given)
    raise TypeError(
        f"{name} must have a shape, as () or (31,), or a support, as dlrd.positive(); got {shown(given)}"
    )


def _axes(name: str, given: Any, supports: dict[str, Support]) -> tuple[str, ...]:
    if name not in supports:
        raise ValueError(f"dims must be of the variables {', '.join(supports)}, got {shown(name)}")
    dims = (given,) if isinstance(given, str) else tuple(given)
    taken = [dim for dim in dims if dim in (*supports, "chain", "draw") or dims.count(dim) > 1]
    if taken:
        raise ValueError(
            f"dims of {name} must have names of their own, unlike variables, chain and draw, and each once; "
            f"got {taken[0]}"
        )
    if len(dims) != len(supports[name].shape):
        raise ValueError(
            f"dims of {name} must name each axis of its shape {supports[name].shape}, got {shown(given)}"
        )
    return dims


def _check_same(what: str, given: Any, supports: dict[str, Support]) -> None:
    if not isinstance(given, Mapping) or set(given) != set(supports):
        got = ", ".join(map(str, given)) if isinstance(given, Mapping) else shown(given)
        raise ValueError(f"{what} must be a dict of {', '.join(supports)}, got {got}")


def _check_log_density(log_density: Any, supports: dict[str, Support]) -> None:
    """Traces it once, so that what is wrong is said in terms of the variables."""
    variables = {
        name: jax.ShapeDtypeStruct(support.shape, jnp.zeros(()).dtype) for name, support in supports.items()
    }
    shapes = ", ".join(f"{name} {support.shape}" for name, support in supports.items())
    try:
        given = jax.eval_shape(log_density, variables)
    except KeyError as error:
        raise ValueError(
            f"log_density asked for {error}, which is not among the variables {', '.join(supports)}"
        ) from error
    except Exception as error:
        reason: Sequence[str] = str(error).splitlines() or [type(error).__name__]
        raise ValueError(f"log_density failed on variables of shapes {shapes}: {reason[0]}") from error
    if not isinstance(given, jax.ShapeDtypeStruct):
        raise TypeError(f"log_density must return one number, got {shown(given)}")
    if given.shape != ():
        raise ValueError(f"log_density must return one number, got an array of {given.shape}; sum it up")
