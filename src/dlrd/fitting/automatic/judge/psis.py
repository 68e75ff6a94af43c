"""Did it work? The tail of the importance ratios p/q tells: the k̂ of Pareto-smoothed importance sampling."""

import numpy as np
from jaxtyping import Float

MIN_TAIL = 5
NUM_MADE_UP = 10
"""Observations of a shape of ½, which steady the estimate."""
MIN_SPREAD = 1e-4
"""Of log ratios: below, q is p up to rounding, and there is no tail."""


def tail_shape(log_ratios: Float[np.ndarray, " draw"]) -> tuple[float, float]:
    r"""k̂, the shape of a generalised Pareto distribution fitted to the largest ratios p/q.

    Below 0.5 the family is close to the posterior, below 0.7 it can be corrected by importance sampling,
    above it is too far away, most often too narrow: its means and standard deviations may be off.

    The fit is the one of Zhang and Stephens, the mean of k over a profile likelihood with their prior, drawn
    towards ½ by ten made-up observations as Vehtari and others advise.

    Args:
        log_ratios: log p − log q at independent draws from q; a constant does not matter.

    Returns:
        k̂ and its standard error, for n ratios in the tail (1 + k̂)/√n. Infinity where the largest ratios
        cannot be told from one another; nan for too few draws.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> log_ratios = 0.8 * rng.exponential(size=100_000)  # a Pareto distribution of shape 0.8
        >>> abs(tail_shape(log_ratios)[0] - 0.8) < 0.1
        True

    References:
        Yao, Vehtari, Simpson and Gelman, "Yes, but did it work?", 2018.
        Zhang and Stephens, "A new and efficient estimation method for the generalized Pareto
        distribution", 2009.
    """
    log_ratios = log_ratios[np.isfinite(log_ratios)]
    num_tail = int(min(0.2 * len(log_ratios), 3 * np.sqrt(len(log_ratios))))
    if num_tail < MIN_TAIL:
        return float("nan"), float("nan")
    ordered = np.sort(log_ratios)
    if ordered[-1] - ordered[0] < MIN_SPREAD:
        return 0.0, 0.0
    cutoff = ordered[-num_tail - 1]
    # In units in which none is beyond e^300; the shape does not depend on them.
    excesses = ordered[-num_tail:] - cutoff
    shift = max(excesses[-1] - 300.0, 0.0)
    excesses = np.exp(excesses - shift) - np.exp(-shift) if shift else np.expm1(excesses)
    if excesses[-1] <= 0:
        return float("inf"), float("inf")
    shape = _generalized_pareto_shape(np.maximum(excesses, 1e-150))
    return shape, abs(1 + shape) / (num_tail + NUM_MADE_UP) ** 0.5


def divergence(log_ratios: Float[np.ndarray, " draw"]) -> float:
    r"""The divergence $KL(q ‖ p)$ of the family from the posterior, in nats: $\log E[p/q] - E[\log p/q]$.

    As the draws show it: too low where they miss a part of the posterior.

    Args:
        log_ratios: log p − log q at independent draws from q; a constant does not matter.

    Example:
        >>> log_ratios = 0.1 * np.random.default_rng(0).standard_normal(100_000)
        >>> abs(divergence(log_ratios) - 0.005) < 1e-4
        True
    """
    log_ratios = log_ratios[np.isfinite(log_ratios)]
    if not len(log_ratios):
        return float("nan")
    above = log_ratios - np.max(log_ratios)
    return float(np.log(np.mean(np.exp(above))) - np.mean(above))


def _generalized_pareto_shape(excesses: Float[np.ndarray, " tail"]) -> float:
    """The shape of a generalised Pareto distribution, from its sorted excesses."""
    num = len(excesses)
    num_candidates = 30 + int(np.sqrt(num))
    quartile = excesses[int(num / 4 + 0.5) - 1]
    ranks = np.arange(1, num_candidates + 1) - 0.5
    rates = 1 / excesses[-1] + (1 - np.sqrt(num_candidates / ranks)) / (3 * quartile)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shapes = np.mean(np.log1p(-rates[:, None] * excesses), axis=1)
        log_likelihoods = num * (np.log(-rates / shapes) - shapes - 1)
    log_likelihoods = np.nan_to_num(log_likelihoods, nan=-np.inf, posinf=-np.inf)
    weights = np.exp(log_likelihoods - log_likelihoods.max())
    rate = float(np.sum(rates * weights) / np.sum(weights))
    shape = float(np.mean(np.log1p(-rate * excesses)))
    if not np.isfinite(shape):
        return float("inf")
    return (num * shape + NUM_MADE_UP * 0.5) / (num + NUM_MADE_UP)
