"""What is known of the log density's curvature: the whole Hessian, or a few of its directions."""

from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from dlrd.families.trainable import Untrained

Numbers = Any
"""Arrays, NumPy's on the host or traced ones in a compiled step; the code here has operators alone."""

MAX_WHOLE = 200
"""Parameters up to which the whole Hessian is worth its two gradients a parameter."""


class Axes(NamedTuple):
    """H⁻¹ ≈ diag(s) (I + Q diag(v − 1) Qᵀ) diag(s), with orthonormal columns Q."""

    scale: Numbers  # s
    directions: Numbers  # Q
    variances: Numbers  # v


class Curvature(Protocol):
    """An approximation H of −∇² log p, positive definite, with a root W of its inverse, H⁻¹ = W Wᵀ.

    Written with operators alone, but for what only the host asks: it serves the host's NumPy arrays and the
    compiled steps alike.
    """

    is_whole: ClassVar[bool]  # whether H is known in all directions

    @property
    def couplings(self) -> Any:
        """The `Couplings` of a sparse H, else None."""
        ...

    @property
    def diagonal(self) -> Numbers:
        """Of H."""
        ...

    def times(self, rows: Numbers) -> Numbers:
        """Each row times H."""
        ...

    def whiten(self, slope: Numbers) -> Numbers:
        """Wᵀ times a gradient: its coordinates where H is the identity."""
        ...

    def unwhiten(self, step: Numbers) -> Numbers:
        """W times a step in those coordinates."""
        ...

    def log_volume(self) -> float:
        """log |W|, on the host."""
        ...

    def axes(self) -> Axes:
        """What is known of H⁻¹ beside a diagonal, on the host."""
        ...

    def rescaled(self, factor: Numbers) -> "Curvature":
        """That of the coordinates multiplied by these factors, on the host."""
        ...


class DenseCurvature(Untrained):
    """H as a whole matrix, for up to hundreds of parameters. NumPy arrays: no fit trains them."""

    is_whole: ClassVar[bool] = True
    hessian: Numbers  # H, shape (dim, dim)
    root: Numbers  # W, lower triangular, likewise

    @property
    def couplings(self) -> None:
        return None

    @property
    def diagonal(self) -> Numbers:
        return self.hessian.diagonal()

    def times(self, rows: Numbers) -> Numbers:
        return rows @ self.hessian

    def whiten(self, slope: Numbers) -> Numbers:
        return slope @ self.root

    def unwhiten(self, step: Numbers) -> Numbers:
        return self.root @ step

    def log_volume(self) -> float:
        return float(np.sum(np.log(self.root.diagonal())))

    def rescaled(self, factor: Numbers) -> "DenseCurvature":
        hessian = np.asarray(self.hessian, float) / np.outer(factor, factor)
        return DenseCurvature(hessian, np.asarray(self.root, float) * np.asarray(factor)[:, None])

    def axes(self) -> Axes:
        scale = self.hessian.diagonal() ** -0.5
        eigenvalues, directions = np.linalg.eigh(self.hessian * np.outer(scale, scale))
        return Axes(scale, directions, 1 / eigenvalues)


class LowRankCurvature(Untrained):
    """W = diag(s) (I + Q diag(t − 1) Qᵀ): few directions Q beside a diagonal, linear in the dimension."""

    is_whole: ClassVar[bool] = False
    scale: Numbers  # s, shape (dim,)
    directions: Numbers  # Q, orthonormal columns, shape (dim, rank)
    stretches: Numbers  # t, positive, shape (rank,)

    @property
    def couplings(self) -> None:
        return None

    @property
    def diagonal(self) -> Numbers:
        return (1 + self.directions**2 @ (self.stretches**-2.0 - 1)) / self.scale**2

    def times(self, rows: Numbers) -> Numbers:
        return self._stretched(rows / self.scale, self.stretches**-2.0) / self.scale

    def whiten(self, slope: Numbers) -> Numbers:
        return self._stretched(slope * self.scale, self.stretches)

    def unwhiten(self, step: Numbers) -> Numbers:
        return self._stretched(step, self.stretches) * self.scale

    def log_volume(self) -> float:
        return float(np.sum(np.log(self.scale)) + np.sum(np.log(self.stretches)))

    def rescaled(self, factor: Numbers) -> "LowRankCurvature":
        return LowRankCurvature(np.asarray(self.scale) * factor, self.directions, self.stretches)

    def axes(self) -> Axes:
        return Axes(self.scale, self.directions, self.stretches**2)

    def _stretched(self, rows: Numbers, by: Numbers) -> Numbers:
        return rows + ((rows @ self.directions) * (by - 1)) @ self.directions.T


def diagonal_curvature(scale: Numbers) -> DenseCurvature | LowRankCurvature:
    """The curvature of independent coordinates with these standard deviations, whole where that is cheap."""
    if len(scale) <= MAX_WHOLE:
        return DenseCurvature(np.diag(scale**-2), np.diag(scale))
    return LowRankCurvature(scale, np.zeros((len(scale), 0)), np.zeros(0))
