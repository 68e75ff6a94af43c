"""Section 3.1: a joint density whose best mean-field normal is known in closed form."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dlrd.families import MeanFieldNormal
from dlrd.models import LogDensity


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
    rng = np.random.default_rng(seed)
    center = rng.normal(size=dim)
    scale = rng.uniform(1, 5, size=dim)
    factor = 0.1 * rng.normal(size=(dim, dim))
    precision = np.linalg.inv(factor @ factor.T + np.eye(dim))
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
