"""What people write down: a jax function of named variables or of a vector, made into a model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from jaxtyping import Array, Float

from dlrd.checks import check_count, shown
from dlrd.models.flat import FunctionModel, checked_data, checked_names
from dlrd.models.named import NamedLogDensity, named_model
from dlrd.models.protocol import LogDensity, Model
from dlrd.models.supports import Support


def function(
    log_density: LogDensity | NamedLogDensity | Callable[[Any, Any], Float[Array, ""]],
    variables: int | Mapping[str, Support | tuple[int, ...]],
    names: Sequence[str] | None = None,
    *,
    dims: Mapping[str, str | Sequence[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
    data: Any = None,
) -> FunctionModel:
    """A model from a jax function of named variables, or of a vector.

    Variables that are not free, as scales and probabilities, are given by their supports: `dlrd.positive`,
    `dlrd.greater_than`, `dlrd.less_than`, `dlrd.interval`, `dlrd.simplex`, `dlrd.ordered` and
    `dlrd.correlation_cholesky`. The function gets them on their natural scale, where its priors are. What is
    fitted are free numbers behind them; the Jacobians of the maps are added here.

    Args:
        log_density: a dict of the variables, or a vector, to the unnormalised log density, a scalar.
        variables: the shape or the support of each; or, of a vector, how many numbers it has.
        names: of the numbers of a vector; z[0], z[1], … if not given.
        dims: of named variables, the names of their axes, as `{"beta": ("county",)}`.
        coords: labels along these axes, as `{"county": ["AITKIN", "ANOKA"]}`.
        data: an array or a tree of arrays, which `log_density` is given, too, after the variables. Models of
            the same function and of data of the same shapes share compiled programs: of a hundred data
            sets, only the first one is waited for.

    Example:
        >>> import dlrd, jax.numpy as jnp
        >>> from jax.scipy.stats import gamma, norm
        >>> data = jnp.array([1.2, 0.7, 1.9, 1.4])
        >>> def log_density(v):
        ...     prior = norm.logpdf(v["mu"], 0, 10) + gamma.logpdf(v["sigma"], 2)
        ...     return prior + jnp.sum(norm.logpdf(data, v["mu"], v["sigma"]))
        >>> model = dlrd.models.function(log_density, {"mu": (), "sigma": dlrd.positive()})
        >>> model.names
        ('mu', 'log sigma')
        >>> dlrd.fit(model, progress=False).summary().names
        ['mu', 'sigma']
        >>> def shifted(z, data):
        ...     return -0.5 * jnp.sum((z - data) ** 2)
        >>> data_sets = [jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])]
        >>> models = [dlrd.models.function(shifted, 2, data=data) for data in data_sets]
        >>> [fit.outcome.name for fit in (dlrd.fit(model, progress=False) for model in models)]
        ['CERTIFIED', 'CERTIFIED']
        >>> dlrd.models.function(lambda z: -0.5 * (z @ z), 2, names=["slope", "offset"]).names
        ('slope', 'offset')
    """
    if not callable(log_density):
        raise TypeError(f"log_density must be a function of one draw, got {shown(log_density)}")
    if isinstance(variables, Mapping):
        if names is not None:
            raise ValueError(f"names are for a vector; variables have their own, got {shown(names)}")
        return named_model(log_density, variables, dims, coords, checked_data(data))
    if dims is not None or coords is not None:
        raise ValueError("dims and coords are for named variables; those of a vector have names")
    check_count("the number of variables", variables)
    names = checked_names(names, variables)
    return FunctionModel(log_density, (int(variables),), names, checked_data(data))


def as_model(log_density: Any, shape: tuple[int, ...] | None) -> Model:
    """A model as it is, or that of a plain function of draws of this shape."""
    if isinstance(log_density, Model):
        return log_density
    if not callable(log_density):
        raise TypeError(f"log_density must be a function of one draw, or a model, got {shown(log_density)}")
    if shape is None:
        raise ValueError(
            "family must be given where log_density is a plain function, whose dimension is not known; or "
            "say it: dlrd.models.function(log_density, dim)"
        )
    return FunctionModel(cast("LogDensity", log_density), shape)
