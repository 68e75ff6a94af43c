"""The Fisher metric of normals with covariance diag(σ²) + F Fᵀ: on the host, in double precision."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

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

    @classmethod
    def of(cls, log_scale: Any, factor: Any) -> "LowRankGeometry":
        """On the way to nowhere, where not all is finite, nothing is known: all products are nan."""
        scale = np.exp(np.asarray(log_scale, float))
        scaled = np.asarray(factor, float) / scale[:, None]
        if not np.isfinite(scaled).all():
            scale, scaled = np.full_like(scale, np.nan), np.zeros_like(scaled)
        axes, lengths, rotation = np.linalg.svd(scaled, full_matrices=False)
        kept = lengths > LEAST
        return cls(scale, axes[:, kept], lengths[kept], rotation[kept].T)

    @property
    def widths(self) -> Float[np.ndarray, " kept"]:
        """The standard deviations along the axes."""
        return np.sqrt(1 + self.lengths**2)

    def whitened(self, rows: Float[np.ndarray, "row coordinate"]) -> Float[np.ndarray, "row component"]:
        """Gradients with respect to (μ, log σ, F) in coordinates in which the metric is the identity."""
        dim, rank = len(self.scale), len(self.rotation)
        loc, own, factor = np.split(np.asarray(rows, float), [dim, 2 * dim], axis=1)
        loc = loc * self.scale
        loc += (loc @ self.axes * (self.widths - 1)) @ self.axes.T
        factor = factor.reshape(-1, dim, rank) @ self.rotation * self.scale[:, None]
        shares = self.lengths / self.widths
        within = self.axes.T @ factor  # T = U W Uᵀ + Z Uᵀ + U Zᵀ, W within and Z beyond
        beyond = (factor - self.axes @ within) / shares
        within = within * self.widths[:, None] * shares
        within = (within + within.mT) / (shares**2 + shares[:, None] ** 2)
        narrow = self.axes / self.widths
        told = np.sum((narrow @ within + 2 * beyond) * narrow, axis=-1)
        parts = loc, 0.5**0.5 * within, beyond, _whitened_scales(self.axes, own - told)
        return np.concatenate([part.reshape(len(rows), -1) for part in parts], axis=1)

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


def _whitened_scales(
    axes: Float[np.ndarray, "dim kept"], rows: Float[np.ndarray, "row dim"]
) -> Float[np.ndarray, "row component"]:
    """Rows times a root of the pseudo-inverse of 2 Q ∘ Q = 2 (diag(1 − 2 h) + P Pᵀ).

    h is the leverage, the diagonal of U Uᵀ; P has the products of any two columns of U. Where h is small, the
    root follows from the few eigenvectors of Pᵀ P. What is left of the other coordinates, few as well, is a
    small matrix, which alone may be singular.
    """
    first, second = np.triu_indices(axes.shape[1])
    pairs = axes[:, first] * axes[:, second] * np.where(first == second, 1, 2**0.5)
    weights = 1 - 2 * np.sum(axes**2, axis=1)
    is_many = weights >= 1 - 2 * MANY
    roots = np.sqrt(weights[is_many])
    many, few = pairs[is_many] / roots[:, None], pairs[~is_many]
    values, vectors = np.linalg.eigh(many.T @ many)
    growth = np.sqrt(1 + values)
    whitened = rows[:, is_many] / roots
    along = whitened @ many @ vectors
    whitened -= (along / (growth * (1 + growth))) @ vectors.T @ many.T
    few = few @ vectors / growth
    values, vectors = np.linalg.eigh(np.diag(weights[~is_many]) + few @ few.T)
    kept = values > LEAST**2
    left = (rows[:, ~is_many] - along / growth @ few.T) @ vectors[:, kept] / np.sqrt(values[kept])
    return 0.5**0.5 * np.concatenate([whitened, left], axis=1)


def nearest_rotation(
    factor: Float[np.ndarray, "dim rank"], before: Float[np.ndarray, "dim rank"]
) -> Float[np.ndarray, "rank rank"]:
    """The orthogonal R for which `before` R is nearest to `factor`: Procrustes'."""
    products = before.T @ factor
    if not np.isfinite(products).all():
        return np.eye(len(products))
    left, _, right = np.linalg.svd(products)
    return left @ right
