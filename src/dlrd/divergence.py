"""Divergences between normal distributions, in closed form."""

from typing import Protocol

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from dlrd.families import MeanFieldNormal


class Normal(Protocol):
    """A normal distribution: its mean and a lower triangular root of its covariance."""

    @property
    def mean(self) -> Float[Array, " dim"]: ...

    @property
    def scale_tril(self) -> Float[Array, "dim dim"]: ...


def kl(p: Normal, q: Normal) -> Float[Array, ""]:
    r"""The Kullback–Leibler divergence $D_{KL}(p ‖ q) = E_p[\log p - \log q]$ of two normals.

    With $M = L_q^{-1} L_p$ and $δ = L_q^{-1} (μ_p - μ_q)$ it is $½ (‖M‖_F^2 - d + ‖δ‖^2) - \log |\det M|$.

    Args:
        p, q: normal families of the same dimension, of the same kind or not.

    Example:
        >>> import dlrd
        >>> print(kl(dlrd.MeanFieldNormal([1.0], [0.0]), dlrd.MeanFieldNormal.standard(1)))
        0.5
    """
    _check_dimensions(p, q)
    if isinstance(p, MeanFieldNormal) and isinstance(q, MeanFieldNormal):
        log_ratio = p.log_scale - q.log_scale
        shift = (p.mean - q.mean) / q.std
        # expm1(x) − x, not exp(x) − 1 − x: what is left of two nearly equal normals keeps its digits.
        return 0.5 * jnp.sum(jnp.expm1(2 * log_ratio) - 2 * log_ratio + shift**2)
    ratio, shift = _whitened(p, q)
    log_det = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(ratio))))
    return 0.5 * (jnp.sum(ratio**2) - len(shift) + jnp.sum(shift**2)) - log_det


def jeffreys(p: Normal, q: Normal) -> Float[Array, ""]:
    r"""Jeffreys divergence of two normals, the paper's measure of accuracy.

    $D_J = D_{KL}(p ‖ q) + D_{KL}(q ‖ p)$ is a sum of squares,
    $½ (‖M - M^{-\top}‖_F^2 + ‖L_p^{-1} Δμ‖^2 + ‖L_q^{-1} Δμ‖^2)$ with $M = L_q^{-1} L_p$, and computed as
    such: small values are as exact as large ones.

    Args:
        p, q: normal families of the same dimension, of the same kind or not.

    Example:
        >>> import dlrd
        >>> print(jeffreys(dlrd.MeanFieldNormal([1.0], [0.0]), dlrd.MeanFieldNormal.standard(1)))
        1.0
    """
    _check_dimensions(p, q)
    if isinstance(p, MeanFieldNormal) and isinstance(q, MeanFieldNormal):
        difference = p.mean - q.mean
        spread = 2 * jnp.sinh(p.log_scale - q.log_scale)  # σ_p/σ_q − σ_q/σ_p
        return 0.5 * jnp.sum(spread**2 + (difference / p.std) ** 2 + (difference / q.std) ** 2)
    ratio, shift_q = _whitened(p, q)
    inverse, shift_p = _whitened(q, p)
    return 0.5 * (jnp.sum((ratio - inverse.T) ** 2) + jnp.sum(shift_p**2) + jnp.sum(shift_q**2))


def _whitened(p: Normal, q: Normal) -> tuple[Float[Array, "dim dim"], Float[Array, " dim"]]:
    """L_q⁻¹ L_p and L_q⁻¹ (μ_p − μ_q): p as seen where q is standard."""
    columns = jnp.concatenate([p.scale_tril, (p.mean - q.mean)[:, None]], axis=1)
    solution = solve_triangular(q.scale_tril, columns, lower=True)
    return solution[:, :-1], solution[:, -1]


def _check_dimensions(p: Normal, q: Normal) -> None:
    if p.mean.shape != q.mean.shape:
        raise ValueError(f"p and q must have the same dimension, got {p.mean.shape[0]} and {q.mean.shape[0]}")
