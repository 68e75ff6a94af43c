"""Where a fit may start: the modes found from several points, as families of the kind that is fitted."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.families import Factorized, Family, HasCouplings, Refinable, Startable, split
from dlrd.families.curvature import MAX_WHOLE, diagonal_curvature
from dlrd.fitting.automatic.start.foothold import find_foothold
from dlrd.fitting.automatic.start.funnel import Funnel
from dlrd.fitting.automatic.start.lbfgs import driven_together
from dlrd.fitting.automatic.start.mode import Mode, find_mode, search
from dlrd.fitting.automatic.start.objective import Objective, SpentError, host_noise
from dlrd.fitting.automatic.start.structure import Survey
from dlrd.fitting.program import Program

WIDENINGS = 2.0, 4.0, 8.0
"""How far the points are from the mean of the family, compared with its draws: in turn, on both sides."""
MAX_ITERATIONS = 50
"""Of a search for another mode, in the coordinates in which the first one is round."""
SAME_MODE, SAME_MODE_PER_DIM = 1.0, 0.01
"""Squared distance, in the units of its curvature, within which a descent is on its way to a known mode."""


class Start(NamedTuple):
    """A family to start from."""

    family: Family  # in the form that fits work with
    name: str  # where it comes from, in words
    is_mode: bool = False  # whether that is a mode
    funnel: Funnel | None = None  # that was seen there


def as_given(family: Family) -> Start:
    """The family as it is, in the form that fits work with."""
    return Start(family, "the family as given")


def find_modes(
    objective: Objective,
    family: Startable,
    key: Key[Array, ""],
    num_starts: int,
    max_gradients: float = np.inf,
) -> list[Start]:
    """Families at all modes that are found, the most promising first: see `modes_from`."""
    modes = modes_from(objective, family, key, num_starts, max_gradients)
    if modes and modes[0].is_cut:
        return [Start(family.at_mode(modes[0].point, modes[0].curvature), "where the search had come to")]
    return [
        Start(family.at_mode(mode.point, mode.curvature), f"mode {i + 1}", True)
        for i, mode in enumerate(modes)
    ]


def modes_from(
    objective: Objective,
    family: Startable,
    key: Key[Array, ""],
    num_starts: int,
    max_gradients: float = np.inf,
) -> list[Mode]:
    """All modes that are found, the most promising first; none if the first way down finds none.

    Where the budget ends the first search, the lowest point that it has come to.

    Args:
        objective: −log p.
        family: its mean and draws from it are the points.
        key: of those draws.
        num_starts: how many points.
        max_gradients: after so many no other mode is looked for.
    """
    center = np.asarray(family.mean, float)
    is_whole = family.needs_whole_curvature or len(center) <= MAX_WHOLE
    dtype = jnp.result_type(*jax.tree.leaves(split(family)[0]))
    noise = jax.device_put(np.asarray(host_noise(key, (num_starts // 2, family.noise_size)), dtype))
    _from_noise.prepare(family, noise)
    try:
        first = find_mode(objective, center, is_whole)
    except SpentError:  # the time was over before it had begun
        return []
    if first.is_cut:
        return [first]
    if not first.is_found:
        return []
    modes = [first]

    def is_known(point: Float[np.ndarray, " dim"]) -> bool:
        return any(is_near(mode, point) for mode in modes)

    draws = np.asarray(_from_noise(family, noise), float) - center
    points = [
        center + (-1) ** number * WIDENINGS[number // 2 % len(WIDENINGS)] * draws[number // 2]
        for number in range(num_starts - 1)
    ]
    for begin in range(0, len(points), objective.num_together):
        if objective.num_gradients > max_gradients:
            break
        searches = [
            search(objective, point, is_whole, first.curvature, is_known, MAX_ITERATIONS)
            for point in points[begin : begin + objective.num_together]
        ]
        try:
            found = driven_together(searches, objective.answers)
        except SpentError:
            break
        for mode in found:
            if mode is None or not mode.is_found or is_known(mode.point):
                continue
            modes.append(mode)
    return sorted(modes, key=lambda mode: -laplace_evidence(mode))


def find_footholds(
    objective: Objective, family: Startable, std: Float[np.ndarray, " dim"], key: Key[Array, ""]
) -> list[Start]:
    """Families where most of the posterior is: with the curvature there, and with independent coordinates.

    Args:
        objective: −log p.
        family: its mean is where the way begins.
        std: how wide the normal is that goes it, in each coordinate.
        key: of the draws that it is judged by.
    """
    try:
        found = find_foothold(objective, Survey(objective, family), np.asarray(family.mean, float), std, key)
    except SpentError:
        return []
    if not found.is_found:
        return []
    starts = [Start(family.at_mode(found.mean, found.curvature), "a foothold", funnel=found.funnel)]
    is_refinable = isinstance(starts[0].family, Refinable)
    keeps_couplings = isinstance(starts[0].family, HasCouplings) and not is_refinable
    if not isinstance(starts[0].family, Factorized) and not keeps_couplings:
        there = family.at_mode(found.mean, diagonal_curvature(found.std))
        if is_refinable:
            there = there.with_curvature(found.curvature)
        starts.append(Start(there, "a foothold of independent coordinates", funnel=found.funnel))
    return starts


_from_noise = Program(lambda family, noise: family.from_noise(noise))
"""Draws from a family."""


def is_near(mode: Mode, point: Float[np.ndarray, " dim"]) -> bool:
    """Whether a point is of a known mode, or on the way to it."""
    return mode.distance(point) ** 2 < SAME_MODE + SAME_MODE_PER_DIM * len(point)


def laplace_evidence(mode: Mode) -> float:
    """The log of the posterior's mass around a mode, up to a constant."""
    return mode.log_density + mode.curvature.log_volume()
