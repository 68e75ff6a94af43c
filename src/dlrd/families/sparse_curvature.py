"""The curvature of a log density that couples few pairs of coordinates: a sparse Hessian and its factor."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dlrd.families.couplings import Couplings
from dlrd.families.curvature import Axes, Numbers
from dlrd.families.elimination import Values
from dlrd.families.trainable import Untrained

NUM_AXES = 32
"""Widest directions that are looked for."""


class SparseCurvature(Untrained):
    """H = P T Tᵀ Pᵀ with a sparse T, so W = P T⁻ᵀ: all in the time and memory that its entries take."""

    is_whole: ClassVar[bool] = True
    diagonal: Numbers  # of H
    factor: tuple[Numbers, Numbers]  # T, in the order of elimination
    couplings: Couplings

    @eqx.filter_jit
    def times(self, rows: Numbers) -> Numbers:
        elimination = self.couplings.elimination
        halfway = elimination.times_upper(*self.factor, elimination.permuted(jnp.asarray(rows)))
        return elimination.unpermuted(elimination.times_lower(*self.factor, halfway))

    @eqx.filter_jit
    def whiten(self, slope: Numbers) -> Numbers:
        elimination = self.couplings.elimination
        return elimination.solve_lower(*self.factor, elimination.permuted(jnp.asarray(slope)))

    @eqx.filter_jit
    def unwhiten(self, step: Numbers) -> Numbers:
        elimination = self.couplings.elimination
        return elimination.unpermuted(elimination.solve_upper(*self.factor, jnp.asarray(step)))

    @classmethod
    def unit(cls, couplings: Couplings) -> "SparseCurvature":
        """The identity."""
        one = np.ones(couplings.elimination.dim)
        return cls(one, (one, np.zeros(couplings.elimination.num_entries)), couplings)

    def log_volume(self) -> float:
        return -float(np.sum(np.log(np.asarray(self.factor[0]))))

    def axes(self) -> Axes:
        """The widest directions alone, by Lanczos' method; the whole of H⁻¹ would be dense."""
        import scipy.sparse.linalg  # here, as it sets a filter of warnings that users may not want

        scale = np.asarray(self.diagonal, float) ** -0.5
        dim = len(scale)

        def covariance(x: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " dim"]:
            return np.asarray(self.unwhiten(self.whiten(x.ravel() / scale)), float) / scale

        dtype = np.asarray(self.factor[0]).dtype  # the method must not hope for more digits than there are
        # SciPy's types know the class, but not what it is called with.
        operator = scipy.sparse.linalg.LinearOperator((dim, dim), matvec=covariance, dtype=dtype)  # pyright: ignore[reportCallIssue]
        num, start = min(NUM_AXES, dim - 1), np.random.default_rng(0).standard_normal(dim)
        try:
            variances, directions = scipy.sparse.linalg.eigsh(operator, k=num, v0=start)
        except scipy.sparse.linalg.ArpackNoConvergence as error:  # rounding hides the others
            variances, directions = error.eigenvalues, error.eigenvectors
        except scipy.sparse.linalg.ArpackError:  # none is wider than the others
            variances, directions = np.zeros(0), np.zeros((dim, 0))
        return Axes(scale, directions, variances)

    def rescaled(self, factor: Float[np.ndarray, " dim"]) -> "SparseCurvature":
        """That of the coordinates multiplied by these factors."""
        elimination = self.couplings.elimination
        inverse = 1 / np.asarray(factor)[elimination.order]
        diagonal, lower = (np.asarray(each) for each in self.factor)
        scaled = diagonal * inverse, lower * inverse[elimination.rows]
        return SparseCurvature(self.diagonal / np.asarray(factor) ** 2, scaled, self.couplings)


@eqx.filter_jit
def _factorized(couplings: Couplings, products: Array, known: Values | None, trust: Any) -> tuple[Any, Any]:
    """The Hessian, weighed with one that is known, and its factor."""
    elimination = couplings.elimination
    diagonal, lower = couplings.hessian(products)
    if known is not None:
        old = elimination.product(*known)
        diagonal, lower = (
            trust * new + (1 - trust) * before for new, before in zip((diagonal, lower), old, strict=True)
        )
    return elimination.unpermuted(diagonal), elimination.factorized(diagonal, lower)


def sparse_curvature(
    couplings: Couplings,
    products: Float[np.ndarray, "color dim"],
    known: SparseCurvature | None = None,
    trust: float = 1.0,
) -> SparseCurvature | None:
    """The curvature from the products of a Hessian with the seeds; None if that is not positive definite.

    Args:
        couplings: whose seeds they are.
        products: of the Hessian of −log p.
        known: what is known already.
        trust: the weight of what is new.
    """
    before = None if known is None else known.factor
    diagonal, factor = _factorized(couplings, jnp.asarray(products), before, jnp.asarray(trust))
    if not all(np.isfinite(each).all() for each in factor):
        return None
    return SparseCurvature(np.asarray(diagonal), (np.asarray(factor[0]), np.asarray(factor[1])), couplings)
