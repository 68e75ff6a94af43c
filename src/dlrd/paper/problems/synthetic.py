"""Section 3.1: a joint density whose best normals are known."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dlrd.families import FullRankNormal, MeanFieldNormal
from dlrd.models import LogDensity

NUM_ITERATIONS = 100
"""Of the equation for the best full-rank normal: twice what it takes to rounding."""


class Synthetic(NamedTuple):
    """The synthetic test case: its log density and the best mean-field normal."""

    log_density: LogDensity
    optimum: MeanFieldNormal


def synthetic(dim: int = 100, seed: int = 0) -> Synthetic:
    r"""The product of a normal and a generalised normal density, the paper's equation for $p(z, x)$.

    $$\log p(z) = -½ \sum_i ((z_i - μ_i)/σ_i)^4 - ½ (z - μ)^\top Λ (z - μ)$$

    with μ ~ N(0, 1), σ ~ U(1, 5), Λ = (V Vᵀ + I)⁻¹, V_ij ~ 0.1 N(0, 1). The best mean-field normal has mean μ
    and the variances of appendix B,

    $$s^2 = \frac{σ^4}{12} \left(-\mathrm{diag} Λ + \sqrt{(\mathrm{diag} Λ)^2 + 24 σ^{-4}}\right).$$

    Args:
        dim: the dimension of z.
        seed: of μ, σ and V.

    Example:
        >>> problem = synthetic(dim=3)
        >>> problem.optimum.mean.shape
        (3,)
    """
    center, scale, precision = _constants(dim, seed)
    diagonal = np.diag(precision)
    variance = scale**4 / 12 * (np.sqrt(diagonal**2 + 24 / scale**4) - diagonal)
    optimum = MeanFieldNormal(jnp.asarray(center, float), jnp.asarray(np.log(variance) / 2, float))
    center, scale, precision = (jnp.asarray(array, float) for array in (center, scale, precision))

    @jax.custom_jvp
    def square(centered: Float[Array, " dim"]) -> Float[Array, ""]:
        return 0.5 * centered @ (precision @ centered)

    @square.defjvp
    def square_and_slope(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
        # Λ is symmetric, so one product gives both; that is half the cost of the problem.
        product = precision @ primals[0]
        return 0.5 * primals[0] @ product, product @ tangents[0]

    def log_density(z: Float[Array, " dim"]) -> Float[Array, ""]:
        centered = z - center
        return -0.5 * jnp.sum((centered / scale) ** 4) - square(centered)

    return Synthetic(log_density, optimum)


def best_full_rank(dim: int = 100, seed: int = 0) -> FullRankNormal:
    r"""The best full-rank normal: its mean is μ, its precision $Λ + 6 \, \mathrm{diag}(Σ_{ii} / σ_i^4)$.

    The variances of that equation are found by iteration, to rounding.
    """
    center, scale, precision = _constants(dim, seed)

    def covariance_given(variance: np.ndarray) -> np.ndarray:
        return np.linalg.inv(precision + np.diag(6 * variance / scale**4))

    variance = np.ones(dim)
    for _ in range(NUM_ITERATIONS):  # half the way: larger variances make the next ones smaller
        variance = 0.5 * (variance + np.diagonal(covariance_given(variance)))
    return FullRankNormal(center, np.linalg.cholesky(covariance_given(variance)))


def _constants(dim: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """μ, σ and Λ."""
    rng = np.random.default_rng(seed)
    center = rng.normal(size=dim)
    scale = rng.uniform(1, 5, size=dim)
    factor = 0.1 * rng.normal(size=(dim, dim))
    return center, scale, np.linalg.inv(factor @ factor.T + np.eye(dim))
