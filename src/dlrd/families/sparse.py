"""A normal whose precision is sparse."""

from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float, Key

from dlrd.checks import check_count
from dlrd.families import sparse_geometry as geometry
from dlrd.families._checks import check_shape, check_vector, float_array
from dlrd.families._limits import limited
from dlrd.families._noise import standard_log_prob, standard_noise
from dlrd.families._quantiles import normal_quantiles
from dlrd.families.coupled import Coupled
from dlrd.families.curvature import Curvature, diagonal_curvature
from dlrd.families.curved import Curved
from dlrd.families.densely_coupled import DenselyCoupled
from dlrd.families.elimination import Elimination, Values, eliminate
from dlrd.families.pattern import Pattern
from dlrd.families.sparse_curvature import SparseCurvature
from dlrd.families.uncoupled import uncoupled

if TYPE_CHECKING:
    import scipy.sparse


class SparseNormal(eqx.Module):
    r"""A normal distribution with a sparse precision, $N(μ, (P T T^\top P^\top)^{-1})$.

    Where the precision is zero, two coordinates are independent given all others. With the pattern of a
    posterior's Hessian it holds all correlations that a normal can have there, at a cost that grows with the
    entries of T: those of the pattern, and those that its elimination fills in, in the order that P stands
    for. Its parameters are λ = (μ, raw entries of the lower triangular T); as with `FullRankNormal`, T's
    diagonal may turn negative while it is fitted, and nothing here minds the sign.

    Args:
        loc: μ, a vector.
        diagonal: of T, in the order of elimination.
        lower: T's entries below its diagonal, in the order of the elimination's `rows` and `columns`.
        elimination: where these entries are, `dlrd.families.elimination.eliminate` of a pattern.

    Example:
        >>> import dlrd
        >>> q = dlrd.SparseNormal.from_precision([0.0, 0.0, 0.0], [[1.0, -1.0, 0.0],
        ...                                                        [-1.0, 2.0, -1.0],
        ...                                                        [0.0, -1.0, 2.0]])
        >>> print(q.covariance)
        [[3. 2. 1.]
         [2. 2. 1.]
         [1. 1. 1.]]

    References:
        Tan and Nott, "Gaussian variational approximation with sparse precision matrices", Statistics and
        Computing 28, 2018.
    """

    needs_whole_curvature: ClassVar[bool] = False
    richer: ClassVar[str] = "another parameterisation"
    loc: Float[Array, " dim"]
    diagonal: Float[Array, " dim"]
    lower: Float[Array, " entry"]
    elimination: Elimination

    def __init__(self, loc: ArrayLike, diagonal: ArrayLike, lower: ArrayLike, elimination: Elimination):
        self.loc = float_array("loc", loc)
        self.diagonal = float_array("diagonal", diagonal)
        self.lower = float_array("lower", lower)
        self.elimination = elimination
        check_vector("loc", self.loc)
        check_shape("diagonal", self.diagonal, self.loc.shape)
        if elimination.dim != len(self.loc) or self.lower.shape != (elimination.num_entries,):
            raise ValueError(
                f"lower must have the {elimination.num_entries} entries of the elimination, which is of "
                f"{elimination.dim} coordinates, got shape {self.lower.shape} and {len(self.loc)} coordinates"
            )

    @classmethod
    def standard(cls, dim: int) -> "SparseNormal":
        """N(0, I) in `dim` dimensions, in the default float type; fits find the pattern themselves."""
        check_count("dim", dim)
        none = np.zeros(0, int)
        elimination = eliminate(Pattern(dim, none, none))
        assert elimination is not None  # without entries it costs nothing
        return cls(np.zeros(dim), np.ones(dim), np.zeros(0), elimination)

    @classmethod
    def from_precision(cls, loc: ArrayLike, precision: Any) -> "SparseNormal":
        """The normal with this mean and the inverse of this covariance.

        Args:
            loc: the mean, a vector.
            precision: a positive definite matrix of scipy.sparse, or a dense one.
        """
        import scipy.sparse  # here, as it sets a filter of warnings that users may not want

        mean = float_array("loc", loc)
        matrix = scipy.sparse.csr_array(precision)
        matrix.eliminate_zeros()
        check_vector("loc", mean)
        check_shape("precision", matrix, 2 * mean.shape)
        # Rounding leaves the two halves of a computed precision apart by a little.
        size = np.max(np.abs(matrix.data), initial=0)
        if np.max(np.abs((matrix - matrix.T).data), initial=0) > 1e-5 * size:
            raise ValueError("precision must be symmetric, got a matrix that differs from its transpose")
        below = scipy.sparse.coo_array(scipy.sparse.tril(matrix, -1))
        pattern = Pattern(len(mean), below.row, below.col)
        elimination = eliminate(pattern)
        if elimination is None:
            raise ValueError(
                f"precision must have a sparse Cholesky factor, got {below.nnz} entries below the diagonal "
                "that fill too much of it; take dlrd.FullRankNormal or dlrd.LowRankNormal"
            )
        lower = np.zeros(elimination.num_entries)
        lower[elimination.places(pattern)] = below.data
        diagonal = matrix.diagonal()[elimination.order]
        factor = elimination.factorized(jnp.asarray(diagonal, mean.dtype), jnp.asarray(lower, mean.dtype))
        if not all(bool(jnp.all(jnp.isfinite(each))) for each in factor):
            raise ValueError("precision must be positive definite, got a matrix without a Cholesky factor")
        return cls(mean, *factor, elimination)

    @classmethod
    def at(cls, loc: ArrayLike, curvature: SparseCurvature, dtype: DTypeLike) -> "SparseNormal":
        """The normal with this mean and this precision."""
        mean, diagonal, lower = (np.asarray(each, dtype) for each in (loc, *curvature.factor))
        return cls(mean, diagonal, lower, curvature.couplings.elimination)

    @classmethod
    def of_scales(cls, loc: ArrayLike, std: ArrayLike) -> "SparseNormal":
        """The normal of independent coordinates with these means and standard deviations."""
        apart = cls.standard(len(np.asarray(loc)))
        return apart.replaced(loc, (1 / jnp.asarray(std)[np.asarray(apart.elimination.order)], apart.lower))

    @classmethod
    def of_root(
        cls, loc: Float[Array, " dim"], root: Float[np.ndarray, "dim dim"], elimination: Elimination
    ) -> "SparseNormal":
        """The normal with the covariance R Rᵀ, R upper triangular in the order of elimination."""
        factor = np.asarray(np.linalg.inv(root).T, loc.dtype)
        return cls(loc, factor.diagonal(), factor[elimination.rows, elimination.columns], elimination)

    def sample(
        self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()
    ) -> Float[Array, "*sample_shape dim"]:
        """Independent draws, z = μ + P T⁻ᵀ ε."""
        return self.from_noise(standard_noise(key, (*sample_shape, self.noise_size), self.loc.dtype))

    @property
    def noise_size(self) -> int:
        return len(self.loc)

    def sample_noise(self, key: Key[Array, ""], num_draws: int) -> Float[Array, "num_draws dim"]:
        """The noise ε of independent draws."""
        return standard_noise(key, (num_draws, self.noise_size), self.loc.dtype)

    def from_noise(self, noise: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """μ + P T⁻ᵀ ε for the given ε."""
        centered = self.elimination.solve_upper(self.diagonal, self.lower, noise)
        return self.loc + self.elimination.unpermuted(centered)

    def log_prob(self, x: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        """The log density at `x`, by ε = Tᵀ Pᵀ (x − μ); leading axes are batches."""
        centered = self.elimination.permuted(x - self.loc)
        return self.log_prob_of_noise(self.elimination.times_upper(self.diagonal, self.lower, centered))

    def log_prob_of_noise(self, noise: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        """The log density at the draws that this noise gives."""
        return standard_log_prob(noise) + jnp.sum(jnp.log(jnp.abs(self.diagonal)))

    def natural_gradient(
        self, slopes: Float[Array, "num_draws dim"], noise: Float[Array, "num_draws dim"]
    ) -> "SparseNormal":
        """With h = ∇ log p + Λ (z − μ): the mean of h, for μ, and −E[h (Λ (z − μ))ᵀ], for Λ.

        Λ is the precision, whose entries alone count; `moved` multiplies what is for μ by its inverse.
        """
        scores = self.elimination.times_lower(*self.factor, noise)  # Λ (z − μ)
        residual = self.elimination.permuted(slopes) + scores
        loc = self.elimination.unpermuted(jnp.mean(residual, axis=0))
        return self.replaced(loc, geometry.stein_change(self.elimination, residual, scores))

    def moved(self, step: "SparseNormal") -> "SparseNormal":
        """μ + Λ⁻¹ δ with the new Λ, which is Λ + Δ, or has as much of Δ as leaves it positive definite."""
        factor = geometry.changed_factor(self.elimination, self.factor, step.factor)
        whitened = limited(self.elimination.solve_lower(*factor, self.elimination.permuted(step.loc)))
        shift = self.elimination.unpermuted(self.elimination.solve_upper(*factor, whitened))
        return self.replaced(self.loc + shift, factor)

    def at_mode(
        self, point: Float[np.ndarray, " dim"], curvature: Curvature
    ) -> "Curved | Coupled | DenselyCoupled":
        """Laplace's approximation, with the pattern of the curvature, if that has one."""
        dtype = self.loc.dtype
        if isinstance(curvature, SparseCurvature):
            return coupled(point, curvature, dtype, SparseNormal)
        return uncoupled(point, np.asarray(curvature.diagonal) ** -0.5, curvature, dtype, SparseNormal)

    def as_start(self) -> "SparseNormal | Curved | Coupled | DenselyCoupled":
        apart = diagonal_curvature(np.asarray(self.std, float))
        return self if self.has_pattern else self.at_mode(np.asarray(self.loc), apart)

    def fisher_coordinates(self, gradient: "SparseNormal") -> Float[Array, " coordinate"]:
        """T⁻¹ times what is for μ, and a sketch of what is for Λ."""
        mean = self.elimination.solve_lower(*self.factor, self.elimination.permuted(gradient.loc))
        return jnp.concatenate([mean, geometry.sketched(self.elimination, self.factor, gradient.factor)])

    def inner_products(
        self, left: Float[np.ndarray, "row coordinate"], right: Float[np.ndarray, "other coordinate"]
    ) -> Float[np.ndarray, "row other"]:
        return left @ right.T

    def displacement(self, before: "SparseNormal") -> Float[np.ndarray, " coordinate"]:
        return np.asarray(geometry.displaced(self, before), float)

    def extrapolated(self, before: "SparseNormal", length: float) -> "SparseNormal":
        """Conditional precisions change by factors, what coordinates depend on linearly."""
        factor = geometry.further_factor(self.elimination, before.factor, self.factor, length)
        here, there = (np.asarray(each.loc, float) for each in (self, before))
        return self.replaced(np.asarray(here + length * (here - there), self.loc.dtype), factor)

    def replaced(self, loc: ArrayLike, factor: Values) -> "SparseNormal":
        """The normal of the same pattern with this mean and this T."""
        return SparseNormal(loc, *factor, self.elimination)

    @property
    def structure(self) -> dict[str, np.ndarray]:
        """The elimination, as arrays."""
        parts = {name: getattr(self.elimination, name) for name in ("order", "starts", "rows", "columns")}
        return {name: np.asarray(array) for name, array in parts.items()}

    @classmethod
    def of_structure(cls, structure: dict[str, np.ndarray]) -> "SparseNormal":
        """N(0, I) with this elimination."""
        elimination = Elimination(**structure)
        dim, num_entries = elimination.dim, elimination.num_entries
        return cls(np.zeros(dim), np.ones(dim), np.zeros(num_entries), elimination)

    @property
    def has_pattern(self) -> bool:
        """Whether any coordinates depend on each other."""
        return self.elimination.num_entries > 0

    @property
    def factor(self) -> Values:
        """T, in the order of elimination."""
        return self.diagonal, self.lower

    def quantiles(self, probabilities: Any) -> Float[np.ndarray, "probability dim"]:
        """Of each coordinate, on the host."""
        return normal_quantiles(self.mean, self.std, probabilities)

    @property
    def mean(self) -> Float[Array, " dim"]:
        return self.loc

    @property
    def std(self) -> Float[Array, " dim"]:
        """Exact: the diagonal of the covariance takes no more of it than T has entries."""
        variances, _ = self.elimination.inverse(self.diagonal, self.lower)
        return jnp.sqrt(self.elimination.unpermuted(variances))

    @property
    def precision(self) -> "scipy.sparse.csr_array":
        """P T Tᵀ Pᵀ, on the host."""
        import scipy.sparse

        diagonal, lower = (np.asarray(each) for each in self.elimination.product(self.diagonal, self.lower))
        nodes = np.asarray(self.elimination.order)
        rows, columns = nodes[self.elimination.rows], nodes[self.elimination.columns]
        places = np.concatenate([nodes, rows, columns]), np.concatenate([nodes, columns, rows])
        shape = 2 * self.loc.shape
        return scipy.sparse.csr_array((np.concatenate([diagonal, lower, lower]), places), shape=shape)

    @property
    def covariance(self) -> Float[Array, "dim dim"]:
        """The whole matrix: for dimensions where that fits into memory."""
        unit = jnp.eye(len(self.loc), dtype=self.loc.dtype)
        columns = self.elimination.unpermuted(self.elimination.solve_upper(self.diagonal, self.lower, unit))
        return columns.T @ columns

    @property
    def scale_tril(self) -> Float[Array, "dim dim"]:
        """The lower triangular root of `covariance`, for `dlrd.kl` and `dlrd.jeffreys`."""
        return jnp.linalg.cholesky(self.covariance)


def coupled(
    loc: ArrayLike, curvature: SparseCurvature, dtype: DTypeLike, kind: type
) -> Coupled | DenselyCoupled:
    """The normal with this mean and precision in the form in which it is best fitted; users get a `kind`."""
    if curvature.couplings.is_for_gradients:
        return DenselyCoupled.at(loc, curvature, dtype, kind)
    return Coupled(SparseNormal.at(loc, curvature, dtype), curvature.couplings, kind)
