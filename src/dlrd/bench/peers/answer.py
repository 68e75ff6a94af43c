"""What every method of the comparison is given and gives back."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dlrd.bench.posteriors.optimum import Normal
from dlrd.families import FullRankNormal, MeanFieldNormal
from dlrd.models import LogDensity


class Task(NamedTuple):
    """A posterior to fit."""

    log_density: LogDensity
    dim: int
    family: str  # "mean-field" or "full-rank"
    seed: int
    max_gradients: int  # all that a method may spend; those with steps of their own number do all of them

    @property
    def is_mean_field(self) -> bool:
        return self.family == "mean-field"


class Answer(NamedTuple):
    """The normal that a method found."""

    family: Normal
    num_gradients: int


MethodFn = Callable[[Task], Answer]


def full_rank(mean: Any, covariance: Any) -> FullRankNormal:
    """A normal by its moments; not finite if the covariance is not positive."""
    return FullRankNormal(jnp.asarray(mean, float), jnp.linalg.cholesky(jnp.asarray(covariance, float)))


def mean_field(mean: Any, std: Any) -> MeanFieldNormal:
    """A normal with independent coordinates."""
    return MeanFieldNormal(jnp.asarray(mean, float), jnp.log(jnp.asarray(std, float)))


def is_finite(family: Normal) -> bool:
    """Whether all its arrays are."""
    return all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(family))


Vector = Float[Array, " dim"]
