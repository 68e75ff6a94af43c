"""What independent blocks of draws tell: numbers without the bias of noise, and their standard errors."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float


def gain_of(by_block: Float[np.ndarray, " block"]) -> tuple[float, float]:
    """What moving as far again would gain, to the first order, and its standard error."""
    with np.errstate(over="ignore", invalid="ignore"):
        gain, error = np.mean(by_block), np.std(by_block, ddof=1) / np.sqrt(len(by_block))
    return (float(gain), float(error)) if np.isfinite(gain + error) else (float("inf"), float("inf"))


def gap_of(products: Float[np.ndarray, "block block"]) -> tuple[float, float]:
    """½ ‖g‖² from the products of different blocks, and its standard error by leaving one out at a time."""
    gap, error = _jackknife(products, _between)
    return (gap, error) if np.isfinite(gap + error) else (float("inf"), float("inf"))


def flat_of(along: Float[np.ndarray, "block way"], confidence: float) -> tuple[float, float, float]:
    """½ ‖a‖² of what blocks have along few ways; its bound with confidence; and what noise adds to it.

    The square of one number that is only noise may be nearly zero, and so its own standard error. The bound
    is that of the number itself.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean, error = np.mean(along, axis=0), np.std(along, axis=0, ddof=1) / np.sqrt(len(along))
        bound = 0.5 * float(np.sum((np.abs(mean) + confidence * error) ** 2))
        noise = 0.5 * float(np.sum(error**2))
        return 0.5 * float(np.sum(mean**2)) - noise, bound, noise


def noise_of(products: Float[np.ndarray, "block block"], gap: float) -> tuple[float, float]:
    """What noise adds to ½ ‖g‖² of the mean of all blocks; and the error of the gap behind a correction."""
    num = len(products)
    noise = float(np.mean(products)) - gap
    weight = max(gap, 0.0) / (max(gap, 0.0) + noise) if noise > 0 else 0.0

    def left(each: Float[np.ndarray, "some some"]) -> float:
        between = _between(each)
        return (1 - weight) ** 2 * between + weight**2 * len(each) / num * (float(np.mean(each)) - between)

    return noise, _jackknife(products, left)[1]


def _between(products: Float[np.ndarray, "block block"]) -> float:
    """The mean over pairs of different blocks."""
    num = len(products)
    return float((products.sum() - np.trace(products)) / (num * (num - 1)))


@np.errstate(over="ignore", invalid="ignore")
def _jackknife(
    products: Float[np.ndarray, "block block"], value_fn: Callable[[Float[np.ndarray, "some some"]], float]
) -> tuple[float, float]:
    """A number made of products, and its standard error by leaving out one block at a time."""
    num = len(products)
    without = np.array([value_fn(np.delete(np.delete(products, i, 0), i, 1)) for i in range(num)])
    error = np.sqrt((num - 1) / num * np.sum((without - np.mean(without)) ** 2))
    return value_fn(products), float(error)
