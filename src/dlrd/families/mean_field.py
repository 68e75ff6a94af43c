"""Independent normals."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Key

from dlrd.checks import check_count
from dlrd.families._checks import check_shape, check_vector, float_array
from dlrd.families._limits import limited
from dlrd.families._noise import standard_log_prob, standard_noise
from dlrd.families._quantiles import normal_quantiles
from dlrd.families.curvature import Curvature, diagonal_curvature
from dlrd.families.curved import Curved


class MeanFieldNormal(eqx.Module):
    r"""A normal distribution with diagonal covariance, $N(μ, \mathrm{diag}(σ^2))$.

    Its parameters are those of the paper, λ = (μ, log σ).

    Args:
        loc: μ, a vector.
        log_scale: log σ, a vector of the same length.

    Example:
        >>> import dlrd, jax
        >>> q = dlrd.MeanFieldNormal.standard(3)
        >>> q.sample(jax.random.key(0), (5,)).shape
        (5, 3)
        >>> print(q.mean, q.std)
        [0. 0. 0.] [1. 1. 1.]
    """

    needs_whole_curvature: ClassVar[bool] = False
    richer: ClassVar[str] = "no family at all: dlrd.fit then goes on to richer normals, as far as that pays"
    loc: Float[Array, " dim"]
    log_scale: Float[Array, " dim"]

    def __init__(self, loc: ArrayLike, log_scale: ArrayLike):
        self.loc = float_array("loc", loc)
        self.log_scale = float_array("log_scale", log_scale)
        check_vector("loc", self.loc)
        check_shape("log_scale", self.log_scale, self.loc.shape)

    @classmethod
    def standard(cls, dim: int) -> "MeanFieldNormal":
        """N(0, I) in `dim` dimensions, in the default float type."""
        check_count("dim", dim)
        return cls(np.zeros(dim), np.zeros(dim))

    def sample(
        self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()
    ) -> Float[Array, "*sample_shape dim"]:
        """Independent draws, z = μ + σ ε."""
        return self.from_noise(standard_noise(key, (*sample_shape, self.noise_size), self.loc.dtype))

    @property
    def noise_size(self) -> int:
        return len(self.loc)

    def sample_noise(self, key: Key[Array, ""], num_draws: int) -> Float[Array, "num_draws dim"]:
        """The noise ε of independent draws."""
        return standard_noise(key, (num_draws, self.noise_size), self.loc.dtype)

    def from_noise(self, noise: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """μ + σ ε for the given ε."""
        return self.loc + self.std * noise

    def log_prob(self, x: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        """The log density at `x`; leading axes are batches."""
        return jnp.sum(self.log_prob_factors(x), axis=-1)

    def log_prob_factors(self, x: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """The log density of each coordinate."""
        noise = (x - self.loc) * jnp.exp(-self.log_scale)
        return -0.5 * noise**2 - self.log_scale - 0.5 * jnp.log(2 * jnp.pi)

    def log_prob_of_noise(self, noise: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        """The log density at the draws that this noise gives."""
        return standard_log_prob(noise) - jnp.sum(self.log_scale)

    def natural_gradient(
        self, slopes: Float[Array, "num_draws dim"], noise: Float[Array, "num_draws dim"]
    ) -> "MeanFieldNormal":
        """With h = σ ∇ log p + ε: the means of h, for μ in units of σ, and of ½ h ε, for log σ."""
        residual = self.std * slopes + noise
        return MeanFieldNormal(jnp.mean(residual, axis=0), 0.5 * jnp.mean(residual * noise, axis=0))

    def moved(self, step: "MeanFieldNormal") -> "MeanFieldNormal":
        """μ + σ δ, log σ + δ′."""
        return MeanFieldNormal(
            self.loc + self.std * limited(step.loc), self.log_scale + limited(step.log_scale)
        )

    def at_mode(self, point: Float[np.ndarray, " dim"], curvature: Curvature) -> Curved:
        """Scales from the diagonal of the curvature, which goes along."""
        log_scale = -0.5 * np.log(np.asarray(curvature.diagonal))
        there = MeanFieldNormal(np.asarray(point, self.loc.dtype), np.asarray(log_scale, self.loc.dtype))
        return Curved(there, curvature).with_curvature(curvature)

    def as_start(self) -> Curved:
        """With its own precision for a curvature."""
        curvature = diagonal_curvature(np.exp(np.asarray(self.log_scale, float)))
        return Curved(self, curvature).with_curvature(curvature)

    def quantiles(self, probabilities: Any) -> Float[np.ndarray, "probability dim"]:
        """Of each coordinate, on the host."""
        return normal_quantiles(self.mean, self.std, probabilities)

    @property
    def mean(self) -> Float[Array, " dim"]:
        return self.loc

    @property
    def std(self) -> Float[Array, " dim"]:
        return jnp.exp(self.log_scale)

    @property
    def scale_tril(self) -> Float[Array, "dim dim"]:
        """A lower triangular root of the covariance."""
        return jnp.diag(self.std)
