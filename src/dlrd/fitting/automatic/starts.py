"""Where a fit may start: the modes found from several points, as families of the kind that is fitted."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.families import Family, FullRankNormal, LowRankNormal, MeanFieldNormal
from dlrd.fitting.automatic.mode import MAX_DENSE, Mode, curvature_at, find_mode
from dlrd.fitting.automatic.target import Target, host_noise
from dlrd.gradients.curvature import Curved, DenseCurvature, LowRankCurvature

WIDENINGS = 2.0, 4.0, 8.0
"""How far the points are from the mean of the family, compared with its draws: in turn, on both sides."""
MAX_ITERATIONS, MAX_ROUGH_ITERATIONS = 50, 100
"""Of a search for another mode: in whitened coordinates, and where the first has given none."""
SAME_MODE, SAME_MODE_PER_DIM = 1.0, 0.01
"""Squared distance, in the units of its curvature, within which a descent is on its way to a known mode."""


class Start(NamedTuple):
    """A family to start from."""

    family: Family
    name: str  # where it comes from, in words
    is_mode: bool = False  # whether that is a mode


def find_starts(
    target: Target, family: Family, key: Key[Array, ""], num_starts: int, max_gradients: float = np.inf
) -> list[Start]:
    """Families to start from: all modes that are found, the most promising first.

    Where the way down from the mean of the family ends at none, that family as it is and points on that way
    follow.

    Args:
        target: −log p.
        family: a mean-field, full-rank or low-rank normal: its mean and draws from it are the points.
        key: of those draws.
        num_starts: how many points.
        max_gradients: after so many no other mode is looked for.
    """
    assert isinstance(family, (MeanFieldNormal, FullRankNormal, LowRankNormal))
    is_dense = isinstance(family, FullRankNormal) or len(family.loc) <= MAX_DENSE
    center = np.asarray(family.mean, float)
    first = find_mode(target, center, is_dense)
    assert first is not None
    modes = [first] if first.is_found else []
    curvature, max_iterations = (
        (first.curvature, MAX_ITERATIONS) if first.is_found else (None, MAX_ROUGH_ITERATIONS)
    )

    def is_known(point: Float[np.ndarray, " dim"]) -> bool:
        return any(_is_near(mode, point) for mode in modes)

    noise = jnp.asarray(host_noise(key, (num_starts, family.noise_size)), family.loc.dtype)
    draws = np.asarray(family.from_noise(noise), float) - center
    for number in range(num_starts - 1):
        if target.num_gradients > max_gradients:
            break
        side, pair = (-1) ** number, number // 2
        point = center + side * WIDENINGS[pair % len(WIDENINGS)] * draws[pair]
        mode = find_mode(target, point, is_dense, curvature, is_known, max_iterations)
        if mode is not None and mode.is_found and not is_known(mode.point):
            modes.append(mode)
    modes.sort(key=lambda mode: -_laplace_evidence(mode))
    starts = [Start(_laplace(family, mode), f"mode {i + 1}", True) for i, mode in enumerate(modes)]
    return starts if first.is_found else starts + _without_mode(target, family, first, max_gradients)


def _without_mode(
    target: Target,
    family: MeanFieldNormal | FullRankNormal | LowRankNormal,
    first: Mode,
    max_gradients: float,
) -> list[Start]:
    """Where else to start if the way down does not end at a mode."""
    is_dense = isinstance(first.curvature, DenseCurvature)
    starts = [as_given(family)]
    if np.isfinite(first.log_density):
        starts.append(Start(_laplace(family, first), "the end of the descent"))
    for number in (2**i for i in range((len(first.path) - 1).bit_length())):
        if not is_dense or target.num_gradients > max_gradients:
            break
        point = first.path[number]
        there = first._replace(point=point, curvature=curvature_at(target, point))
        starts.append(Start(_laplace(family, there), f"step {number} of the descent"))
    return starts


def _is_near(mode: Mode, point: Float[np.ndarray, " dim"]) -> bool:
    return mode.distance(point) ** 2 < SAME_MODE + SAME_MODE_PER_DIM * len(point)


def _laplace_evidence(mode: Mode) -> float:
    """The log of the posterior's mass around a mode, up to a constant."""
    if isinstance(mode.curvature, DenseCurvature):
        log_volume = np.sum(np.log(mode.curvature.root.diagonal()))
    else:
        log_volume = np.sum(np.log(mode.curvature.scale)) + np.sum(np.log(mode.curvature.stretches))
    return mode.log_density + float(log_volume)


def _laplace(family: MeanFieldNormal | FullRankNormal | LowRankNormal, mode: Mode) -> Family:
    """The family of the same kind that fits the mode and its curvature."""
    dtype = family.loc.dtype
    loc = jnp.asarray(mode.point, dtype)
    if isinstance(family, FullRankNormal):
        assert isinstance(mode.curvature, DenseCurvature)
        return FullRankNormal(loc, jnp.asarray(mode.curvature.root, dtype))
    if isinstance(family, LowRankNormal):
        return _low_rank(family, loc, mode.curvature)
    log_scale = -0.5 * np.log(np.asarray(mode.curvature.diagonal))
    return with_curvature(MeanFieldNormal(loc, jnp.asarray(log_scale, dtype)), mode.curvature)


def with_curvature(family: MeanFieldNormal, curvature: DenseCurvature | LowRankCurvature) -> Curved:
    """The family and the curvature, in the family's precision."""
    return Curved(family, jax.tree.map(lambda array: np.asarray(array, family.loc.dtype), curvature))


def as_given(family: Family) -> Start:
    """The family as it is; a mean-field one with its own precision for a curvature."""
    name = "the family as given"
    if not isinstance(family, MeanFieldNormal):
        return Start(family, name)
    scale = np.asarray(family.std, float)
    if len(scale) <= MAX_DENSE:
        return Start(with_curvature(family, DenseCurvature(np.diag(scale**-2), np.diag(scale))), name)
    none = np.zeros((len(scale), 0)), np.zeros(0)
    return Start(with_curvature(family, LowRankCurvature(scale, *none)), name)


def _low_rank(
    family: LowRankNormal, loc: Array, curvature: DenseCurvature | LowRankCurvature
) -> LowRankNormal:
    """The widest directions of the curvature become columns of the factor; the others stay nearly zero."""
    if isinstance(curvature, DenseCurvature):
        scale = curvature.hessian.diagonal() ** -0.5
        eigenvalues, directions = np.linalg.eigh(curvature.hessian * np.outer(scale, scale))
        variances = 1 / eigenvalues
    else:
        scale, directions, variances = curvature.scale, curvature.directions, curvature.stretches**2
    rank = family.factor.shape[1]
    widest = [i for i in np.argsort(-variances)[:rank] if variances[i] > 1]
    factor = np.array(family.factor) * scale[:, None]
    factor[:, : len(widest)] = scale[:, None] * directions[:, widest] * np.sqrt(variances[widest] - 1)
    return LowRankNormal(loc, jnp.asarray(np.log(scale), loc.dtype), jnp.asarray(factor, loc.dtype))
