"""A normal whose covariance is diagonal plus low rank."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, ArrayLike, Float, Key

from dlrd.checks import check_count
from dlrd.families._checks import check_shape, check_vector, float_array
from dlrd.families._limits import MAX_CHANGE, limited
from dlrd.families._noise import standard_noise
from dlrd.families._quantiles import normal_quantiles
from dlrd.families.curvature import Curvature


class LowRankNormal(eqx.Module):
    r"""A normal distribution with covariance $\mathrm{diag}(σ^2) + F F^\top$, F of few columns.

    Between mean-field and full rank: the strongest correlations of many parameters, at a cost and memory that
    grow with dim · rank. Its parameters are λ = (μ, log σ, F).

    Args:
        loc: μ, a vector.
        log_scale: log σ, a vector of the same length.
        factor: F, a matrix of shape (dim, rank).

    Example:
        >>> import dlrd
        >>> q = dlrd.LowRankNormal([0.0, 0.0], [0.0, 0.0], [[2.0], [2.0]])
        >>> print(q.std**2, q.covariance[0, 1])
        [5. 5.] 4.0
    """

    needs_whole_curvature: ClassVar[bool] = False
    loc: Float[Array, " dim"]
    log_scale: Float[Array, " dim"]
    factor: Float[Array, "dim rank"]

    def __init__(self, loc: ArrayLike, log_scale: ArrayLike, factor: ArrayLike):
        self.loc = float_array("loc", loc)
        self.log_scale = float_array("log_scale", log_scale)
        self.factor = float_array("factor", factor)
        check_vector("loc", self.loc)
        check_shape("log_scale", self.log_scale, self.loc.shape)
        if self.factor.ndim != 2 or len(self.factor) != len(self.loc) or not self.factor.shape[1]:
            raise ValueError(
                f"factor must have shape ({len(self.loc)}, rank), rank at least 1, got {self.factor.shape}"
            )

    @classmethod
    def standard(cls, dim: int, rank: int = 10, key: int | Key[Array, ""] = 0) -> "LowRankNormal":
        """Nearly N(0, I) in `dim` dimensions, in the default float type.

        F starts from small random numbers: at zero its gradients would vanish, and equal columns stay equal.
        """
        check_count("dim", dim)
        check_count("rank", rank)
        typed = jax.random.key(key) if isinstance(key, int) else key
        factor = 0.01 * jax.random.normal(typed, (dim, min(rank, dim)), dtype=float)
        return cls(jnp.zeros(dim, dtype=float), jnp.zeros(dim, dtype=float), factor)

    def sample(
        self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()
    ) -> Float[Array, "*sample_shape dim"]:
        """Independent draws, z = μ + σ ε + F η."""
        return self.from_noise(standard_noise(key, (*sample_shape, self.noise_size), self.loc.dtype))

    @property
    def noise_size(self) -> int:
        return sum(self.factor.shape)

    def sample_noise(self, key: Key[Array, ""], num_draws: int) -> Float[Array, "num_draws noise"]:
        """The noise of independent draws, ε and behind it η."""
        return standard_noise(key, (num_draws, self.noise_size), self.loc.dtype)

    def from_noise(self, noise: Float[Array, "*batch noise"]) -> Float[Array, "*batch dim"]:
        """μ + σ ε + F η for the given ε and, behind it, η."""
        own, shared = jnp.split(noise, [len(self.loc)], axis=-1)
        return self.loc + jnp.exp(self.log_scale) * own + shared @ self.factor.T

    def log_prob(self, x: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        r"""The log density at `x`; leading axes are batches.

        With the small matrix $C = I + G^\top G$, $G = F/σ$, by the lemmas of Woodbury and of the determinant:
        $w^\top Σ^{-1} w = ‖w/σ‖^2 - ‖C^{-1/2} G^\top w/σ‖^2$ and $|Σ| = |C| \prod σ^2$.
        """
        scaled = (self.factor * jnp.exp(-self.log_scale)[:, None]).astype(self.loc.dtype)
        root = jnp.linalg.cholesky(jnp.eye(scaled.shape[1], dtype=scaled.dtype) + scaled.T @ scaled)
        noise = ((x - self.loc) * jnp.exp(-self.log_scale)).reshape(-1, len(self.loc))
        explained = solve_triangular(root, (noise @ scaled).T, lower=True)
        square = jnp.sum(noise**2, axis=1) - jnp.sum(explained**2, axis=0)
        log_det = jnp.sum(self.log_scale) + jnp.sum(jnp.log(jnp.diagonal(root)))
        normalizer = log_det + 0.5 * len(self.loc) * jnp.log(2 * jnp.pi)
        return (-0.5 * square - normalizer).reshape(x.shape[:-1])

    def natural_gradient(
        self, slopes: Float[Array, "num_draws dim"], noise: Float[Array, "num_draws noise"]
    ) -> "LowRankNormal":
        """With h = ∇ log p − ∇ log q: the means of h, of ½ σ h ε and of ½ h ηᵀ.

        For μ and F the covariance that is still to be multiplied by makes it the natural gradient: `moved`
        does that. As the effects of log σ and F overlap, the whole is only close to it.
        """
        own, shared = jnp.split(noise, [len(self.loc)], axis=-1)
        scale = jnp.exp(self.log_scale)
        residual = slopes + self._score(scale * own + shared @ self.factor.T)
        return LowRankNormal(
            jnp.mean(residual, axis=0),
            0.5 * scale * jnp.mean(residual * own, axis=0),
            0.5 * residual.T @ shared / len(noise),
        )

    def moved(self, step: "LowRankNormal") -> "LowRankNormal":
        """μ + Σ δ, log σ + δ′, F + Σ Δ."""
        return LowRankNormal(
            self.loc + self._change(step.loc[:, None], len(self.loc) ** 0.5)[:, 0],
            self.log_scale + limited(step.log_scale),
            self.factor + self._change(step.factor, 1.0),
        )

    def _change(self, columns: Float[Array, "dim column"], size: float) -> Float[Array, "dim column"]:
        """Σ times the columns, its norm where q is N(0, I) limited, to more for more that it may change."""
        change = jnp.exp(2 * self.log_scale)[:, None] * columns + self.factor @ (self.factor.T @ columns)
        norm = jnp.sqrt(jnp.sum(columns * change))
        return change * (size * MAX_CHANGE / jnp.maximum(norm, size * MAX_CHANGE))

    def _score(self, centered: Float[Array, "num_draws dim"]) -> Float[Array, "num_draws dim"]:
        """Σ⁻¹ (z − μ), by the lemma of Woodbury."""
        inverse = jnp.exp(-self.log_scale)
        scaled = self.factor * inverse[:, None]
        core = jnp.eye(scaled.shape[1], dtype=scaled.dtype) + scaled.T @ scaled
        noise = centered * inverse
        return (noise - (scaled @ jnp.linalg.solve(core, scaled.T @ noise.T)).T) * inverse

    def at_mode(self, point: Float[np.ndarray, " dim"], curvature: Curvature) -> "LowRankNormal":
        """The widest directions of the curvature become columns of F; the others stay nearly zero."""
        dtype, rank = self.loc.dtype, self.factor.shape[1]
        scale, directions, variances = curvature.axes()
        widest = [i for i in np.argsort(-variances)[:rank] if variances[i] > 1]
        factor = np.array(self.factor) * scale[:, None]
        factor[:, : len(widest)] = scale[:, None] * directions[:, widest] * np.sqrt(variances[widest] - 1)
        log_scale = jnp.asarray(np.log(scale), dtype)
        return LowRankNormal(jnp.asarray(point, dtype), log_scale, jnp.asarray(factor, dtype))

    def as_start(self) -> "LowRankNormal":
        return self

    def quantiles(self, probabilities: Any) -> Float[np.ndarray, "probability dim"]:
        """Of each coordinate, on the host."""
        return normal_quantiles(self.mean, self.std, probabilities)

    @property
    def mean(self) -> Float[Array, " dim"]:
        return self.loc

    @property
    def std(self) -> Float[Array, " dim"]:
        return jnp.sqrt(jnp.exp(2 * self.log_scale) + jnp.sum(self.factor**2, axis=1))

    @property
    def covariance(self) -> Float[Array, "dim dim"]:
        """The whole matrix: for dimensions where that fits into memory."""
        return jnp.diag(jnp.exp(2 * self.log_scale)) + self.factor @ self.factor.T

    @property
    def scale_tril(self) -> Float[Array, "dim dim"]:
        """The lower triangular root of `covariance`, for `dlrd.kl` and `dlrd.jeffreys`."""
        return jnp.linalg.cholesky(self.covariance)
