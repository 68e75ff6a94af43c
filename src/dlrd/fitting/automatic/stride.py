"""A stride: far along the way that a fit has come, where steps would take ever longer for it.

In a funnel, say, means and scales would have to change together, and natural gradients change them one after
the other: each time twice as many steps gain about the same. The way that they take shows where to go.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from scipy.linalg import solve_triangular

from dlrd.families import Family, FullRankNormal, MeanFieldNormal
from dlrd.fitting.automatic.look import improvement
from dlrd.fitting.automatic.starts import with_curvature
from dlrd.gradients import LogDensity
from dlrd.gradients.curvature import Curved, DenseCurvature

NUM_DRAWS = 128
"""Behind each comparison of two families, with the same noise for both."""
MAX_LENGTH = 64
"""In units of the way from the look before."""
MAX_STRETCH = 20.0
"""Of the logarithm of a scale."""


def stride(
    log_density: LogDensity, before: Family, now: Family, key: Key[Array, ""], max_gradients: int
) -> tuple[Family, int]:
    """The family 1, 2, 4, … times as far along the way from `before` to `now`, as long as its ELBO rises.

    Args:
        log_density: of one draw.
        before: where the fit was at the look before: a full-rank normal, or a mean-field one with the whole
            curvature.
        now: where it is.
        key: of the draws of the comparisons.
        max_gradients: that may be spent.

    Returns:
        The family, `now` itself where a stride does not help, and the gradients spent.
    """
    best, num_gradients, length = now, 0, 1
    while length <= MAX_LENGTH and num_gradients + 2 * NUM_DRAWS <= max_gradients:
        further = _extrapolated(before, now, length)
        gain, error = improvement(log_density, best, further, key, NUM_DRAWS)
        num_gradients += 2 * NUM_DRAWS
        if not gain > 2 * error:  # nan where nothing is finite so far out
            break
        best, length = further, 2 * length
    return best, num_gradients


def _extrapolated(before: Family, now: Family, length: float) -> Family:
    """`length` times as far beyond `now` as that is from `before`; scales change by factors."""
    if isinstance(now, Curved):
        assert isinstance(before, Curved)
        assert isinstance(now.curvature, DenseCurvature)
        here, there = before.family, now.family
        stretch = _limited(length * np.asarray(there.log_scale - here.log_scale, float))
        family = MeanFieldNormal(
            there.loc + length * (there.loc - here.loc),
            there.log_scale + jnp.asarray(stretch, there.log_scale.dtype),
        )
        # In units of the scales the curvature stays as it is.
        factor = np.exp(stretch)
        hessian = np.asarray(now.curvature.hessian, float) / np.outer(factor, factor)
        root = np.asarray(now.curvature.root, float) * factor[:, None]
        return with_curvature(family, DenseCurvature(hessian, root))
    assert isinstance(before, FullRankNormal)
    assert isinstance(now, FullRankNormal)
    old, new = (np.asarray(family.scale_tril, float) for family in (before, now))
    change = solve_triangular(old, new, lower=True)  # new = old change
    diagonal = change.diagonal()
    shear = np.tril(change / diagonal, -1)
    further = (np.eye(len(new)) + length * shear) * np.exp(_limited(length * np.log(np.abs(diagonal))))
    return FullRankNormal(
        now.loc + length * (now.loc - before.loc), jnp.asarray(new @ further, now.cholesky.dtype)
    )


def _limited(stretch: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " dim"]:
    return np.clip(stretch, -MAX_STRETCH, MAX_STRETCH)
