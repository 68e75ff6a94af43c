"""Prior distributions of independent parameters, by their names.

Each knows where its parameter lies, and about where on the free scale: what is fitted is standardised by
that, so that N(0, I), where fits begin, is about the prior.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy import stats
from jaxtyping import Array, ArrayLike, Float
from scipy.special import digamma, polygamma

from dlrd.checks import shown
from dlrd.models import supports
from dlrd.models.supports import Support, checked_shape

_EULER = 0.5772156649015329


@dataclass(frozen=True, eq=False)
class Standardized(Support):
    """A support whose free numbers are shifted and scaled."""

    inner: Support
    center: Float[np.ndarray, "..."]
    scale: Float[np.ndarray, "..."]

    @property
    def word(self) -> str | None:
        return self.inner.word

    @property
    def free_shape(self) -> tuple[int, ...]:
        return self.inner.free_shape

    def forward(self, free: Array) -> Array:
        return self.inner.forward(self._unscaled(free))

    def inverse(self, value: Array) -> Array:
        return (self.inner.inverse(value) - self.center) / self.scale

    def log_det(self, free: Array) -> Array:
        return self.inner.log_det(self._unscaled(free)) + float(np.sum(np.log(self.scale)))

    def _unscaled(self, free: Array) -> Array:
        return jnp.asarray(self.center, free.dtype) + jnp.asarray(self.scale, free.dtype) * free


@dataclass(frozen=True, eq=False)
class Prior:
    """A distribution of independent numbers, an array of them or one."""

    text: str  # as it was asked for
    support: Standardized
    log_density: Callable[[Array], Array]  # of each entry


def normal(mean: ArrayLike = 0.0, sd: ArrayLike = 1.0, shape: tuple[int, ...] = ()) -> Prior:
    """Any number, about `mean`.

    Example:
        >>> normal(20.0, 5.0).text
        'normal(20.0, 5.0)'
    """
    return _prior("normal", stats.norm.logpdf, (mean, sd), shape, supports.real, (mean, sd))


def lognormal(median: ArrayLike, sd: ArrayLike, shape: tuple[int, ...] = ()) -> Prior:
    """A positive number whose logarithm is normal with standard deviation `sd`: 0.1 is about ten percent."""
    log_median = np.log(_positive("median", median))

    def log_density(x: Array, _: Any, sd: Any) -> Array:
        return stats.norm.logpdf(jnp.log(x), log_median, sd) - jnp.log(x)

    return _prior("lognormal", log_density, (median, sd), shape, supports.positive, (log_median, sd))


def half_normal(sd: ArrayLike = 1.0, shape: tuple[int, ...] = ()) -> Prior:
    """A positive number: the size of a normal one about zero, as for noise and scales."""

    def log_density(x: Array, sd: Any) -> Array:
        return stats.norm.logpdf(x, 0, sd) + math.log(2)

    # Of the logarithm: the mean is −(γ + log 2)/2 and the variance π²/8 for a scale of 1.
    where = np.log(_positive("sd", sd)) - (_EULER + math.log(2)) / 2, math.pi / math.sqrt(8)
    return _prior("half_normal", log_density, (sd,), shape, supports.positive, where)


def exponential(mean: ArrayLike = 1.0, shape: tuple[int, ...] = ()) -> Prior:
    """A positive number, the likelier the smaller."""
    where = np.log(_positive("mean", mean)) - _EULER, math.pi / math.sqrt(6)

    def log_density(x: Array, mean: Any) -> Array:
        return stats.expon.logpdf(x, scale=mean)

    return _prior("exponential", log_density, (mean,), shape, supports.positive, where)


def gamma(shape_parameter: float, mean: float, shape: tuple[int, ...] = ()) -> Prior:
    """A positive number with this mean; its relative standard deviation is 1/√shape_parameter."""
    number, scale = _positive("shape_parameter", shape_parameter), _positive("mean", mean) / shape_parameter
    where = digamma(number) + np.log(scale), np.sqrt(polygamma(1, number))

    def log_density(x: Array, number: Any, mean: Any) -> Array:
        return stats.gamma.logpdf(x, number, scale=mean / number)

    return _prior("gamma", log_density, (shape_parameter, mean), shape, supports.positive, where)


def uniform(low: float, high: float, shape: tuple[int, ...] = ()) -> Prior:
    """A number between two bounds, all alike."""

    def log_density(x: Array, low: Any, high: Any) -> Array:
        return jnp.zeros_like(x) - jnp.log(high - low)

    # A logit of a uniform number is logistic, whose variance is π²/3.
    where = 0.0, math.pi / math.sqrt(3)
    return _prior(
        "uniform", log_density, (low, high), shape, lambda shape: supports.interval(low, high, shape), where
    )


def log_uniform(low: float, high: float, shape: tuple[int, ...] = ()) -> Prior:
    """A positive number between two bounds, all orders of magnitude alike."""
    bounds = np.log(_positive("low", low)), np.log(_positive("high", high))

    def log_density(x: Array, low: Any, high: Any) -> Array:
        return -jnp.log(x) - np.log(bounds[1] - bounds[0])

    def class_of(shape: tuple[int, ...]) -> Support:
        return _LogInterval(shape, *map(float, bounds))

    return _prior("log_uniform", log_density, (low, high), shape, class_of, (0.0, math.pi / math.sqrt(3)))


def beta(a: float, b: float, shape: tuple[int, ...] = ()) -> Prior:
    """A share between 0 and 1, as if `a` − 1 successes and `b` − 1 failures had been seen."""
    first, second = _positive("a", a), _positive("b", b)
    where = digamma(first) - digamma(second), np.sqrt(polygamma(1, first) + polygamma(1, second))
    return _prior(
        "beta", stats.beta.logpdf, (a, b), shape, lambda shape: supports.interval(0, 1, shape), where
    )


def flat(support: Support) -> Prior:
    """A variable with a support and no density of its own: all is said elsewhere."""
    zero, one = np.zeros(support.free_shape), np.ones(support.free_shape)
    return Prior("flat", Standardized(support.shape, support, zero, one), jnp.zeros_like)


@dataclass(frozen=True)
class _LogInterval(Support):
    """Positive numbers between bounds, given by their logarithms."""

    low: float
    high: float

    @property
    def word(self) -> str:
        return "free"

    @property
    def _inner(self) -> Support:
        return supports.interval(self.low, self.high, self.shape)

    def forward(self, free: Array) -> Array:
        return jnp.exp(self._inner.forward(free))

    def inverse(self, value: Array) -> Array:
        return self._inner.inverse(jnp.log(value))

    def log_det(self, free: Array) -> Array:
        return self._inner.log_det(free) + jnp.sum(self._inner.forward(free))


def _prior(
    name: str,
    log_density: Callable[..., Array],
    arguments: tuple[Any, ...],
    shape: Any,
    support_fn: Callable[[tuple[int, ...]], Support],
    where: tuple[Any, Any],
) -> Prior:
    """The distribution, once it is sure that its numbers are some.

    Args:
        name: as users know it.
        log_density: of an entry and the arguments.
        arguments: as users gave them.
        shape: of the parameter; that of the arguments, if these have one.
        support_fn: makes the support of a shape.
        where: mean and standard deviation on the free scale.
    """
    arrays = [np.asarray(each, float) for each in arguments]
    center, scale = (np.asarray(each, float) for each in where)
    if not all(np.isfinite(each).all() for each in (*arrays, center, scale)) or not (scale > 0).all():
        raise ValueError(f"{name} must have finite numbers and a positive spread, got {shown(arguments)}")
    full = np.broadcast_shapes(checked_shape(shape), *(each.shape for each in arrays))
    inner = support_fn(full)
    own = Standardized(full, inner, np.broadcast_to(center, full), np.broadcast_to(scale, full))
    numbers = [np.broadcast_to(each, full) for each in arrays]
    text = f"{name}({', '.join(str(each) for each in arguments)})"
    return Prior(text, own, lambda x: log_density(x, *(jnp.asarray(each, x.dtype) for each in numbers)))


def _positive(name: str, value: Any) -> Float[np.ndarray, "..."]:
    array = np.asarray(value, float)
    if not (array > 0).all():
        raise ValueError(f"{name} must be positive, got {shown(value)}")
    return array
