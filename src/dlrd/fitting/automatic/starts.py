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
MAX_ITERATIONS = 50
"""Of a search for another mode."""
SAME_MODE, SAME_MODE_PER_DIM = 1.0, 0.01
"""Squared distance, in the units of its curvature, within which a descent is on its way to a known mode."""


class Start(NamedTuple):
    """A family to start from."""

    family: Family
    name: str  # where it comes from, in words


def find_starts(
    target: Target, family: Family, key: Key[Array, ""], num_starts: int, max_gradients: float = np.inf
) -> tuple[list[Start], bool]:
    """Families to start from, the most promising first, and whether the first is at a mode.

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
    if not first.is_found:
        starts = [as_given(family)]
        starts += [Start(_laplace(family, first), "the end of the descent")] * bool(
            np.isfinite(first.log_density)
        )
        middle = first.path[len(first.path) // 2]
        if is_dense and len(first.path) > 2:
            half_way = first._replace(point=middle, curvature=curvature_at(target, middle))
            starts.append(Start(_laplace(family, half_way), "half-way down"))
        return starts, False
    modes = [first]
    noise = jnp.asarray(host_noise(key, (num_starts, family.noise_size)), family.loc.dtype)
    draws = np.asarray(family.from_noise(noise), float) - center
    for number in range(num_starts - 1):
        if target.num_gradients > max_gradients:
            break
        side, pair = (-1) ** number, number // 2
        point = center + side * WIDENINGS[pair % len(WIDENINGS)] * draws[pair]
        mode = find_mode(
            target,
            point,
            is_dense,
            first.curvature,
            lambda at: any(_is_near(mode, at) for mode in modes),
            MAX_ITERATIONS,
        )
        if mode is not None and mode.is_found and not any(_is_near(known, mode.point) for known in modes):
            modes.append(mode)
    modes.sort(key=lambda mode: -_laplace_evidence(mode))
    return [Start(_laplace(family, mode), f"mode {i + 1}") for i, mode in enumerate(modes)], True


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
