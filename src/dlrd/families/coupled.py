"""A normal whose precision has the pattern of the model, in the form that automatic fits work with."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.families.couplings import Couplings


class Coupled(eqx.Module):
    r"""A sparse normal that is fitted by the Hessians of the log density.

    The natural gradient is $E[∇ \log p]$, for the mean, and $E[-∇² \log p] - Λ$, for the precision Λ. The
    Hessian has Λ's pattern, and few products give all of it: far less noise than gradients alone would have.
    The best normal of all has that pattern, too, so a full-rank normal can be fitted in this form.
    """

    normal: Any  # a `SparseNormal`
    couplings: Couplings
    kind: type = eqx.field(static=True)  # what users get: that normal, or one made of its covariance

    @property
    def member(self) -> Any:
        if isinstance(self.normal, self.kind):
            return self.normal
        return self.kind(self.normal.loc, self.normal.scale_tril)

    @property
    def mean(self) -> Float[Array, " dim"]:
        return self.normal.mean

    @property
    def std(self) -> Float[Array, " dim"]:
        return self.normal.std

    @property
    def noise_size(self) -> int:
        return self.normal.noise_size

    def sample_noise(self, key: Key[Array, ""], num_draws: int) -> Float[Array, "num_draws dim"]:
        """With mirror images: the mean of their Hessians has no noise from third derivatives."""
        half = self.normal.sample_noise(key, -(-num_draws // 2))
        return jnp.concatenate([half, -half])[:num_draws]

    def from_noise(self, noise: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        return self.normal.from_noise(noise)

    def sample(self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()) -> Array:
        return self.normal.sample(key, sample_shape)

    def log_prob(self, x: Array) -> Array:
        return self.normal.log_prob(x)

    def log_prob_of_noise(self, noise: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        return self.normal.log_prob_of_noise(noise)

    @property
    def directions(self) -> Float[Array, "color dim"]:
        """That the Hessian is to be multiplied with, for `natural_gradient`."""
        return jnp.asarray(self.couplings.seeds(self.normal.loc.dtype))

    def natural_gradient(
        self,
        slopes: Float[Array, "num_draws dim"],
        noise: Float[Array, "num_draws dim"],
        products: Float[Array, "num_draws color dim"] | None = None,
    ) -> "Coupled":
        """That of the sparse normal; with the Hessian's products, the mean of −∇² log p, less Λ, for Λ."""
        gradient = self.normal.natural_gradient(slopes, noise)
        if products is not None:
            wanted = self.couplings.hessian(-jnp.mean(products, axis=0))
            now = self.couplings.elimination.product(*self.normal.factor)
            change = jax.tree.map(jnp.subtract, wanted, now)
            gradient = self.normal.replaced(gradient.loc, change)
        return self._with(gradient)

    def moved(self, step: "Coupled") -> "Coupled":
        return self._with(self.normal.moved(step.normal))

    def fisher_coordinates(self, gradient: "Coupled") -> Float[Array, " coordinate"]:
        return self.normal.fisher_coordinates(gradient.normal)

    def inner_products(
        self, left: Float[np.ndarray, "row coordinate"], right: Float[np.ndarray, "other coordinate"]
    ) -> Float[np.ndarray, "row other"]:
        return self.normal.inner_products(left, right)

    def displacement(self, before: "Coupled") -> Float[np.ndarray, " coordinate"]:
        return self.normal.displacement(before.normal)

    def extrapolated(self, before: "Coupled", length: float) -> "Coupled":
        return self._with(self.normal.extrapolated(before.normal, length))

    def _with(self, normal: Any) -> "Coupled":
        return Coupled(normal, self.couplings, self.kind)
