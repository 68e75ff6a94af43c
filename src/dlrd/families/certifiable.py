"""What families can do about their gap to the optimum: tell it, and help to make it smaller or surer.

Fits ask for these as they ask for the capabilities of `protocol.py`.
"""

from typing import Any, ClassVar

import numpy as np
from jaxtyping import Array, Float
from typing_extensions import Protocol, runtime_checkable

from dlrd.families.protocol import Natural


@runtime_checkable
class Certifiable(Natural, Protocol):
    """A family whose gap to its optimum the natural gradient tells: automatic fits then end certified.

    Half the inner product of the gradient with itself is the gap, near the optimum. In most families'
    coordinates the Fisher information is the identity (for the means of a family that carries a curvature:
    the curvature), and that is a plain product.
    """

    def fisher_coordinates(self, gradient: Any) -> Float[Array, " coordinate"] | None:
        """A natural gradient of this family as a vector; None where it cannot tell the gap."""
        ...

    def inner_products(
        self, left: Float[np.ndarray, "row coordinate"], right: Float[np.ndarray, "other coordinate"]
    ) -> Float[np.ndarray, "row other"]:
        """Of such vectors, on the host: what the inverse of the Fisher information makes of two gradients."""
        ...

    def displacement(self, before: Any) -> Float[np.ndarray, " coordinate"]:
        """The way here from an earlier member, in the same coordinates."""
        ...

    def extrapolated(self, before: Any, length: float) -> Any:
        """The member `length` times as far beyond this one as it is from an earlier member."""
        ...


@runtime_checkable
class Correctable(Certifiable, Protocol):
    """A certifiable family that a gradient in those coordinates can move, by Newton's step."""

    def corrected(self, step: Float[np.ndarray, " coordinate"]) -> Any:
        """The family after this step, on the host; a small one, near the optimum."""
        ...


@runtime_checkable
class Charted(Correctable, Protocol):
    """A correctable family that has the same coordinates at all its members.

    Two gradients then tell how the ELBO bends between two members.
    """

    is_charted: ClassVar[bool]  # true: that is what tells it from others


@runtime_checkable
class Teachable(Certifiable, Protocol):
    """A form that fits work with whose gradients have less noise when draws have shown more of the model."""

    def lesson(
        self, slopes: Float[Array, "num_draws dim"], noise: Float[Array, "num_draws noise"]
    ) -> Float[Array, " number"]:
        """What these draws show, ∇ log p there and the noise that gave them."""
        ...

    def taught(self, lessons: Float[np.ndarray, "block number"]) -> Any:
        """With what independent lessons have in common, on the host."""
        ...


@runtime_checkable
class BoundsGap(Certifiable, Protocol):
    """A certifiable family whose information sees no end of some ways on which there is little to gain."""

    def gap_products(self, gradients: Float[np.ndarray, "row coordinate"]) -> Float[np.ndarray, "row row"]:
        """As `inner_products` of the gradients, in a metric that bounds what they can gain."""
        ...
