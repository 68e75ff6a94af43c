"""What an estimator of the ELBO's gradient gives, and what it needs."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key

from dlrd.families import Family

FamilyT = TypeVar("FamilyT", bound=Family)
LogDensity = Callable[[Array], Float[Array, ""]]
"""The unnormalised log density of one draw."""


class Estimate(NamedTuple):
    """One Monte Carlo estimate of the ELBO and of its gradient."""

    elbo_terms: Float[Array, " num_draws"]  # log p(z) − log q(z); their mean is the ELBO's estimate
    gradient: Any  # of the ELBO, which is maximised: the family with its gradient in place of its arrays


class Estimator(Protocol):
    """A rule for estimating the gradient of the ELBO from `num_draws` draws."""

    def __call__(
        self, log_density: LogDensity, family: Family, key: Key[Array, ""], num_draws: int
    ) -> Estimate: ...


class Untrained(eqx.Module):
    """A part of a family whose arrays are no parameters."""


def split(family: FamilyT) -> tuple[FamilyT, FamilyT]:
    """The trainable arrays of a family, and all the rest; `equinox.combine` puts them together again."""
    is_trained = jax.tree.map(
        lambda part: not isinstance(part, Untrained) and eqx.is_inexact_array(part),
        family,
        is_leaf=lambda part: isinstance(part, Untrained),
    )
    return eqx.partition(family, is_trained)


def frozen(family: FamilyT) -> FamilyT:
    """The family as a constant of differentiation."""
    trainable, rest = split(family)
    return eqx.combine(jax.lax.stop_gradient(trainable), rest)
