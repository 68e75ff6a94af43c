"""A normal whose covariance is diagonal plus low rank."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Key

from dlrd.checks import check_count
from dlrd.families._checks import check_shape, check_vector, float_array
from dlrd.families._limits import MAX_CHANGE, limited, limited_stretch
from dlrd.families._noise import standard_noise
from dlrd.families._quantiles import normal_quantiles
from dlrd.families.curvature import MAX_WHOLE, Curvature, DenseCurvature, diagonal_curvature
from dlrd.families.curved_low_rank import CurvedLowRank
from dlrd.families.low_rank_fit import LowRank, nearest_low_rank
from dlrd.families.low_rank_geometry import LowRankGeometry, nearest_rotation

MIN_VARIANCE = 1 + 1e-6
"""Of a direction of the curvature, in units of its diagonal, that is more than rounding."""
MIN_SCALE = 1e-2
"""σ as a share of the standard deviation, down to which an extrapolation may bring it."""


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
    richer: ClassVar[str] = "no family at all: dlrd.fit then goes on to richer normals, as far as that pays"
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
        return cls(np.zeros(dim), np.zeros(dim), factor)

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

        With $G = F/σ$, $w = (x - μ)/σ$ and $(G; I) = Q R$, Q orthonormal in columns, $|Σ| = |R|^2 \prod σ^2$
        and $(x - μ)^\top Σ^{-1} (x - μ) = ‖(w; 0) - Q Q^\top (w; 0)‖^2$. The lemma of Woodbury would take a
        difference of two squares, of large ones where F is much larger than σ.
        """
        own = (x - self.loc) * jnp.exp(-self.log_scale)
        return self._log_density(own, jnp.zeros((*own.shape[:-1], self.factor.shape[1]), own.dtype))

    def log_prob_of_noise(self, noise: Float[Array, "*batch noise"]) -> Float[Array, "*batch"]:
        r"""The log density at `from_noise(noise)`, without the rounding of these draws.

        $((z - μ)/σ; 0) = (ε; -η) + (G; I) η$, and the second part lies in the range of Q: (ε; −η) may take
        the place of the draw in `log_prob`. No number is then larger than the noise, whatever the scales.
        """
        own, shared = jnp.split(noise, [len(self.loc)], axis=-1)
        return self._log_density(own, -shared)

    def _log_density(
        self, own: Float[Array, "*batch dim"], shared: Float[Array, "*batch rank"]
    ) -> Float[Array, "*batch"]:
        own, shared, log_det = self._residual(own, shared)
        square = jnp.sum(own**2, axis=-1) + jnp.sum(shared**2, axis=-1)
        return -0.5 * square - log_det - 0.5 * len(self.loc) * jnp.log(2 * jnp.pi)

    def _residual(
        self, own: Float[Array, "*batch dim"], shared: Float[Array, "*batch rank"]
    ) -> tuple[Float[Array, "*batch dim"], Float[Array, "*batch rank"], Float[Array, ""]]:
        """Both parts of (I − Q Qᵀ) (own; shared), and ½ log |Σ|.

        By the decomposition of (G; I) only the root of Σ's condition enters, where I + GᵀG has all of it.
        """
        scaled = (self.factor * jnp.exp(-self.log_scale)[:, None]).astype(self.loc.dtype)
        basis, root = jnp.linalg.qr(jnp.concatenate([scaled, jnp.eye(scaled.shape[1], dtype=scaled.dtype)]))
        upper, lower = jnp.split(basis, [len(self.loc)])
        within = own @ upper + shared @ lower
        log_det = jnp.sum(self.log_scale) + jnp.sum(jnp.log(jnp.abs(jnp.diagonal(root))))
        return own - within @ upper.T, shared - within @ lower.T, log_det

    def natural_gradient(
        self, slopes: Float[Array, "num_draws dim"], noise: Float[Array, "num_draws noise"]
    ) -> "LowRankNormal":
        """With h = ∇ log p − ∇ log q: the means of h, of ½ σ h ε and of ½ h ηᵀ.

        For μ and F the covariance that is still to be multiplied by makes it the natural gradient: `moved`
        does that. As the effects of log σ and F overlap, the whole is only close to it.

        For ε and η stand their expectations given the draw, σ y and Fᵀ y with y = −∇ log q, which have less
        noise, and next to none for a column of F that is nearly zero. And as the expectation of h yᵀ is
        symmetric, the mean of both triangles stands for it in h yᵀ F.
        """
        scores = self.scores(noise)
        residual = slopes + scores
        symmetric = scores.T @ (residual @ self.factor) + residual.T @ (scores @ self.factor)
        return LowRankNormal(
            jnp.mean(residual, axis=0),
            0.5 * jnp.exp(2 * self.log_scale) * jnp.mean(residual * scores, axis=0),
            0.25 * symmetric / len(noise),
        )

    def scores(self, noise: Float[Array, "draw noise"]) -> Float[Array, "draw dim"]:
        """Σ⁻¹ (z − μ) at the draws that this noise gives."""
        own, shared = jnp.split(noise, [len(self.loc)], axis=-1)
        return self._residual(own, -shared)[0] * jnp.exp(-self.log_scale)

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

    def at_mode(self, point: Float[np.ndarray, " dim"], curvature: Curvature) -> CurvedLowRank:
        """The best for the curvature, from its widest directions as columns of F; others begin near zero."""
        dtype, rank = self.loc.dtype, self.factor.shape[1]
        scale, directions, variances = curvature.axes()
        widest = [i for i in np.argsort(-variances)[:rank] if variances[i] > MIN_VARIANCE]
        factor = np.array(self.factor) * scale[:, None]
        factor[:, : len(widest)] = scale[:, None] * directions[:, widest] * np.sqrt(variances[widest] - 1)
        best = LowRank(np.asarray(scale, float), np.asarray(factor, float))
        if widest:
            best = nearest_low_rank(curvature, best)
        arrays = point, np.log(best.scale), best.factor
        there = LowRankNormal(*(np.asarray(array, dtype) for array in arrays))
        return CurvedLowRank(there, curvature).with_curvature(curvature)

    def as_start(self) -> CurvedLowRank:
        """With its own precision for a curvature, where that is cheap."""
        here = _on_host(self)
        curvature = diagonal_curvature(here.std[:, 0])
        if len(here.loc) <= MAX_WHOLE:
            covariance = np.diag(np.exp(2 * here.log_scale)) + here.factor @ here.factor.T
            curvature = DenseCurvature(np.linalg.inv(covariance), np.linalg.cholesky(covariance))
        return CurvedLowRank(self, curvature).with_curvature(curvature)

    def fisher_coordinates(self, gradient: "LowRankNormal") -> Float[Array, " coordinate"]:
        """The gradient with respect to μ, log σ and F, row by row; `inner_products` knows the metric."""
        return jnp.concatenate([gradient.loc, 2 * gradient.log_scale, 2 * gradient.factor.ravel()])

    def inner_products(
        self, left: Float[np.ndarray, "row coordinate"], right: Float[np.ndarray, "other coordinate"]
    ) -> Float[np.ndarray, "row other"]:
        """By the Fisher metric of (μ, log σ, F), but for directions that hardly change the distribution."""
        geometry = self.geometry()
        with np.errstate(over="ignore", invalid="ignore"):
            whitened = geometry.whitened(left)
            return whitened @ (whitened if right is left else geometry.whitened(right)).T

    def displacement(self, before: "LowRankNormal") -> Float[np.ndarray, " coordinate"]:
        """The metric times the way, that of F from where it was up to a rotation."""
        return self.geometry().lowered(*self.way_from(before))

    def geometry(self) -> LowRankGeometry:
        """The Fisher metric, on the host."""
        return LowRankGeometry.of(self.log_scale, self.factor)

    def way_from(self, before: "LowRankNormal") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The changes of μ, of log σ and, from where it was up to a rotation, of F."""
        here, there = _on_host(self), _on_host(before)
        rotation = nearest_rotation(here.factor / here.std, there.factor / here.std)
        return here.loc - there.loc, here.log_scale - there.log_scale, here.factor - there.factor @ rotation

    def extrapolated(self, before: "LowRankNormal", length: float) -> "LowRankNormal":
        """Scales change by factors; F, in units of the standard deviations and up to a rotation, linearly.

        A scale on its way to zero is not taken there at once: all would be nearly singular for little.
        """
        here, there = _on_host(self), _on_host(before)
        share, old_share = here.factor / here.std, there.factor / there.std
        share = share + length * (share - old_share @ nearest_rotation(share, old_share))
        share /= np.maximum(np.linalg.norm(share, axis=1, keepdims=True), 1)  # none is more than the whole
        std = here.std * np.exp(limited_stretch(length * np.log(here.std / there.std)))
        log_scale = here.log_scale + limited_stretch(length * (here.log_scale - there.log_scale))
        log_scale = np.maximum(log_scale, np.minimum(here.log_scale, np.log(MIN_SCALE * std[:, 0])))
        arrays = here.loc + length * (here.loc - there.loc), log_scale, std * share
        return LowRankNormal(*(np.asarray(array, self.loc.dtype) for array in arrays))

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


class _OnHost(NamedTuple):
    """The parameters in double precision, the standard deviations as a column."""

    loc: Float[np.ndarray, " dim"]
    log_scale: Float[np.ndarray, " dim"]
    factor: Float[np.ndarray, "dim rank"]
    std: Float[np.ndarray, "dim 1"]


def _on_host(family: LowRankNormal) -> _OnHost:
    loc, log_scale, factor = (
        np.asarray(leaf, float) for leaf in (family.loc, family.log_scale, family.factor)
    )
    std = np.hypot(np.exp(log_scale), np.linalg.norm(factor, axis=1))
    return _OnHost(loc, log_scale, factor, std[:, None])
