"""Quantiles of normals, on the host."""

import statistics
from collections.abc import Iterable

import numpy as np
from jaxtyping import Array, Float


def normal_quantiles(
    mean: Float[Array, " dim"], std: Float[Array, " dim"], probabilities: Iterable[float]
) -> Float[np.ndarray, "probability dim"]:
    """For each probability those of all coordinates."""
    standard = [statistics.NormalDist().inv_cdf(each) for each in probabilities]
    return np.asarray(mean, float) + np.outer(standard, np.asarray(std, float))
