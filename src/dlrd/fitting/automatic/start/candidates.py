"""Where a fit may start: the modes found from several points, as families of the kind that is fitted."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.families import Family, Startable, split, started
from dlrd.families.curvature import MAX_WHOLE
from dlrd.fitting.automatic.start.mode import Mode, curvature_at, find_mode
from dlrd.fitting.automatic.start.objective import Objective, host_noise

WIDENINGS = 2.0, 4.0, 8.0
"""How far the points are from the mean of the family, compared with its draws: in turn, on both sides."""
MAX_ITERATIONS, MAX_ROUGH_ITERATIONS = 50, 100
"""Of a search for another mode: in whitened coordinates, and where the first has given none."""
SAME_MODE, SAME_MODE_PER_DIM = 1.0, 0.01
"""Squared distance, in the units of its curvature, within which a descent is on its way to a known mode."""


class Start(NamedTuple):
    """A family to start from."""

    family: Family  # in the form that fits work with
    name: str  # where it comes from, in words
    is_mode: bool = False  # whether that is a mode


def as_given(family: Family) -> Start:
    """The family as it is, in the form that fits work with."""
    return Start(family, "the family as given")


def find_starts(
    objective: Objective,
    family: Startable,
    key: Key[Array, ""],
    num_starts: int,
    max_gradients: float = np.inf,
) -> list[Start]:
    """Families to start from: all modes that are found, the most promising first.

    Where the way down from the mean of the family ends at none, that family as it is and points on that way
    follow.

    Args:
        objective: −log p.
        family: its mean and draws from it are the points.
        key: of those draws.
        num_starts: how many points.
        max_gradients: after so many no other mode is looked for.
    """
    center = np.asarray(family.mean, float)
    is_whole = family.needs_whole_curvature or len(center) <= MAX_WHOLE
    first = find_mode(objective, center, is_whole)
    assert first is not None
    modes = [first] if first.is_found else []
    curvature, max_iterations = (
        (first.curvature, MAX_ITERATIONS) if first.is_found else (None, MAX_ROUGH_ITERATIONS)
    )

    def is_known(point: Float[np.ndarray, " dim"]) -> bool:
        return any(_is_near(mode, point) for mode in modes)

    dtype = jnp.result_type(*jax.tree.leaves(split(family)[0]))
    noise = jnp.asarray(host_noise(key, (num_starts, family.noise_size)), dtype)
    draws = np.asarray(family.from_noise(noise), float) - center
    for number in range(num_starts - 1):
        if objective.num_gradients > max_gradients:
            break
        side, pair = (-1) ** number, number // 2
        point = center + side * WIDENINGS[pair % len(WIDENINGS)] * draws[pair]
        mode = find_mode(objective, point, is_whole, curvature, is_known, max_iterations)
        if mode is not None and mode.is_found and not is_known(mode.point):
            modes.append(mode)
    modes.sort(key=lambda mode: -_laplace_evidence(mode))
    starts = [
        Start(family.at_mode(mode.point, mode.curvature), f"mode {i + 1}", True)
        for i, mode in enumerate(modes)
    ]
    return starts if first.is_found else starts + _without_mode(objective, family, first, max_gradients)


def _without_mode(objective: Objective, family: Startable, first: Mode, max_gradients: float) -> list[Start]:
    """Where else to start if the way down does not end at a mode."""
    starts = [as_given(started(family))]
    if np.isfinite(first.log_density):
        starts.append(Start(family.at_mode(first.point, first.curvature), "the end of the descent"))
    for number in (2**i for i in range((len(first.path) - 1).bit_length())):
        if not first.curvature.is_whole or objective.num_gradients > max_gradients:
            break
        point = first.path[number]
        there = family.at_mode(point, curvature_at(objective, point))
        starts.append(Start(there, f"step {number} of the descent"))
    return starts


def _is_near(mode: Mode, point: Float[np.ndarray, " dim"]) -> bool:
    return mode.distance(point) ** 2 < SAME_MODE + SAME_MODE_PER_DIM * len(point)


def _laplace_evidence(mode: Mode) -> float:
    """The log of the posterior's mass around a mode, up to a constant."""
    return mode.log_density + mode.curvature.log_volume()
