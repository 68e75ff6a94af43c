"""A foothold: where most of the posterior is, for posteriors whose mode is a trap or does not exist.

In a hierarchy the density is highest in a neck of no mass. The ELBO is not: averaged over a few draws that
stay the same, it is a smooth function of a mean-field normal, which L-BFGS climbs as fast as it finds modes.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.families.curvature import Curvature, diagonal_curvature
from dlrd.fitting.automatic.start.funnel import Funnel
from dlrd.fitting.automatic.start.lbfgs import descend
from dlrd.fitting.automatic.start.objective import Objective, host_noise
from dlrd.fitting.automatic.start.structure import Survey

NUM_DRAWS = 16
"""That stay the same: pairs of mirror images, each coordinate with a variance of exactly 1."""
NUM_POINTS = 8
"""At which the curvature is measured at the end; at some of them between two rounds."""
MAX_ROUNDS, MAX_ITERATIONS = 8, 50
"""Of L-BFGS, each round in coordinates in which the last one's end is round."""
TOLERANCE, TOLERANCE_PER_DIM = 0.1, 1e-4
"""How far from the best on these draws, in nats, a round may end; the noise of few draws is more."""
MIN_GAIN = 1.0
"""Of a round, in nats, for another one."""
MAX_NARROWINGS, HUGE = 12, 1e8
"""Of the normal to begin with, as long as the loss is infinite, or too large to see a step in it."""
MIN_GOOD = 0.5
"""Share of the draws that must not have failed."""
ROOT_TWO = 2**0.5

_Vector = Float[np.ndarray, " dim"]


class Foothold(NamedTuple):
    """A mean-field normal near the best, and the curvature of −log p, averaged over it."""

    mean: _Vector
    std: _Vector
    curvature: Curvature
    is_found: bool  # whether the ELBO is finite there
    funnel: Funnel | None = None  # if the curvature shows one


@np.errstate(
    over="ignore", invalid="ignore", divide="ignore"
)  # what is not finite is asked for where it counts
def find_foothold(
    objective: Objective, survey: Survey, mean: _Vector, std: _Vector, key: Key[Array, ""]
) -> Foothold:
    """Climbs the ELBO over fixed draws, in rounds, until a round gains little.

    Args:
        objective: −log p.
        survey: measures its curvature.
        mean, std: of the normal to begin with.
        key: of the draws.
    """
    dim = len(mean)
    noise = host_noise(key, ((NUM_DRAWS + NUM_POINTS) // 2, dim))
    fixed, free = noise[: NUM_DRAWS // 2], noise[NUM_DRAWS // 2 :]
    fixed = fixed / np.sqrt(np.mean(fixed**2, axis=0))
    loss, free = _Loss(objective, _mirrored(fixed)), _mirrored(free)
    tolerance = max(TOLERANCE, TOLERANCE_PER_DIM * dim)
    for _ in range(MAX_NARROWINGS):
        if loss(np.concatenate([mean, np.log(std)]))[0] < HUGE:
            break
        std = 0.25 * std  # a wide normal may reach where a density overflows
    place, value = np.concatenate([mean, np.log(std)]), np.inf
    curvature = diagonal_curvature(std)
    for _ in range(MAX_ROUNDS):
        descent = descend(loss, place, _Together(curvature), tolerance, max_iterations=MAX_ITERATIONS)
        place, gain, value = descent.point, value - descent.value, descent.value
        mean, std = place[:dim], np.exp(place[dim:])
        if not np.isfinite(value):
            return Foothold(mean, std, curvature, is_found=False)
        if descent.is_at_rest and gain < MIN_GAIN:
            break
        curvature = survey.on_the_way(mean + std * free, std)
    curvature, funnel = survey.at_the_end(mean + std * free, std)
    return Foothold(mean, std, curvature, is_found=True, funnel=funnel)


def _mirrored(half: Float[np.ndarray, "half dim"]) -> Float[np.ndarray, "draw dim"]:
    """With mirror images, each next to its own."""
    return np.stack([half, -half], axis=1).reshape(-1, half.shape[1])


class _Loss:
    """−ELBO over fixed noise, up to a constant, of a mean-field normal: (mean, log sd) in one vector."""

    def __init__(self, objective: Objective, noise: Float[np.ndarray, "draw dim"]):
        self.objective, self.noise = objective, noise
        self.dtype: jnp.dtype = objective.dtype

    def __call__(self, place: Float[np.ndarray, " two_dim"]) -> tuple[float, Float[np.ndarray, " two_dim"]]:
        mean, log_std = np.split(place, 2)
        offsets = np.exp(log_std) * self.noise
        values, slopes = self.objective.batch(mean + offsets)
        if self.objective.can_fail:
            is_good = np.isfinite(values) & np.isfinite(slopes).all(axis=1)
            if np.mean(is_good) >= MIN_GOOD:
                values, slopes, offsets = values[is_good], slopes[is_good], offsets[is_good]
        value = float(np.mean(values) - np.sum(log_std))
        slope = np.concatenate([np.mean(slopes, axis=0), np.mean(slopes * offsets, axis=0) - 1])
        return (value if np.isfinite(slope).all() and np.isfinite(value) else np.inf), slope


class _Together:
    """The curvature of the loss: that of −log p for the means, 2 for the logarithms of the sds."""

    def __init__(self, curvature: Curvature):
        self.curvature = curvature

    def whiten(self, slope: Float[np.ndarray, " two_dim"]) -> Float[np.ndarray, " two_dim"]:
        mean, log_std = np.split(slope, 2)
        return np.concatenate([np.asarray(self.curvature.whiten(mean)), log_std / ROOT_TWO])

    def unwhiten(self, step: Float[np.ndarray, " two_dim"]) -> Float[np.ndarray, " two_dim"]:
        mean, log_std = np.split(step, 2)
        return np.concatenate([np.asarray(self.curvature.unwhiten(mean)), log_std / ROOT_TWO])
