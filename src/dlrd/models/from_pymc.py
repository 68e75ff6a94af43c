"""A model from a PyMC model."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from jaxtyping import Array, Float, Key
from pymc.backends.arviz import find_constants, find_observations
from pytensor.graph.replace import clone_replace

from dlrd.checks import shown
from dlrd.models import _pymc
from dlrd.models.flat import FunctionModel
from dlrd.models.names import free_names

BATCH_SIZE = 100
"""Draws that are taken through the model at a time."""
_WORDS = {"log": "log", "logodds": "logit"}
"""What some of PyMC's transforms are called; most others have no word that says what they do."""


class PyMCModel(FunctionModel):
    """A PyMC model with its data as they are now; later changes of either are not seen.

    A draw holds the values that PyMC's own samplers move, variable by variable in the order of the model. The
    log density is PyMC's, with the Jacobians of its transforms.

    Args:
        model: the model.
    """

    def __init__(self, model: pm.Model):
        self.model = _pymc.frozen(model)
        # The copy has an order of its own.
        self._variables: list[Any] = [self.model[each.name] for each in model.free_RVs]
        self._deterministics: list[Any] = [self.model[each.name] for each in model.deterministics]
        self._values = [self.model.rvs_to_values[each] for each in self._variables]
        self._transforms = [self.model.rvs_to_transforms[each] for each in self._variables]
        self._shapes = list(map(_free_shape, self._variables, self._transforms))
        names = tuple(
            name
            for variable, transform, shape in zip(
                self._variables, self._transforms, self._shapes, strict=True
            )
            for name in free_names(shape, variable.name, _word(variable, transform))
        )
        super().__init__(self.log_density, (len(names),), names)
        self.dims = {name: tuple(map(str, axes)) for name, axes in self.model.named_vars_to_dims.items()}
        self.coords = {
            name: np.array(labels) for name, labels in self.model.coords.items() if labels is not None
        }
        self.observed_data: dict[str, np.ndarray] = find_observations(self.model)
        self.constant_data: dict[str, np.ndarray] = find_constants(self.model)
        self._functions: dict[tuple[str, bool], Callable[..., Sequence[Any]]] = {}

    def constrained(self, draws: Float[Array, "draw dim"]) -> dict[str, Array]:
        """The free variables and the deterministics, on their natural scale."""
        found = _mapped(self, "constrained")(draws)
        return dict(zip(_names(self._variables + self._deterministics), found, strict=True))

    def unconstrained(self, variables: dict[str, Any]) -> Float[Array, "draw dim"]:
        """The draws that give these free variables; others that are given do not count."""
        given = tuple(jnp.asarray(variables[name], float) for name in _names(self._variables))
        found = _mapped(self, "unconstrained")(given)
        return jnp.concatenate([part.reshape(len(part), -1) for part in found], axis=1)

    def log_likelihood(self, draws: Float[Array, "draw dim"]) -> dict[str, Array]:
        names = _names(self.model.observed_RVs)
        return dict(zip(names, _mapped(self, "log_likelihood")(draws), strict=True)) if names else {}

    def predictions(self, draws: Float[Array, "draw dim"], key: Key[Array, ""]) -> dict[str, np.ndarray]:
        """Data by PyMC's `sample_posterior_predictive`."""
        seed = int(jax.random.bits(key, dtype=jnp.uint32))
        return _pymc.predicted(self.model, self.chain_starts(draws), seed)

    def chain_starts(self, draws: Float[Array, "chain dim"]) -> list[dict[str, np.ndarray]]:
        """As `pm.sample` takes them for `initvals`: the free variables on their natural scale."""
        found = self.constrained(draws)
        arrays = {name: np.asarray(found[name], float) for name in _names(self._variables)}
        return [{name: values[i] for name, values in arrays.items()} for i in range(len(draws))]

    def each(self, name: str, given: Any) -> list[Array]:
        """What the function of that name gives for one draw, or for the variables of one."""
        values = given if isinstance(given, tuple) else self._parts(given)
        return [jnp.asarray(value) for value in self._function(name)(*values)]

    def log_density(self, draw: Float[Array, " dim"]) -> Float[Array, ""]:
        return self._function("log_density")(*self._parts(draw))[0]

    def _parts(self, draw: Float[Array, " dim"]) -> list[Array]:
        """The draw as PyMC's value variables."""
        sizes = [math.prod(shape) for shape in self._shapes]
        pieces = jnp.split(draw, np.cumsum(sizes)[:-1])
        return [piece.reshape(shape) for piece, shape in zip(pieces, self._shapes, strict=True)]

    def _function(self, name: str) -> Callable[..., Sequence[Any]]:
        """The jax function of that name, which keeps the data in the precision in which it was made."""
        wanted = name, _pymc.is_double_precision()
        if wanted not in self._functions:
            self._functions[wanted] = _pymc.jaxified(*self._graph(name))
        return self._functions[wanted]

    def _graph(self, name: str) -> tuple[Sequence[Any], Sequence[Any]]:
        """The inputs and outputs of the function of that name."""
        if name == "unconstrained":
            inputs = [variable.type() for variable in self._variables]
            outputs = list(map(_forward, self._variables, self._transforms))
            return inputs, clone_replace(outputs, dict(zip(self._variables, inputs, strict=True)))
        if name == "constrained":
            return self._values, self.model.replace_rvs_by_values(self._variables + self._deterministics)
        if name == "log_likelihood":
            terms: Any = self.model.logp(self.model.observed_RVs, sum=False)
            return self._values, terms
        return self._values, [self.model.logp()]


