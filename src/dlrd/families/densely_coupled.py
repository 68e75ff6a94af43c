"""A normal whose precision has the pattern of the model, fitted by gradients alone, as a dense matrix."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float, Key

from dlrd.families._limits import limited, limited_norm
from dlrd.families._noise import standard_log_prob, standard_noise
from dlrd.families.couplings import Couplings
from dlrd.families.elimination import Elimination
from dlrd.families.sparse_columns import Matrix, Numbers, Regressions, projected_root
from dlrd.families.sparse_curvature import SparseCurvature
from dlrd.families.sparse_geometry import further_factor


class DenselyCoupled(eqx.Module):
    r"""A normal $N(μ, R R^\top)$ that steps may take out of its pattern, and `settled` takes back.

    Where Hessians of the pattern would cost more than they tell, gradients alone are the better choice. With
    $h = R^\top ∇ \log p + ε$ they give $M = E[h ε^\top]$, which is symmetric, but its two halves have
    different noise: that of $h_j ε_k$ is the variance of $h_j$, which is far larger for some coordinates than
    for others. Each pair is weighed by it.
    """

    loc: Float[Array, " dim"]
    root: Float[Array, "dim dim"]  # R, upper triangular, in the order of elimination
    log_noise: Float[Array, " dim"]  # of M's rows, the logarithm of a variance
    couplings: Couplings
    kind: type = eqx.field(static=True)  # what users get, a normal of this precision or of its covariance

    @classmethod
    def at(cls, loc: ArrayLike, curvature: SparseCurvature, dtype: DTypeLike, kind: type) -> "DenselyCoupled":
        """The normal with this mean and this precision."""
        couplings = curvature.couplings
        root = _root(couplings.elimination, curvature.factor)
        mean: Any = np.asarray(loc, dtype)
        noise: Any = np.zeros_like(mean)
        whole: Any = np.asarray(root, dtype)
        return cls(mean, whole, noise, couplings, kind)

    @property
    def elimination(self) -> Elimination:
        return self.couplings.elimination

    @property
    def mean(self) -> Float[Array, " dim"]:
        return self.loc

    @property
    def std(self) -> Float[Array, " dim"]:
        return self.elimination.unpermuted(jnp.sqrt(jnp.sum(self._upper**2, axis=1)))

    @property
    def noise_size(self) -> int:
        return len(self.loc)

    def sample_noise(self, key: Key[Array, ""], num_draws: int) -> Float[Array, "num_draws dim"]:
        """With mirror images: in the mean of their M, nothing is left of third derivatives."""
        half = standard_noise(key, (-(-num_draws // 2), self.noise_size), self.loc.dtype)
        return jnp.concatenate([half, -half])[:num_draws]

    def from_noise(self, noise: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        return self.loc + self.elimination.unpermuted(noise @ self._upper.T)

    def sample(self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()) -> Array:
        return self.from_noise(standard_noise(key, (*sample_shape, self.noise_size), self.loc.dtype))

    def log_prob(self, x: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        centered = self.elimination.permuted(x - self.loc).reshape(-1, self.noise_size)
        noise = solve_triangular(self._upper, centered.T, lower=False)
        return self.log_prob_of_noise(noise.T).reshape(x.shape[:-1])

    def log_prob_of_noise(self, noise: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        return standard_log_prob(noise) - jnp.sum(jnp.log(jnp.abs(jnp.diagonal(self.root))))

    def natural_gradient(
        self, slopes: Float[Array, "num_draws dim"], noise: Float[Array, "num_draws dim"]
    ) -> "DenselyCoupled":
        """E[h], for μ, and M, for R, its diagonal halved; and by how much M's noise is more than it was."""
        residual, moments = self._moments(slopes, noise)
        change = jnp.triu(self._symmetric(moments), 1) + 0.5 * jnp.diag(jnp.diagonal(moments))
        ratios = jnp.mean(moments**2, axis=1) * jnp.exp(-self.log_noise)
        return self._with(jnp.mean(residual, axis=0), change, ratios - 1)

    def moved(self, step: "DenselyCoupled") -> "DenselyCoupled":
        """μ + R δ, R (I + Δ)."""
        shift = self.elimination.unpermuted(self._upper @ limited(step.loc))
        root = self._upper + self._upper @ limited_norm(jnp.triu(step.root))
        return self._with(self.loc + shift, root, self.log_noise + limited(step.log_noise))

    def fisher_coordinates(self, gradient: "DenselyCoupled") -> Float[Array, " coordinate"]:
        """E[h], and what M tells about the regressions."""
        symmetric = jnp.triu(gradient.root) + jnp.triu(gradient.root).T
        along = symmetric @ self._upper.T
        entries = along[self.elimination.columns, self.elimination.rows]
        return jnp.concatenate([gradient.loc, jnp.diagonal(symmetric), entries])

    def inner_products(
        self, left: Float[np.ndarray, "row coordinate"], right: Float[np.ndarray, "other coordinate"]
    ) -> Float[np.ndarray, "row other"]:
        here, dim = self._regressions, self.noise_size
        one, other = (
            np.concatenate([each[:, :dim], here.whitened(each[:, dim:])], axis=1) for each in (left, right)
        )
        return one @ other.T

    def displacement(self, before: "DenselyCoupled") -> Float[np.ndarray, " coordinate"]:
        shift = np.asarray(self.loc, float) - np.asarray(before.loc, float)
        shift = np.linalg.solve(self._host_root, shift[np.asarray(self.elimination.order)])
        return np.concatenate([shift, self._regressions.displacement(before._factor)])

    def extrapolated(self, before: "DenselyCoupled", length: float) -> "DenselyCoupled":
        here, there = (np.asarray(each.loc, float) for each in (self, before))
        factor = further_factor(self.elimination, before._factor, self._factor, length)
        return self._of(here + length * (here - there), factor)

    def corrected(self, step: Float[np.ndarray, " coordinate"]) -> "DenselyCoupled":
        shift = np.empty(self.noise_size)
        shift[np.asarray(self.elimination.order)] = self._host_root @ step[: self.noise_size]
        factor = self._regressions.moved(step[self.noise_size :])
        return self._of(np.asarray(self.loc, float) + shift, factor)

    def settled(self) -> "DenselyCoupled":
        """The nearest normal whose precision has the pattern, on the host."""
        nearest = projected_root(self.elimination, self._host_root)
        return self._with(self.loc, np.asarray(nearest, self.root.dtype), self.log_noise)

    @property
    def member(self) -> Any:
        return self.kind.of_root(self.loc, self._host_root, self.elimination)

    @property
    def _upper(self) -> Float[Array, "dim dim"]:
        return jnp.triu(self.root)

    @property
    def _host_root(self) -> Matrix:
        return np.triu(np.asarray(self.root, float))

    @property
    def _factor(self) -> Numbers:
        """T, of a normal that is settled."""
        factor = np.linalg.inv(self._host_root).T
        return factor.diagonal(), factor[self.elimination.rows, self.elimination.columns]

    @property
    def _regressions(self) -> Regressions:
        root = self._host_root
        covariance = root @ root.T
        inverse = covariance.diagonal(), covariance[self.elimination.rows, self.elimination.columns]
        return Regressions(self.elimination, self._factor, inverse)

    def _moments(self, slopes: Array, noise: Array) -> tuple[Array, Array]:
        residual = self.elimination.permuted(slopes) @ self._upper + noise
        return residual, residual.T @ noise / len(noise)

    def _symmetric(self, moments: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
        """M, with as much of each half as makes the least noise."""
        weighed = moments * jax.nn.sigmoid(self.log_noise - self.log_noise[:, None])
        return weighed + weighed.T

    def _of(self, loc: Float[np.ndarray, " dim"], factor: Numbers) -> "DenselyCoupled":
        dtype, root = self.root.dtype, _root(self.elimination, factor)
        return self._with(np.asarray(loc, dtype), np.asarray(root, dtype), self.log_noise)

    def _with(self, loc: Any, root: Any, log_noise: Any) -> "DenselyCoupled":
        return DenselyCoupled(loc, root, log_noise, self.couplings, self.kind)


def _root(elimination: Elimination, factor: Numbers) -> Matrix:
    """R = T⁻ᵀ."""
    matrix = np.diag(np.asarray(factor[0], float))
    matrix[elimination.rows, elimination.columns] = factor[1]
    return np.triu(np.linalg.inv(matrix).T)
