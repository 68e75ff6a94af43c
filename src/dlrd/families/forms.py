"""What a family gives if it can, and what stands for it if it cannot."""

from typing import Any

from jaxtyping import Array, Float

from dlrd.families.protocol import KnowsNoise, Settling, Startable, WorkingForm


def log_prob_of(family: Any, noise: Any, draws: Any) -> Float[Array, "*batch"]:
    """The log density at draws, by the noise that made them if the family can."""
    return family.log_prob_of_noise(noise) if isinstance(family, KnowsNoise) else family.log_prob(draws)


def started(family: Any) -> Any:
    """The family in the form that automatic fits work with."""
    return family.as_start() if isinstance(family, Startable) else family


def settled(family: Any) -> Any:
    """The family itself, or the nearest of its kind where steps may have led out of that."""
    return family.settled() if isinstance(family, Settling) else family


def member_of(family: Any) -> Any:
    """The family that users get."""
    return member_of(family.member) if isinstance(family, WorkingForm) else family
