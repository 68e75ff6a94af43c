"""What a variational family is: anything that can be sampled and evaluated. All else is a capability.

Fits ask for capabilities, never for a class: a family from anywhere that has one gets what follows from it.
"""

from typing import Any

import numpy as np
from jaxtyping import Array, Float, Key

# Unlike Python 3.11's, these compute no property to check.
from typing_extensions import Protocol, runtime_checkable


@runtime_checkable
class Family(Protocol):
    """A distribution with trainable arrays: any pytree with these two methods, as all of flowjax's are.

    `sample` must be differentiable in the arrays for the reparameterised gradients.
    """

    def sample(self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()) -> Array:
        """Independent draws, stacked in the leading axes `sample_shape`."""
        ...

    def log_prob(self, x: Array) -> Array:
        """The log density at `x`; leading axes are batches."""
        ...


@runtime_checkable
class Factorized(Protocol):
    """A family of independent coordinates, each with parameters of its own."""

    def log_prob_factors(self, x: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """The log density of each coordinate; their sum is `log_prob`."""
        ...


@runtime_checkable
class FromNoise(Family, Protocol):
    """A family whose draws are a function of standard normal noise, which may come from elsewhere."""

    @property
    def noise_size(self) -> int:
        """How many standard normals a draw takes."""
        ...

    def sample_noise(self, key: Key[Array, ""], num_draws: int) -> Float[Array, "num_draws noise"]:
        """The noise of `num_draws` draws."""
        ...

    def from_noise(self, noise: Float[Array, "*batch noise"]) -> Float[Array, "*batch dim"]:
        """The draws that this noise gives, differentiable in the family's arrays."""
        ...


@runtime_checkable
class KnowsNoise(Protocol):
    """A family that knows the density of a draw by the noise that made it, however near singular it is."""

    def log_prob_of_noise(self, noise: Float[Array, "*batch noise"]) -> Float[Array, "*batch"]:
        """The log density at `from_noise(noise)`."""
        ...


@runtime_checkable
class Natural(FromNoise, Protocol):
    """A family that knows its own geometry: what a step changes is measured in units of its own spread."""

    def natural_gradient(
        self, slopes: Float[Array, "num_draws dim"], noise: Float[Array, "num_draws noise"]
    ) -> Any:
        """The natural gradient of the ELBO, in the coordinates in which the family is N(0, I).

        Args:
            slopes: ∇ log p at the draws.
            noise: that gave the draws.
        """
        ...

    def moved(self, step: Any) -> Any:
        """The family after a step in those coordinates, at most as far as the geometry stays the same."""
        ...


@runtime_checkable
class Stratified(Protocol):
    """A family that is a weighted sum of components, each of which can be drawn from by itself.

    `sample` then chooses among the components, and no gradient of the weights goes through a choice. The
    reparameterised gradients take draws of every component, weighted.
    """

    @property
    def weights(self) -> Float[Array, " num_components"]:
        """The probability of each component."""
        ...

    def sample_strata(
        self, key: Key[Array, ""], num_draws: int
    ) -> Float[Array, "num_draws num_components dim"]:
        """Independent draws of each component, differentiable in its arrays."""
        ...


@runtime_checkable
class Composed(Stratified, Protocol):
    """A weighted sum whose components are families of one kind: each can start at a mode of its own."""

    @property
    def parts(self) -> Any:
        """A list of the components."""
        ...

    def with_parts(self, parts: Any, logits: Float[np.ndarray, " num_components"]) -> Any:
        """The sum of as many others, of the same kind, with weights softmax(`logits`)."""
        ...


@runtime_checkable
class Startable(Natural, Protocol):
    """A family that can start at a mode of the posterior: automatic fits then look for modes.

    What it starts as need not be its own kind: the form that fits work with may carry more along. `member` of
    that form gives the family itself again.
    """

    needs_whole_curvature: bool  # whether a mode's curvature must be known in all directions

    @property
    def mean(self) -> Float[Array, " dim"]: ...

    def at_mode(self, point: Float[np.ndarray, " dim"], curvature: Any) -> Any:
        """The family that fits a mode at `point` with this `Curvature`."""
        ...

    def as_start(self) -> Any:
        """The family as it is, to start from."""
        ...


@runtime_checkable
class Patterned(Protocol):
    """A family that has the model's own pattern of couplings, which fits then look for."""

    @property
    def has_pattern(self) -> bool:
        """Whether it has one."""
        ...


@runtime_checkable
class SecondOrder(Natural, Protocol):
    """A family whose `natural_gradient` has a third argument: products of the draws' Hessians."""

    @property
    def directions(self) -> Float[Array, "direction dim"] | None:
        """That each draw's Hessian is multiplied with; None if gradients are enough."""
        ...


@runtime_checkable
class HasCouplings(Protocol):
    """A form that fits work with that may know the model's pattern."""

    @property
    def couplings(self) -> Any:
        """The `Couplings` of the model, or None."""
        ...


@runtime_checkable
class WorkingForm(Protocol):
    """The form of a family that fits work with, where that is not what users get."""

    @property
    def member(self) -> Any:
        """What users get."""
        ...


@runtime_checkable
class Refinable(FromNoise, Protocol):
    """A family with a `Curvature` of the log density beside it, which can be brought up to date."""

    curvature: Any

    def with_curvature(self, curvature: Any) -> Any:
        """The same family with another curvature."""
        ...


@runtime_checkable
class Settling(Protocol):
    """A form that fits work with whose steps, and averages of them, may lead out of the family."""

    def settled(self) -> Any:
        """The nearest member of the family, on the host."""
        ...


@runtime_checkable
class Structured(Protocol):
    """A family whose arrays have a structure of their own, which files keep beside them."""

    @property
    def structure(self) -> dict[str, np.ndarray]:
        """The structure, as arrays."""
        ...

    @classmethod
    def of_structure(cls, structure: dict[str, np.ndarray]) -> Any:
        """Any member with this structure."""
        ...


@runtime_checkable
class Moments(Protocol):
    """A family that knows its mean and standard deviations."""

    @property
    def mean(self) -> Float[Array, "..."]: ...

    @property
    def std(self) -> Float[Array, "..."]: ...


@runtime_checkable
class HasCovariance(Protocol):
    """A family that knows the covariance of its coordinates, beyond their standard deviations."""

    @property
    def covariance(self) -> Float[Array, "dim dim"]: ...


@runtime_checkable
class Quantiled(Moments, Protocol):
    """A family that knows the quantiles of its coordinates; of others they are taken from draws."""

    def quantiles(self, probabilities: Any) -> Float[np.ndarray, "probability dim"]:
        """Of each coordinate."""
        ...