@functools.lru_cache(maxsize=8)
def _mapped(model: PyMCModel, name: str) -> Callable[[Any], list[Array]]:
    """A program of the function of that name for each draw, a batch at a time."""
    each_fn = functools.partial(model.each, name)
    return jax.jit(lambda given: jax.lax.map(each_fn, given, batch_size=BATCH_SIZE))


def _names(variables: Sequence[Any]) -> list[str]:
    return [variable.name for variable in variables]


def _forward(variable: Any, transform: Any) -> Any:
    """The unconstrained variable."""
    return variable if transform is None else transform.forward(variable, *variable.owner.inputs)


def _word(variable: Any, transform: Any) -> str | None:
    """What the unconstrained coordinates are called."""
    if transform is None:
        return None
    if transform.name == "interval":
        ends = transform.args_fn(*variable.owner.inputs)
        has_two_ends = all(end is not None and np.isfinite(getattr(end, "data", 0)).all() for end in ends)
        return "logit" if has_two_ends else "free"
    return _WORDS.get(transform.name, "free")


def _free_shape(variable: Any, transform: Any) -> tuple[int, ...]:
    """Of the unconstrained variable."""
    shape = _pymc.shape_of(_forward(variable, transform))
    if shape is None:
        raise ValueError(
            f"every variable must have a fixed shape, got {variable.name}, whose shape is random or not "
            "known; give it as numbers, by dims with coords, or by the shape of a pm.Data"
        )
    return shape


def pymc(model: pm.Model | None = None) -> PyMCModel:
    """A model from a PyMC model: `dlrd.fit` then answers with its variables, dims and coords.

    Args:
        model: the PyMC model; inside of `with pm.Model():` that one, if not given. Its data are taken as they
            are now.

    Returns:
        A model whose draws are the values that PyMC's samplers move, with the Jacobians of the transforms.
        `Fit.sample` and all other answers have the variables and deterministics on their natural scale.

    Example:
        >>> import dlrd, pymc as pm
        >>> with pm.Model() as coin:
        ...     p = pm.Beta("p", 1, 1)
        ...     heads = pm.Binomial("heads", n=10, p=p, observed=7)
        >>> fit = dlrd.fit(dlrd.models.pymc(coin), progress=False)
        >>> fit.names, sorted(fit.sample(0, 100))
        (('logit p',), ['p'])
    """
    if model is None:
        model = _surrounding()
    if not isinstance(model, pm.Model):
        raise TypeError(f"model must be a PyMC model, got {shown(model)}")
    _check(model)
    made = PyMCModel(model)
    _check_shapes(made)
    return made


def _surrounding() -> pm.Model:
    try:
        return pm.modelcontext(None)
    except TypeError as error:
        raise TypeError("model must be given outside of `with pm.Model():`, got None") from error


def _check(model: pm.Model) -> None:
    """Refuses what cannot be fitted."""
    if not model.free_RVs:
        raise ValueError("model must have at least one variable that is not observed, got none")
    discrete = [str(each.name) for each in model.free_RVs if not each.dtype.startswith("float")]
    if discrete:
        raise ValueError(
            f"every variable that is not observed must be continuous, got {', '.join(discrete)}; sum it "
            "out, as with pm.Mixture or pymc_extras.marginalize"
        )
    if _pymc.has_minibatches(model):
        raise ValueError(
            "model must take all of its data, got one with pm.Minibatch; pass the data as they are"
        )


def _check_shapes(model: PyMCModel) -> None:
    """Traces the density, so that what jax cannot do is said before any long work."""
    try:
        jax.eval_shape(model.log_density, jax.ShapeDtypeStruct((model.dim,), jnp.zeros(0).dtype))
    except jax.errors.JAXTypeError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"shapes must not depend on the model's variables, but jax says: {reason}"
        ) from error
