"""A model from a NumPyro model."""

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from numpyro import handlers
from numpyro.infer import Predictive, log_likelihood
from numpyro.infer.util import constrain_fn, unconstrain_fn
from numpyro.primitives import Messenger

from dlrd.checks import shown
from dlrd.models.flat import FunctionModel
from dlrd.models.names import free_names
from dlrd.models.numpyro_template import fingerprint, is_data, looked_at

BATCH_SIZE = 100
"""Draws that are taken through the model at a time."""


class NumPyroModel(FunctionModel):
    """A NumPyro model with its data; equal to others of the same function and the same data.

    Arrays among the arguments are data, which programs take as arguments of their own, unless the model looks
    at their numbers as it runs.

    A draw holds the unconstrained values of the latent sites, in the order of their names, as NumPyro's own
    samplers have them. The log density is NumPyro's, with the Jacobians of the supports.

    Args:
        model: a function with NumPyro's primitives.
        args: its arguments, of which arrays are copied.
        kwargs: likewise.
    """

    def __init__(self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]):
        leaves, form = jax.tree.flatten((args, kwargs))
        # Users may go on with their arrays.
        leaves = [each.copy() if isinstance(each, np.ndarray) else each for each in leaves]
        try:
            found = looked_at(model, form, leaves, is_data)
        except Exception:  # of any kind: it may be a model that looks at the numbers of its data
            found = looked_at(model, form, leaves, lambda leaf: False)
        self._template, data, self.sites, values = found
        self.model = model
        if values.params:
            warnings.warn(
                f"param sites are not fitted, and {', '.join(values.params)} will stay as at the start, "
                "as in NumPyro's samplers.",
                stacklevel=3,
            )
        self._params = values.params
        self._shapes, self._potential_fn = self._template.potential(data, values.params)
        sizes = [math.prod(shape) for shape in self._shapes.values()]
        self._starts = dict(zip(self._shapes, np.cumsum([0, *sizes]).tolist(), strict=False))
        names = tuple(
            each
            for name, shape in self._shapes.items()
            for each in free_names(shape, name, self.sites.latent[name])
        )
        super().__init__(self.log_density, (sum(sizes),), names, data or None)
        self.dims, self.coords = self.sites.dims, self.sites.coords
        self.observed_data = {name: np.asarray(value) for name, value in values.observed.items()}
        own_args, own_kwargs = form.unflatten(leaves)
        self.constant_data = _constants(model, own_args, own_kwargs, self.observed_data)

    def log_density(self, draw: Float[Array, " dim"]) -> Float[Array, ""]:
        args, kwargs = self._arguments
        return -self._potential_fn(*args, **kwargs)(self.unraveled(draw))

    def constrained(self, draws: Float[Array, "draw dim"]) -> dict[str, Array]:
        """The latent and the deterministic sites."""
        found = self._each("_variables", draws)
        return {name: found[name] for name in self.sites.variables}

    def unconstrained(self, variables: dict[str, Any]) -> Float[Array, "draw dim"]:
        """The draws that give these latent sites; others that are given do not count."""
        return self._each("_coordinates", {name: jnp.asarray(variables[name]) for name in self._shapes})

    def predictions(self, draws: Float[Array, "draw dim"], key: Key[Array, ""]) -> dict[str, Array]:
        """Data by NumPyro's `Predictive`; those that are given are not looked at."""
        found = self._each("_predicted", (draws, jax.random.split(key, len(draws))))
        return {name: found[name] for name in self.sites.observed}

    def log_likelihood(self, draws: Float[Array, "draw dim"]) -> dict[str, Array]:
        """By NumPyro's `log_likelihood`; none where discrete sites are summed over."""
        if self.sites.discrete:
            return {}
        found = self._each("_log_likelihood", draws)
        return {name: found[name] for name in self.sites.observed}

    def chain_starts(self, draws: Float[Array, "chain dim"]) -> dict[str, Array]:
        """As `MCMC.run` takes them for `init_params`: for a single chain without the axis of chains."""
        return self.unraveled(draws[0]) if len(draws) == 1 else jax.vmap(self.unraveled)(draws)

    def reparameterization(self, coordinates: Sequence[int]) -> str | None:
        """The call of `handlers.reparam` that decentres the sites of these coordinates, where one does."""
        ends = {name: start + math.prod(self._shapes[name]) for name, start in self._starts.items()}
        config = ", ".join(
            f'"{name}": {code}'
            for name, code in self.sites.decentrings.items()
            if any(self._starts[name] <= each < ends[name] for each in coordinates)
        )
        return f"numpyro.handlers.reparam(model, config={{{config}}})" if config else None

    def unraveled(self, draw: Float[Array, " dim"]) -> dict[str, Array]:
        """The unconstrained values of the latent sites in one draw."""
        return {
            name: draw[start : start + math.prod(self._shapes[name])].reshape(self._shapes[name])
            for name, start in self._starts.items()
        }

    def trace(self, draw: Float[Array, " dim"]) -> dict[str, Any]:
        """NumPyro's record of the model where the latent sites are those of one draw."""
        at_draw = handlers.substitute(self._seeded, data=self._latent(draw))
        return dict(handlers.trace(at_draw).get_trace())

    def _each(self, method: str, rows: Any) -> Any:
        """A method of one draw for all, a batch at a time."""
        data, form = jax.tree.flatten(self)
        return _mapped(form, method)(data, rows)

    def _variables(self, draw: Float[Array, " dim"]) -> dict[str, Array]:
        return constrain_fn(self._seeded, (), {}, self.unraveled(draw), return_deterministic=True)

    def _coordinates(self, variables: dict[str, Array]) -> Float[Array, " dim"]:
        with warnings.catch_warnings():  # said before, when the model was made
            warnings.simplefilter("ignore")
            found = unconstrain_fn(self._seeded, (), {}, variables)
        return jnp.concatenate([found[name].reshape(-1) for name in self._shapes])

    def _predicted(self, row: tuple[Float[Array, " dim"], Key[Array, ""]]) -> dict[str, Array]:
        draw, key = row
        wanted = list(self.sites.observed)
        return Predictive(Unobserved(self._bound), self._latent(draw), batch_ndims=0, return_sites=wanted)(
            key
        )

    def _log_likelihood(self, draw: Float[Array, " dim"]) -> dict[str, Array]:
        return log_likelihood(self._seeded, self._latent(draw), batch_ndims=0)

    def _latent(self, draw: Float[Array, " dim"]) -> dict[str, Array]:
        found = self._variables(draw)
        return {name: found[name] for name in self._shapes}

    @property
    def _seeded(self) -> Callable[[], Any]:
        """For what is random beside the latent sites; a seed counts its calls, so that each is a new one."""
        return handlers.seed(self._bound, jax.random.key(0))

    @property
    def _arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the model is called with."""
        return self._template.arguments(jax.tree.map(jnp.asarray, self._data or ()))

    @property
    def _bound(self) -> Callable[[], Any]:
        args, kwargs = self._arguments
        return handlers.substitute(functools.partial(self.model, *args, **kwargs), data=self._params)

    @property
    def _identity(self) -> tuple[Any, ...]:
        return self._template, tuple(map(fingerprint, jax.tree.leaves(self._params)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, NumPyroModel)
            and self._identity == other._identity
            and self._contents == other._contents
        )

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _contents(self) -> tuple[Any, ...]:
        return tuple(map(fingerprint, jax.tree.leaves(self._data)))


class Unobserved(Messenger):
    """A model whose data are drawn, whatever it was given; in `scan`, too."""

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "control_flow":
            msg["args"] = tuple(Unobserved(each) if callable(each) else each for each in msg["args"])
        elif msg["type"] == "sample" and msg["is_observed"]:
            msg["is_observed"], msg["value"] = False, None


def numpyro(model: Callable[..., Any], *args: Any, **kwargs: Any) -> NumPyroModel:
    """A model from a NumPyro model, with the arguments that it is called with.

    Draws, summaries, plots and reports then carry the names, shapes and plates of its sites, on their own
    scale, deterministic sites included. Supports are those that NumPyro can transform. Discrete latent sites
    are summed over, where NumPyro can do that.

    Args:
        model: a function with NumPyro's primitives.
        *args: its arguments.
        **kwargs: its arguments by name.

    Example:
        >>> import dlrd, jax.numpy as jnp, numpyro, numpyro.distributions as dist
        >>> def weights(y):
        ...     mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
        ...     sigma = numpyro.sample("sigma", dist.HalfNormal(5.0))
        ...     numpyro.sample("y", dist.Normal(mean, sigma), obs=y)
        >>> fit = dlrd.fit(dlrd.models.numpyro(weights, jnp.array([2.1, 3.4, 2.9, 3.0])), progress=False)
        >>> fit.outcome.name, fit.names, sorted(fit.sample(0, 1000))
        ('CERTIFIED', ('mean', 'log sigma'), ['mean', 'sigma'])
    """
    if not callable(model):
        raise TypeError(f"model must be a function with NumPyro's primitives, got {shown(model)}")
    return NumPyroModel(model, args, kwargs)


@functools.lru_cache(maxsize=8)
def _mapped(form: Any, method: str) -> Callable[[Any, Any], Any]:
    """A method of one draw as a program of the data and of many draws, for models of one form."""

    def mapped(data: Any, rows: Any) -> Any:
        return jax.lax.map(getattr(form.unflatten(data), method), rows, batch_size=BATCH_SIZE)

    return jax.jit(mapped)


def _constants(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], observed: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The arrays among the arguments that are not what the likelihood is of, under the names of these."""
    try:
        arguments = inspect.signature(model).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # a callable that does not say what it takes
        arguments = {"args": args, **kwargs}
    leaves = jax.tree_util.tree_flatten_with_path(dict(arguments))[0]
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf)
        for path, leaf in leaves
        if isinstance(leaf, (np.ndarray, jax.Array))
        and not any(_is_same(np.asarray(leaf), data) for data in observed.values())
    }


def _is_same(given: np.ndarray, data: np.ndarray) -> bool:
    """Whether an argument is what became data, in jax's precision; what is missing there is nan."""
    if given.shape != data.shape:
        return False
    is_float = data.dtype.kind == "f" and given.dtype.kind == "f"
    return np.array_equal(given.astype(data.dtype), data, equal_nan=is_float)
