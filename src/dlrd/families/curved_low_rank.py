"""A diagonal and low-rank normal in the form that automatic fits work with."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.families._limits import MAX_CHANGE, limited
from dlrd.families.carrying import Carrying
from dlrd.families.curvature import Curvature
from dlrd.families.curved import couplings, with_curvature
from dlrd.families.low_rank_geometry import LowRankGeometry

MIN_SHARE = 1e-2
"""Of the sd that a coordinate has if all others are known, down to which steps take σ: the rest, half the
square of that, is nothing in nats."""


class CurvedLowRank(Carrying):
    r"""A normal with covariance $Σ = \mathrm{diag}(σ^2) + F F^\top$ and the curvature H of the log density.

    The curvature serves twice, as it does for a mean-field normal. The quadratic $-½ (z - μ)^\top H (z - μ)$
    has known gradients, so gradients of draws tell only of what is left, which has far less noise. And it
    bounds how fast the ELBO bends: along a column of F by H, where Σ⁻¹ knows nothing of directions in which
    the posterior is narrow and Σ cannot be; and along log σ also where a column of F is nearly all of a
    coordinate and σ there as good as nothing.

    A curvature that is not whole would hide what it leaves out: the normal's own precision stands for it.
    """

    curvature: Curvature
    couplings = property(couplings)
    with_curvature = with_curvature

    def sample_noise(self, key: Key[Array, ""], num_draws: int) -> Float[Array, "num_draws noise"]:
        """With mirror images, in which most of what is left of the gradients is the same, and cancels."""
        if not self.curvature.is_whole:
            return self.member.sample_noise(key, num_draws)
        half = self.member.sample_noise(key, -(-num_draws // 2))
        return jnp.concatenate([half, -half])[:num_draws]

    def natural_gradient(
        self, slopes: Float[Array, "num_draws dim"], noise: Float[Array, "num_draws noise"]
    ) -> "CurvedLowRank":
        r"""With r = ∇ log p + H (z − μ), y = Σ⁻¹ (z − μ) and M = E[r yᵀ], symmetrised.

        The gradients are E[r], (Σ⁻¹ − H + M) F, and σ² times the diagonal of Σ⁻¹ − H + M, which is divided by
        its bound here; `moved` does the same for the others.
        """
        if not self.curvature.is_whole:
            return self._with(self.member.natural_gradient(slopes, noise))
        here = self.member
        scores = here.scores(noise)
        residual = slopes + self.curvature.times(here.from_noise(noise) - here.loc)
        rest = scores.T @ (residual @ here.factor) + residual.T @ (scores @ here.factor)
        narrow, excess, bound = self._balance()
        factor = narrow - self.curvature.times(here.factor.T).T + 0.5 * rest / len(noise)
        own = excess + jnp.exp(2 * here.log_scale) * jnp.mean(residual * scores, axis=0)
        return self._with(type(here)(jnp.mean(residual, axis=0), own / bound, factor))

    def moved(self, step: "CurvedLowRank") -> "CurvedLowRank":
        """μ + H⁻¹ δ, log σ + δ′, F + H⁻¹ Δ; a scale that is to vanish does not go on for ever."""
        if not self.curvature.is_whole:
            return self._with(self.member.moved(step.member))
        here, there = self.member, step.member
        columns = jax.vmap(self.curvature.whiten)(there.factor.T)
        columns *= MAX_CHANGE / jnp.maximum(jnp.linalg.norm(columns), MAX_CHANGE)
        least = jnp.minimum(here.log_scale, jnp.log(MIN_SHARE) - 0.5 * jnp.log(self.curvature.diagonal))
        moved = type(here)(
            here.loc + self.curvature.unwhiten(limited(self.curvature.whiten(there.loc))),
            jnp.maximum(here.log_scale + limited(there.log_scale), least),
            here.factor + jax.vmap(self.curvature.unwhiten)(columns).T,
        )
        return self._with(moved)

    def _balance(self) -> tuple[Float[Array, "dim rank"], Float[Array, " dim"], Float[Array, " dim"]]:
        r"""Σ⁻¹ F; σ² times the diagonal of Σ⁻¹ − H; and a bound on how fast the ELBO bends along log σ.

        With $R = σ Σ^{-1} σ$ that is at most 2 R ∘ R, entry by entry, and what H has more on the diagonal. A
        matrix of positive entries $A_{ij}$ is below the diagonal one of $\sum_j A_{ij} v_j / v_i$, here with
        one over the diagonal of R for v.
        """
        here = self.member
        rank, scale = here.factor.shape[1], jnp.exp(here.log_scale)
        unit = jnp.eye(rank, rank + len(here.loc), k=len(here.loc), dtype=here.loc.dtype)
        narrow = here.scores(unit).T
        columns, rows = here.factor / scale[:, None], narrow * scale[:, None]  # R = I − columns rowsᵀ
        taken = jnp.sum(columns * rows, axis=1)
        own = jnp.maximum(1 - taken, jnp.finfo(here.loc.dtype).eps)
        others = jnp.sum(columns @ (rows.T / own @ rows) * columns, axis=1) - taken**2 / own
        excess = own - scale**2 * self.curvature.diagonal
        return narrow, excess, 2 * (own * (own + jnp.maximum(others, 0)) + jnp.maximum(-excess, 0))

    def fisher_coordinates(self, gradient: "CurvedLowRank") -> Float[Array, " coordinate"]:
        """The gradient with respect to μ, log σ and F, row by row; `inner_products` knows the metric."""
        if not self.curvature.is_whole:
            return self.member.fisher_coordinates(gradient.member)
        own = self._balance()[2] * gradient.member.log_scale
        return jnp.concatenate([gradient.member.loc, own, gradient.member.factor.ravel()])

    def inner_products(
        self, left: Float[np.ndarray, "row coordinate"], right: Float[np.ndarray, "other coordinate"]
    ) -> Float[np.ndarray, "row other"]:
        """Those of the low-rank normal, but for H in place of Σ⁻¹ for the means."""
        geometry = self.member.geometry()
        with np.errstate(over="ignore", invalid="ignore"):
            return self._whitened(geometry, left) @ self._whitened(geometry, right).T

    def gap_products(self, gradients: Float[np.ndarray, "row coordinate"]) -> Float[np.ndarray, "row row"]:
        """With what the gradients show, in their mean, of scales that are to vanish."""
        with np.errstate(over="ignore", invalid="ignore"):
            geometry = self.member.geometry().stiffened(np.mean(gradients, axis=0))
            whitened = self._whitened(geometry, gradients)
            return whitened @ whitened.T

    def _whitened(
        self, geometry: LowRankGeometry, rows: Float[np.ndarray, "row coordinate"]
    ) -> Float[np.ndarray, "row component"]:
        whitened = geometry.whitened(rows)
        if self.curvature.is_whole:
            dim = len(self.member.loc)
            means = [self.curvature.whiten(row) for row in np.asarray(rows[:, :dim], float)]
            whitened[:, :dim] = np.asarray(means, float)
        return whitened

    def displacement(self, before: "CurvedLowRank") -> Float[np.ndarray, " coordinate"]:
        here = self.member
        way = here.way_from(before.member)
        lowered = here.geometry().lowered(*way)
        if self.curvature.is_whole:
            lowered[: len(way[0])] = np.asarray(self.curvature.times(way[0][None]), float)[0]
        return lowered

    def extrapolated(self, before: "CurvedLowRank", length: float) -> "CurvedLowRank":
        """In units of the standard deviations the curvature stays as it is."""
        here = self.member
        further = here.extrapolated(before.member, length)
        stretch = np.asarray(further.std, float) / np.asarray(here.std, float)
        return self._with(further).with_curvature(self.curvature.rescaled(stretch))

    def _with(self, member: Any) -> "CurvedLowRank":
        return CurvedLowRank(member, self.curvature)
