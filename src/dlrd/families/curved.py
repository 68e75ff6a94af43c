"""A mean-field normal in the form that automatic fits work with."""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from dlrd.families._limits import limited, limited_stretch
from dlrd.families.carrying import Carrying
from dlrd.families.couplings import Couplings
from dlrd.families.curvature import Curvature

ROOT_TWO = 2**0.5


def couplings(form: Any) -> Couplings | None:
    """Of the curvature that a form carries, if it is sparse."""
    return form.curvature.couplings


def with_curvature(form: Any, curvature: Curvature) -> Any:
    """The form with another curvature, in the precision of the normal."""
    dtype = form.member.loc.dtype
    return type(form)(
        form.member,
        jax.tree.map(
            lambda array: np.asarray(array, dtype) if eqx.is_inexact_array_like(array) else array, curvature
        ),
    )


class Curved(Carrying):
    r"""A mean-field normal with the curvature of the log density, which makes its gradients far better.

    The quadratic $-½ (z - μ)^\top H (z - μ)$ has a known expectation, so it serves as a control variate. And
    the means are moved together, in the coordinates in which H is the identity: by themselves, those of a
    correlated posterior could only take small steps.
    """

    is_charted: ClassVar[bool] = True
    curvature: Curvature
    couplings = property(couplings)
    with_curvature = with_curvature

    def log_prob_factors(self, x: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        return self.member.log_prob_factors(x)

    def natural_gradient(
        self, slopes: Float[Array, "num_draws dim"], noise: Float[Array, "num_draws dim"]
    ) -> "Curved":
        """With r = ∇ log p + H (z − μ): mean(Wᵀ r), for μ, and ½ (σ mean(r ε) − σ² diag H + 1), for log σ."""
        scale = self.member.std
        residual = slopes + self.curvature.times(scale * noise)
        relative = scale * jnp.mean(residual * noise, axis=0) - scale**2 * self.curvature.diagonal + 1
        return self._with(self.curvature.whiten(jnp.mean(residual, axis=0)), 0.5 * relative)

    def moved(self, step: "Curved") -> "Curved":
        return self._with(
            self.member.loc + self.curvature.unwhiten(limited(step.member.loc)),
            self.member.log_scale + limited(step.member.log_scale),
        )

    def fisher_coordinates(self, gradient: "Curved") -> Float[Array, " coordinate"] | None:
        """None unless the curvature is whole: along directions left out, a large gap would look small."""
        if not self.curvature.is_whole:
            return None
        return jnp.concatenate([gradient.member.loc, ROOT_TWO * gradient.member.log_scale])

    def inner_products(
        self, left: Float[np.ndarray, "row coordinate"], right: Float[np.ndarray, "other coordinate"]
    ) -> Float[np.ndarray, "row other"]:
        return left @ right.T

    def displacement(self, before: "Curved") -> Float[np.ndarray, " coordinate"]:
        shift, stretch = self._change(before)
        whitened = self.curvature.whiten(self.curvature.times(shift[None])[0])
        return np.concatenate([np.asarray(whitened), ROOT_TWO * stretch])

    def extrapolated(self, before: "Curved", length: float) -> "Curved":
        """Scales change by factors. In units of the scales the curvature stays as it is."""
        shift, stretch = self._change(before)
        stretch = limited_stretch(length * stretch)
        here = self.member
        arrays = np.asarray(here.loc, float) + length * shift, np.asarray(here.log_scale, float) + stretch
        further = self._with(*(np.asarray(array, here.loc.dtype) for array in arrays))
        return further.with_curvature(self.curvature.rescaled(np.exp(stretch)))

    def corrected(self, step: Float[np.ndarray, " coordinate"]) -> "Curved":
        here = self.member
        shift, stretch = np.split(step, 2)
        loc = np.asarray(here.loc, float) + np.asarray(self.curvature.unwhiten(shift), float)
        arrays = loc, np.asarray(here.log_scale, float) + stretch / ROOT_TWO
        return self._with(*(np.asarray(array, here.loc.dtype) for array in arrays))

    def _change(self, before: "Curved") -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
        """Of the means and the logarithms of the scales."""
        here, there = (
            [np.asarray(array, float) for array in (each.member.loc, each.member.log_scale)]
            for each in (self, before)
        )
        return here[0] - there[0], here[1] - there[1]

    def _with(self, loc: ArrayLike, log_scale: ArrayLike) -> "Curved":
        return Curved(replace(self.member, loc=loc, log_scale=log_scale), self.curvature)
