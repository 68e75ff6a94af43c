"""What is known of the log density's curvature near a mean-field normal, put to use."""

from typing import Any, Protocol

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from dlrd.families import MeanFieldNormal
from dlrd.families._limits import limited
from dlrd.gradients.estimate import Untrained

Numbers = Any
"""Arrays, NumPy's on the host or traced ones in a compiled step; the code here has operators alone."""


class Curvature(Protocol):
    """An approximation H of −∇² log p, positive definite, with a root W of its inverse, H⁻¹ = W Wᵀ.

    Written with operators alone: it serves the host's NumPy arrays and the compiled steps alike.
    """

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


class DenseCurvature(Untrained):
    """H as a whole matrix, for up to hundreds of parameters. NumPy arrays: no fit trains them."""

    hessian: Numbers  # H, shape (dim, dim)
    root: Numbers  # W, lower triangular, likewise

    @property
    def diagonal(self) -> Numbers:
        return self.hessian.diagonal()

    def times(self, rows: Numbers) -> Numbers:
        return rows @ self.hessian

    def whiten(self, slope: Numbers) -> Numbers:
        return slope @ self.root

    def unwhiten(self, step: Numbers) -> Numbers:
        return self.root @ step


class LowRankCurvature(Untrained):
    """W = diag(s) (I + Q diag(t − 1) Qᵀ): few directions Q beside a diagonal, linear in the dimension."""

    scale: Numbers  # s, shape (dim,)
    directions: Numbers  # Q, orthonormal columns, shape (dim, rank)
    stretches: Numbers  # t, positive, shape (rank,)

    @property
    def diagonal(self) -> Numbers:
        return (1 + self.directions**2 @ (self.stretches**-2.0 - 1)) / self.scale**2

    def times(self, rows: Numbers) -> Numbers:
        return self._stretched(rows / self.scale, self.stretches**-2.0) / self.scale

    def whiten(self, slope: Numbers) -> Numbers:
        return self._stretched(slope * self.scale, self.stretches)

    def unwhiten(self, step: Numbers) -> Numbers:
        return self._stretched(step, self.stretches) * self.scale

    def _stretched(self, rows: Numbers, by: Numbers) -> Numbers:
        return rows + ((rows @ self.directions) * (by - 1)) @ self.directions.T


class Curved(eqx.Module):
    r"""A mean-field normal with the curvature of the log density, which makes its gradients far better.

    The quadratic $-½ (z - μ)^\top H (z - μ)$ has a known expectation, so it serves as a control variate. And
    the means are moved together, in the coordinates in which H is the identity: by themselves, those of a
    correlated posterior could only take small steps.
    """

    family: MeanFieldNormal
    curvature: Curvature

    @property
    def noise_size(self) -> int:
        return self.family.noise_size

    def sample_noise(self, key: Key[Array, ""], num_draws: int) -> Float[Array, "num_draws dim"]:
        return self.family.sample_noise(key, num_draws)

    def from_noise(self, noise: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        return self.family.from_noise(noise)

    def sample(self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()) -> Array:
        return self.family.sample(key, sample_shape)

    def log_prob(self, x: Array) -> Array:
        return self.family.log_prob(x)

    def natural_gradient(
        self, slopes: Float[Array, "num_draws dim"], noise: Float[Array, "num_draws dim"]
    ) -> "Curved":
        """With r = ∇ log p + H (z − μ): mean(Wᵀ r), for μ, and ½ (σ mean(r ε) − σ² diag H + 1), for log σ."""
        scale = self.family.std
        residual = slopes + self.curvature.times(scale * noise)
        relative = scale * jnp.mean(residual * noise, axis=0) - scale**2 * self.curvature.diagonal + 1
        gradient = MeanFieldNormal(self.curvature.whiten(jnp.mean(residual, axis=0)), 0.5 * relative)
        return Curved(gradient, self.curvature)

    def moved(self, step: "Curved") -> "Curved":
        return Curved(
            MeanFieldNormal(
                self.family.loc + self.curvature.unwhiten(limited(step.family.loc)),
                self.family.log_scale + limited(step.family.log_scale),
            ),
            self.curvature,
        )
