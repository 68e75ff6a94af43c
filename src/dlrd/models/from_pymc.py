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
from dlrd.models.pytensor_template import Parted, Template, arrays_of, parted

BATCH_SIZE = 100
"""Draws that are taken through the model at a time."""
_WORDS = {"log": "log", "logodds": "logit"}
"""What some of PyMC's transforms are called; most others have no word that says what they do."""


class PyMCModel(FunctionModel):
    """A PyMC model with its data as they are now; later changes of either are not seen.

    Programs take the arrays in its log density as arguments, unless these decide about shapes, and models
    that differ in nothing else share them.

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
        dim = sum(map(math.prod, self._shapes))
        observed = [self.model.rvs_to_values[each] for each in self.model.observed_RVs]
        named = [*observed, *self.model.data_vars]
        self._arrays = arrays_of(
            [*named, *self.model.basic_RVs, *self.model.potentials, *self._deterministics], named
        )
        self._graphs: dict[str, Parted] = {}
        self._template, data = self._graph("log_density", self._shapes)
        super().__init__(self.log_density, (dim,), names, data)
        self.dims = {name: tuple(map(str, axes)) for name, axes in self.model.named_vars_to_dims.items()}
        self.coords = {
            name: np.array(labels) for name, labels in self.model.coords.items() if labels is not None
        }
        self.observed_data: dict[str, np.ndarray] = find_observations(self.model)
        self.constant_data: dict[str, np.ndarray] = find_constants(self.model)

    def constrained(self, draws: Float[Array, "draw dim"]) -> dict[str, Array]:
        """The free variables and the deterministics, on their natural scale."""
        found = self._each("constrained", draws)
        return dict(zip(_names(self._variables + self._deterministics), found, strict=True))

    def unconstrained(self, variables: dict[str, Any]) -> Float[Array, "draw dim"]:
        """The draws that give these free variables; others that are given do not count."""
        given = [jnp.asarray(variables[name], float) for name in _names(self._variables)]
        found = self._each("unconstrained", given)
        return jnp.concatenate([part.reshape(len(part), -1) for part in found], axis=1)

    def log_likelihood(self, draws: Float[Array, "draw dim"]) -> dict[str, Array]:
        names = _names(self.model.observed_RVs)
        return dict(zip(names, self._each("log_likelihood", draws), strict=True)) if names else {}

    def predictions(self, draws: Float[Array, "draw dim"], key: Key[Array, ""]) -> dict[str, np.ndarray]:
        """Data by PyMC's `sample_posterior_predictive`."""
        seed = int(jax.random.bits(key, dtype=jnp.uint32))
        return _pymc.predicted(self.model, self.chain_starts(draws), seed)

    def chain_starts(self, draws: Float[Array, "chain dim"]) -> list[dict[str, np.ndarray]]:
        """As `pm.sample` takes them for `initvals`: the free variables on their natural scale."""
        found = self.constrained(draws)
        arrays = {name: np.asarray(found[name], float) for name in _names(self._variables)}
        return [{name: values[i] for name, values in arrays.items()} for i in range(len(draws))]

    def log_density(self, draw: Float[Array, " dim"]) -> Float[Array, ""]:
        values = _pieces(draw, self._shapes)
        return jnp.asarray(self._template.jaxified()(*values, *map(jnp.asarray, self._data))[0])

    def _each(self, name: str, given: Any) -> list[Array]:
        """What the graph of that name gives for each draw, or for the variables of each."""
        is_split = isinstance(given, list)
        template, data = self._graph(name, [each.shape[1:] for each in given] if is_split else self._shapes)
        shapes = None if is_split else tuple(self._shapes)
        return _mapped(template, shapes)(data, given)

    def _graph(self, name: str, shapes: Sequence[tuple[int, ...]]) -> Parted:
        """The graph of that name, whose inputs have these shapes."""
        if name not in self._graphs:
            self._graphs[name] = parted(*self._ends(name), self._arrays, shapes)
        return self._graphs[name]

    def _ends(self, name: str) -> tuple[Sequence[Any], Sequence[Any]]:
        """The inputs and outputs of the graph of that name."""
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

    @property
    def _identity(self) -> tuple[Any, ...]:
        return self._template, self.shape, self._given_names

    def __eq__(self, other: object) -> bool:
        """Without data, as programs see it, by the density; else by all that it answers."""
        if not isinstance(other, PyMCModel) or self._identity != other._identity:
            return False
        if self._data is None or other._data is None:
            return self._data is other._data
        return self.model is other.model

    def __hash__(self) -> int:
        return hash(self._identity)


@functools.lru_cache(maxsize=8)
def _mapped(template: Template, shapes: tuple[tuple[int, ...], ...] | None) -> Callable[..., list[Array]]:
    """A graph as a program of its data and of many draws, or of the inputs of each, a batch at a time."""

    def mapped(data: Any, given: Any) -> list[Array]:
        fn, shared = template.jaxified(), list(map(jnp.asarray, data))

        def each(row: Any) -> list[Array]:
            inputs = row if shapes is None else _pieces(row, shapes)
            return [jnp.asarray(value) for value in fn(*inputs, *shared)]

        return jax.lax.map(each, given, batch_size=BATCH_SIZE)

    return jax.jit(mapped)


def _pieces(draw: Float[Array, " dim"], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """The draw as PyMC's value variables."""
    parts = jnp.split(draw, np.cumsum([math.prod(shape) for shape in shapes])[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


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
