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

    With $L_q^{-1} L_p = I + D$ and $δ = L_q^{-1} (μ_p - μ_q)$ it is
    $½ (‖D‖_F^2 + ‖δ‖^2) + \sum_i (D_{ii} - \log(1 + D_{ii}))$, a sum of terms that are not negative: small
    values are as exact as large ones.

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
        change = jnp.expm1(log_ratio)
        shift = (p.mean - q.mean) / q.std
        return jnp.sum(0.5 * (change**2 + shift**2) + _minus_log(change, log_ratio))
    change, shift = _whitened(p, q)
    log_ratio = _log_diagonal(p) - _log_diagonal(q)
    return 0.5 * (jnp.sum(change**2) + jnp.sum(shift**2)) + jnp.sum(
        _minus_log(jnp.diagonal(change), log_ratio)
    )


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
    change, shift_q = _whitened(p, q)
    inverse_change, shift_p = _whitened(q, p)
    return 0.5 * (jnp.sum((change - inverse_change.T) ** 2) + jnp.sum(shift_p**2) + jnp.sum(shift_q**2))


def _whitened(p: Normal, q: Normal) -> tuple[Float[Array, "dim dim"], Float[Array, " dim"]]:
    """L_q⁻¹ L_p − I and L_q⁻¹ (μ_p − μ_q): how p differs from q where q is standard."""
    root_p, root_q = _positive_root(p), _positive_root(q)
    columns = jnp.concatenate([root_p - root_q, (p.mean - q.mean)[:, None]], axis=1)
    solution = solve_triangular(root_q, columns, lower=True)
    return solution[:, :-1], solution[:, -1]


def _positive_root(normal: Normal) -> Float[Array, "dim dim"]:
    """The one lower triangular root of the covariance whose diagonal is positive."""
    root = normal.scale_tril
    return jnp.where(jnp.diagonal(root) < 0, -root, root)


def _log_diagonal(normal: Normal) -> Float[Array, " dim"]:
    return jnp.log(jnp.abs(jnp.diagonal(normal.scale_tril)))


def _minus_log(change: Float[Array, " dim"], log_ratio: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """change − log(1 + change), by its series where the two nearly cancel; the logarithm is `log_ratio`."""
    is_small = jnp.abs(change) < 1e-2
    small = jnp.where(is_small, change, 0)
    series = sum((-1) ** n * small**n / n for n in range(2, 10))  # the next term is below 1e-16 of the first
    return jnp.where(is_small, series, change - log_ratio)


def _check_dimensions(p: Normal, q: Normal) -> None:
    if p.mean.shape != q.mean.shape:
        raise ValueError(f"p and q must have the same dimension, got {p.mean.shape[0]} and {q.mean.shape[0]}")
