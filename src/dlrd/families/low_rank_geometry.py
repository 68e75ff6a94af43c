"""The Fisher metric of normals with covariance diag(σ²) + F Fᵀ: on the host, in double precision."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

LEAST = 1e-3
"""How far, in the Fisher metric, a unit of a parameter must lead for its direction to be looked at.

A column of F shorter than that, in units of σ, is left out: its gradient is about nothing but the direction
that it happens to have, and what it gains by growing or vanishing is of second order. Left out, too, is what
tells σ from F where a column is all but along one coordinate.
"""
MANY = 0.25
"""The leverage up to which coordinates are dealt with together; at most 4 for each column have more."""


class LowRankGeometry(NamedTuple):
    r"""The metric at (log σ, F), in units of σ and along the singular vectors of F/σ = U s Vᵀ.

    There the covariance is $S = I + U s^2 U^\top$, and a change of (log σ, F V/σ) by (a, B) changes it by
    $X = 2\,\mathrm{diag}(a) + B s U^\top + U s B^\top$. The square of its length is $½ ‖T‖^2$ with
    $T = S^{-1/2} X S^{-1/2}$. Changes of F reach all of T but $Q T Q$, $Q = I - U U^\top$, and a rotation of
    F changes nothing. So of a gradient, the part of F is such a T, in closed form; and what that does not
    tell of the part of log σ has the metric $2 Q ∘ Q$, the product taken entry by entry.
    """

    scale: Float[np.ndarray, " dim"]  # σ
    axes: Float[np.ndarray, "dim kept"]  # U, of the columns that are not negligible
    lengths: Float[np.ndarray, " kept"]  # s
    rotation: Float[np.ndarray, "rank kept"]  # V in F/σ = U s Vᵀ
    stiffness: Float[np.ndarray, " dim"]  # what the metric of log σ has beside Fisher's

    @classmethod
    def of(cls, log_scale: Any, factor: Any) -> "LowRankGeometry":
        """On the way to nowhere, where not all is finite, nothing is known: all products are nan."""
        scale = np.exp(np.asarray(log_scale, float))
        scaled = np.asarray(factor, float) / scale[:, None]
        if not np.isfinite(scaled).all():
            scale, scaled = np.full_like(scale, np.nan), np.zeros_like(scaled)
        axes, lengths, rotation = np.linalg.svd(scaled, full_matrices=False)
        kept = lengths > LEAST
        return cls(scale, axes[:, kept], lengths[kept], rotation[kept].T, np.zeros(len(scale)))

    def stiffened(self, gradient: Float[np.ndarray, " coordinate"]) -> "LowRankGeometry":
        """With what the gradient of the ELBO tells of scales that are to vanish.

        Where F is nearly all of a coordinate, or can be, σ may be on its way to zero, and Fisher's metric
        alone sees no end of that. But what it gains is in σ²: half the slope along log σ, and no more.
        """
        (own,) = self._parts(gradient[None])[1]
        return self._replace(stiffness=np.maximum(-own, 0.0))

    @property
    def widths(self) -> Float[np.ndarray, " kept"]:
        """The standard deviations along the axes."""
        return np.sqrt(1 + self.lengths**2)

    @property
    def scales(self) -> "ScaleMetric":
        """What is left of the metric for log σ."""
        return ScaleMetric.of(self.axes, self.stiffness)

    def whitened(self, rows: Float[np.ndarray, "row coordinate"]) -> Float[np.ndarray, "row component"]:
        """Gradients with respect to (μ, log σ, F) in coordinates in which the metric is the identity."""
        loc, own, within, beyond = self._parts(rows)
        loc += (loc @ self.axes * (self.widths - 1)) @ self.axes.T
        parts = loc, 0.5**0.5 * within, beyond, self.scales.whitened(own)
        return np.concatenate([part.reshape(len(rows), -1) for part in parts], axis=1)

    def _parts(self, rows: Float[np.ndarray, "row coordinate"]) -> tuple[np.ndarray, ...]:
        """Of gradients: σ times that of μ, of log σ what F does not tell, T within the axes and beyond."""
        dim, rank = len(self.scale), len(self.rotation)
        loc, own, factor = np.split(np.asarray(rows, float), [dim, 2 * dim], axis=1)
        factor = factor.reshape(-1, dim, rank) @ self.rotation * self.scale[:, None]
        shares = self.lengths / self.widths
        within = self.axes.T @ factor  # T = U W Uᵀ + Z Uᵀ + U Zᵀ, W within and Z beyond
        beyond = (factor - self.axes @ within) / shares
        within = within * self.widths[:, None] * shares
        within = (within + within.mT) / (shares**2 + shares[:, None] ** 2)
        narrow = self.axes / self.widths
        told = np.sum((narrow @ within + 2 * beyond) * narrow, axis=-1)
        return loc * self.scale, own - told, within, beyond

    def lowered(
        self,
        loc: Float[np.ndarray, " dim"],
        log_scale: Float[np.ndarray, " dim"],
        factor: Float[np.ndarray, "dim rank"],
    ) -> Float[np.ndarray, " coordinate"]:
        """The metric times a change of the parameters: Σ⁻¹ δ and, with M = Σ⁻¹ dΣ Σ⁻¹, σ² diag M and M F."""
        axes, shares = self.axes, (self.lengths / self.widths) ** 2
        columns = factor / self.scale[:, None] @ self.rotation
        narrow = axes * self.lengths / self.widths**2
        part = axes * shares
        both = part @ (axes.T @ (log_scale[:, None] * part))
        own = log_scale * (1 - 2 * np.sum(part * axes, axis=1)) + np.sum(both * axes, axis=1)
        own += np.sum(self._narrowed(columns) * narrow, axis=1)
        shared = 2 * log_scale[:, None] * narrow + columns * shares
        shared += axes * self.lengths @ (columns.T @ narrow)
        lowered = self._narrowed(np.column_stack([loc / self.scale, shared])) / self.scale[:, None]
        return np.concatenate([lowered[:, 0], 2 * own, (lowered[:, 1:] @ self.rotation.T).ravel()])

    def _narrowed(self, columns: Float[np.ndarray, "dim column"]) -> Float[np.ndarray, "dim column"]:
        """S⁻¹ times the columns."""
        return columns - self.axes * (self.lengths / self.widths) ** 2 @ (self.axes.T @ columns)


class ScaleMetric(NamedTuple):
    """2 Q ∘ Q + diag(k) = 2 (diag(1 − 2 h + k/2) + P Pᵀ), and a root of its pseudo-inverse.

    h is the leverage, the diagonal of U Uᵀ, k the stiffness; P has the products of any two columns of U.
    Where h is small, the root follows from the few eigenvectors of Pᵀ P. What is left of the other
    coordinates, few as well, is a small matrix, which alone may be singular.
    """

    is_many: Bool[np.ndarray, " dim"]  # where h is small
    roots: Float[np.ndarray, " many"]  # of what is diagonal there
    along: Float[np.ndarray, "many pair"]  # P there, in units of the roots, along the eigenvectors
    growth: Float[np.ndarray, " pair"]  # roots of one more than the eigenvalues
    few: Float[np.ndarray, "few pair"]  # P elsewhere, along the eigenvectors, divided by the growth
    small: Float[np.ndarray, "few kept"]  # a root of the pseudo-inverse of the small matrix

    @classmethod
    def of(cls, axes: Float[np.ndarray, "dim kept"], stiffness: Float[np.ndarray, " dim"]) -> "ScaleMetric":
        first, second = np.triu_indices(axes.shape[1])
        pairs = axes[:, first] * axes[:, second] * np.where(first == second, 1, 2**0.5)
        weights = 1 - 2 * np.sum(axes**2, axis=1) + 0.5 * stiffness
        is_many = weights >= 1 - 2 * MANY
        roots = np.sqrt(weights[is_many])
        many = pairs[is_many] / roots[:, None]
        values, vectors = np.linalg.eigh(many.T @ many)
        growth = np.sqrt(1 + values)
        few = pairs[~is_many] @ vectors / growth
        values, small = np.linalg.eigh(np.diag(weights[~is_many]) + few @ few.T)
        kept = values > LEAST**2
        return cls(is_many, roots, many @ vectors, growth, few, small[:, kept] / np.sqrt(values[kept]))

    def whitened(self, rows: Float[np.ndarray, "row dim"]) -> Float[np.ndarray, "row component"]:
        """Rows times the root."""
        many = rows[:, self.is_many] / self.roots
        along = many @ self.along
        left = (rows[:, ~self.is_many] - along / self.growth @ self.few.T) @ self.small
        many -= (along / (self.growth * (1 + self.growth))) @ self.along.T
        return 0.5**0.5 * np.concatenate([many, left], axis=1)


def nearest_rotation(
    factor: Float[np.ndarray, "dim rank"], before: Float[np.ndarray, "dim rank"]
) -> Float[np.ndarray, "rank rank"]:
    """The orthogonal R for which `before` R is nearest to `factor`: Procrustes'."""
    products = before.T @ factor
    if not np.isfinite(products).all():
        return np.eye(len(products))
    left, _, right = np.linalg.svd(products)
    return left @ right
