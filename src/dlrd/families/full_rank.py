"""A normal with any covariance."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, ArrayLike, Float, Key

from dlrd.checks import check_count
from dlrd.families._checks import check_shape, check_vector, float_array, is_concrete
from dlrd.families._limits import limited, limited_norm, limited_stretch
from dlrd.families._noise import standard_log_prob, standard_noise
from dlrd.families._quantiles import normal_quantiles
from dlrd.families.coupled import Coupled
from dlrd.families.curvature import Curvature, DenseCurvature
from dlrd.families.densely_coupled import DenselyCoupled
from dlrd.families.elimination import Elimination
from dlrd.families.quartic import Quartic, quartic
from dlrd.families.sparse import coupled
from dlrd.families.sparse_curvature import SparseCurvature


class FullRankNormal(eqx.Module):
    r"""A normal distribution with any covariance, $N(μ, L L^\top)$.

    Its parameters are those of the paper, λ = (μ, raw entries of the lower triangular L). The diagonal of L
    is free, so it may turn negative while it is fitted: the distribution depends on L Lᵀ alone, and nothing
    here minds the sign.

    Args:
        loc: μ, a vector.
        cholesky: L, a square matrix, zero above the diagonal.

    Example:
        >>> import dlrd
        >>> q = dlrd.FullRankNormal([1.0, 2.0], [[2.0, 0.0], [1.0, 1.0]])
        >>> print(q.mean, q.covariance)
        [1. 2.] [[4. 2.]
                 [2. 2.]]
    """

    needs_whole_curvature: ClassVar[bool] = True
    richer: ClassVar[str] = "another parameterisation"
    loc: Float[Array, " dim"]
    cholesky: Float[Array, "dim dim"]

    def __init__(self, loc: ArrayLike, cholesky: ArrayLike):
        self.loc = float_array("loc", loc)
        self.cholesky = float_array("cholesky", cholesky)
        check_vector("loc", self.loc)
        check_shape("cholesky", self.cholesky, 2 * self.loc.shape)
        if is_concrete(self.cholesky) and np.any(np.triu(self.cholesky, 1)):
            raise ValueError(
                "cholesky must be zero above its diagonal, got other entries there; "
                "take jnp.linalg.cholesky of the covariance"
            )

    @classmethod
    def standard(cls, dim: int) -> "FullRankNormal":
        """N(0, I) in `dim` dimensions, in the default float type."""
        check_count("dim", dim)
        return cls(np.zeros(dim), np.eye(dim))

    @classmethod
    def of_root(
        cls, loc: Float[Array, " dim"], root: Float[np.ndarray, "dim dim"], elimination: Elimination
    ) -> "FullRankNormal":
        """The normal with the covariance R Rᵀ, R upper triangular in the order of elimination."""
        half = np.linalg.qr(root[np.asarray(elimination.position)].T)[1].T
        return cls(loc, np.asarray(half * np.sign(half.diagonal()), loc.dtype))

    def sample(
        self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()
    ) -> Float[Array, "*sample_shape dim"]:
        """Independent draws, z = μ + L ε."""
        return self.from_noise(standard_noise(key, (*sample_shape, self.noise_size), self.loc.dtype))

    @property
    def noise_size(self) -> int:
        return len(self.loc)

    def sample_noise(self, key: Key[Array, ""], num_draws: int) -> Float[Array, "num_draws dim"]:
        """The noise ε of independent draws."""
        return standard_noise(key, (num_draws, self.noise_size), self.loc.dtype)

    def from_noise(self, noise: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """μ + L ε for the given ε."""
        return self.loc + noise @ self.scale_tril.T

    def log_prob(self, x: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        """The log density at `x`; leading axes are batches."""
        centered = (x - self.loc).reshape(-1, len(self.loc))
        noise = solve_triangular(self.scale_tril, centered.T, lower=True)
        return self.log_prob_of_noise(noise.T).reshape(x.shape[:-1])

    def log_prob_of_noise(self, noise: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        """The log density at the draws that this noise gives, also where L is nearly singular."""
        return standard_log_prob(noise) - jnp.sum(jnp.log(jnp.abs(jnp.diagonal(self.cholesky))))

    def residual(
        self, slopes: Float[Array, "num_draws dim"], noise: Float[Array, "num_draws dim"]
    ) -> Float[Array, "num_draws dim"]:
        """h = Lᵀ ∇ log p + ε."""
        return slopes @ self.scale_tril + noise

    def of_residual(
        self, residual: Float[Array, "num_draws dim"], noise: Float[Array, "num_draws dim"]
    ) -> "FullRankNormal":
        """The means of h, for μ, and of h εᵀ, for L, its diagonal halved.

        The expectation of h εᵀ is symmetric, so the mean of both triangles stands for the lower one.
        """
        moments = residual.T @ noise / len(noise)
        symmetric = 0.5 * (moments + moments.T)
        half_diagonal = jnp.diag(0.5 * jnp.diagonal(symmetric))
        return FullRankNormal(jnp.mean(residual, axis=0), jnp.tril(symmetric, -1) + half_diagonal)

    def natural_gradient(
        self, slopes: Float[Array, "num_draws dim"], noise: Float[Array, "num_draws dim"]
    ) -> "FullRankNormal":
        return self.of_residual(self.residual(slopes, noise), noise)

    def moved(self, step: "FullRankNormal") -> "FullRankNormal":
        """μ + L δ, L (I + Δ)."""
        root = self.scale_tril
        return FullRankNormal(
            self.loc + root @ limited(step.loc), root + root @ limited_norm(step.scale_tril)
        )

    def at_mode(
        self, point: Float[np.ndarray, " dim"], curvature: Curvature
    ) -> "Quartic | Coupled | DenselyCoupled":
        """Laplace's approximation; where that is sparse, the best normal is so, too, and easier to find."""
        dtype = self.loc.dtype
        if isinstance(curvature, SparseCurvature):
            return coupled(point, curvature, dtype, FullRankNormal)
        is_whole = isinstance(curvature, DenseCurvature)
        root = curvature.root if is_whole else np.diag(np.asarray(curvature.diagonal) ** -0.5)
        return quartic(FullRankNormal(np.asarray(point, dtype), np.asarray(root, dtype)))

    def as_start(self) -> Quartic:
        return quartic(self)

    def fisher_coordinates(self, gradient: "FullRankNormal") -> Float[Array, " coordinate"]:
        diagonal = jnp.diagonal(gradient.cholesky)
        return jnp.concatenate([gradient.loc, 2**0.5 * diagonal, jnp.tril(gradient.cholesky, -1).ravel()])

    def inner_products(
        self, left: Float[np.ndarray, "row coordinate"], right: Float[np.ndarray, "other coordinate"]
    ) -> Float[np.ndarray, "row other"]:
        return left @ right.T

    def displacement(self, before: "FullRankNormal") -> Float[np.ndarray, " coordinate"]:
        root = np.asarray(self.cholesky, float)
        shift = _solved(root, np.asarray(self.loc, float) - np.asarray(before.loc, float))
        factor = _solved(root, root - np.asarray(before.cholesky, float))
        return np.concatenate([shift, 2**0.5 * np.diagonal(factor), np.tril(factor, -1).ravel()])

    def extrapolated(self, before: "FullRankNormal", length: float) -> "FullRankNormal":
        """With L = L′ C from the earlier L′: the diagonal of C changes by factors, the rest linearly."""
        old, new = (np.tril(np.asarray(each.cholesky, float)) for each in (before, self))
        change = _solved(old, new)
        if not np.isfinite(change).all():
            return self
        diagonal = change.diagonal()
        shear = np.tril(change / diagonal, -1)
        stretch = limited_stretch(length * np.log(np.abs(diagonal)))
        further = (np.eye(len(new)) + length * shear) * np.exp(stretch)
        here, there = (np.asarray(each.loc, float) for each in (self, before))
        arrays = here + length * (here - there), new @ further
        return FullRankNormal(*(np.asarray(array, self.loc.dtype) for array in arrays))

    def corrected(self, step: Float[np.ndarray, " coordinate"]) -> "FullRankNormal":
        """μ + L δ, L (I + Δ), as `moved`, from the coordinates of a certificate."""
        dim, root = len(self.loc), np.tril(np.asarray(self.cholesky, float))
        shift, diagonal, lower = np.split(step, [dim, 2 * dim])
        change = np.tril(lower.reshape(dim, dim), -1) + np.diag(diagonal / 2**0.5)
        arrays = np.asarray(self.loc, float) + root @ shift, root + root @ change
        return FullRankNormal(*(np.asarray(array, self.loc.dtype) for array in arrays))

    def quantiles(self, probabilities: Any) -> Float[np.ndarray, "probability dim"]:
        """Of each coordinate, on the host."""
        return normal_quantiles(self.mean, self.std, probabilities)

    @property
    def mean(self) -> Float[Array, " dim"]:
        return self.loc

    @property
    def std(self) -> Float[Array, " dim"]:
        return jnp.sqrt(jnp.sum(self.scale_tril**2, axis=1))

    @property
    def covariance(self) -> Float[Array, "dim dim"]:
        return self.scale_tril @ self.scale_tril.T

    @property
    def scale_tril(self) -> Float[Array, "dim dim"]:
        """L. Entries above the diagonal get no gradient, so they stay zero in any fit."""
        return jnp.tril(self.cholesky)


def _solved(root: Float[np.ndarray, "dim dim"], right: Float[np.ndarray, "dim ..."]) -> np.ndarray:
    """root⁻¹ times what is on the right; infinite where the root is singular to rounding."""
    size = np.abs(root.diagonal())
    if not size.min() > np.finfo(float).tiny:
        return np.full(right.shape, np.inf)
    return scipy.linalg.solve_triangular(root, right, lower=True)
