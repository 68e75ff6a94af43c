"""A full-rank normal in the form that automatic fits work with."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dlrd.families.carrying import Carrying
from dlrd.families.curvature import Numbers
from dlrd.families.trainable import Untrained


class Fourths(Untrained):
    """A number for each coordinate of the noise: the mean fourth derivative of log p along it, over 6."""

    values: Numbers


class Quartic(Carrying):
    r"""A full-rank normal with what draws have shown of the log density's fourth derivatives.

    Near its best the normal matches the mean slope and the mean curvature, so the noise of its gradients is
    made of higher derivatives. Mirror images take the third ones out. Of the fourth, $k\, (ε^3 - 3 ε)$ is a
    part of $h = L^\top ∇ \log p + ε$ whose product with any ε has expectation 0, so it can be taken out, too.
    Over all draws, that is: where some are left out, what is taken out has a small mean of its own.
    """

    fourths: Fourths

    def natural_gradient(
        self, slopes: Float[Array, "num_draws dim"], noise: Float[Array, "num_draws dim"]
    ) -> "Quartic":
        residual = self.member.residual(slopes, noise) - self.fourths.values * _cubic(noise)
        return self._with(self.member.of_residual(residual, noise))

    def lesson(
        self, slopes: Float[Array, "num_draws dim"], noise: Float[Array, "num_draws dim"]
    ) -> Float[Array, " dim"]:
        """What these draws tell of the fourth derivatives."""
        return jnp.mean(self.member.residual(slopes, noise) * _cubic(noise), axis=0) / 6

    def taught(self, lessons: Float[np.ndarray, "block dim"]) -> "Quartic":
        """With the mean of independent lessons, each number smaller by what of its square may be noise."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            mean, noise = np.mean(lessons, axis=0), np.var(lessons, axis=0, ddof=1) / len(lessons)
            share = np.maximum(1 - noise / mean**2, 0)
        values = np.where(np.isfinite(share), share * mean, 0)
        return Quartic(self.member, Fourths(np.asarray(values, self.member.loc.dtype)))

    def moved(self, step: "Quartic") -> "Quartic":
        return self._with(self.member.moved(step.member))

    def fisher_coordinates(self, gradient: "Quartic") -> Float[Array, " coordinate"]:
        return self.member.fisher_coordinates(gradient.member)

    def inner_products(
        self, left: Float[np.ndarray, "row coordinate"], right: Float[np.ndarray, "other coordinate"]
    ) -> Float[np.ndarray, "row other"]:
        return self.member.inner_products(left, right)

    def displacement(self, before: "Quartic") -> Float[np.ndarray, " coordinate"]:
        return self.member.displacement(before.member)

    def extrapolated(self, before: "Quartic", length: float) -> "Quartic":
        return self._with(self.member.extrapolated(before.member, length))

    def corrected(self, step: Float[np.ndarray, " coordinate"]) -> "Quartic":
        return self._with(self.member.corrected(step))

    def _with(self, member: Any) -> "Quartic":
        return Quartic(member, self.fourths)


def quartic(member: Any) -> Quartic:
    """The form of a full-rank normal of which nothing more is known yet."""
    return Quartic(member, Fourths(np.zeros(len(member.loc), member.loc.dtype)))


def _cubic(noise: Float[Array, "num_draws dim"]) -> Float[Array, "num_draws dim"]:
    """The third Hermite polynomial: independent of 1, of all ε, and of the square of each."""
    return noise**3 - 3 * noise
