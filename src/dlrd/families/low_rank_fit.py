"""The best normal with covariance diag(σ²) + F Fᵀ for a curvature: on the host, in double precision."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dlrd.families.curvature import Curvature

MAX_ITERATIONS = 200
MIN_GAIN = 1e-6
"""Of an iteration, in nats, to go on."""
MIN_SHARE = 0.1
"""Of the sd that a coordinate has if all others are known, for σ: near zero, all would be nearly singular."""


class LowRank(NamedTuple):
    """A covariance diag(σ²) + F Fᵀ."""

    scale: Float[np.ndarray, " dim"]  # σ
    factor: Float[np.ndarray, "dim rank"]  # F


def nearest_low_rank(curvature: Curvature, start: LowRank) -> LowRank:
    r"""Of all these covariances Σ that which is best for a normal posterior with precision H.

    It minimises $½ \mathrm{tr}(H Σ) - ½ \log |Σ|$. The widest directions of H alone would leave the scales as
    if they were not there, and what they share with others uncounted.

    Args:
        curvature: H.
        start: where to begin; a column of F that is zero would stay so.
    """
    import scipy.optimize  # here, as it sets a filter of warnings that users may not want

    dim, unit = len(start.scale), start.scale

    def loss(place: Float[np.ndarray, " parameter"]) -> tuple[float, Float[np.ndarray, " parameter"]]:
        stretch, shares = place[:dim], place[dim:].reshape(dim, -1)
        scale, factor = unit * np.exp(stretch), unit[:, None] * shares
        scaled = factor / scale[:, None]
        inner = np.eye(scaled.shape[1]) + scaled.T @ scaled
        narrowed = np.linalg.solve(inner, scaled.T).T  # Σ⁻¹ F in units of σ
        images = np.asarray(curvature.times(factor.T), float).T
        own = scale**2 * diagonal
        value = (
            0.5 * (own.sum() + np.sum(images * factor)) - stretch.sum() - 0.5 * np.linalg.slogdet(inner)[1]
        )
        slope = own - 1 + np.sum(narrowed * scaled, axis=1)
        return value, np.concatenate(
            [slope, (unit[:, None] * images - narrowed / np.exp(stretch)[:, None]).ravel()]
        )

    diagonal = np.asarray(curvature.diagonal, float)
    least = np.log(MIN_SHARE / (unit * np.sqrt(diagonal)))
    place = np.concatenate([np.zeros(dim), (start.factor / unit[:, None]).ravel()])
    with np.errstate(over="ignore", invalid="ignore"):
        found: Any = scipy.optimize.minimize(
            loss,
            place,
            jac=True,
            method="L-BFGS-B",
            bounds=[(low, None) for low in least] + [(None, None)] * (len(place) - dim),
            options={
                "maxiter": MAX_ITERATIONS,
                "ftol": MIN_GAIN / max(abs(loss(place)[0]), 1.0),
                "maxcor": 20,
            },
        )
    if not np.isfinite(found.x).all():
        return start
    return LowRank(unit * np.exp(found.x[:dim]), unit[:, None] * found.x[dim:].reshape(dim, -1))
