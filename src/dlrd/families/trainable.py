"""Which arrays of a family a fit trains."""

from typing import TypeVar

import equinox as eqx
import jax

from dlrd.families.protocol import Family

FamilyT = TypeVar("FamilyT", bound=Family)


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
