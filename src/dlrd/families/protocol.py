"""What a variational family is: anything that can be sampled and evaluated."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Float, Key


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
class FromNoise(Protocol):
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

    def log_prob(self, x: Array) -> Array: ...


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
