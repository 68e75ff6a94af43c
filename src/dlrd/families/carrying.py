"""A normal that carries more along: what draws are is the normal's own."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Key


class Carrying(eqx.Module):
    """A form that automatic fits work with, made of what users get and of what is known beside it."""

    member: Any  # the normal

    @property
    def mean(self) -> Float[Array, " dim"]:
        return self.member.mean

    @property
    def std(self) -> Float[Array, " dim"]:
        return self.member.std

    @property
    def noise_size(self) -> int:
        return self.member.noise_size

    def sample_noise(self, key: Key[Array, ""], num_draws: int) -> Float[Array, "num_draws noise"]:
        return self.member.sample_noise(key, num_draws)

    def from_noise(self, noise: Float[Array, "*batch noise"]) -> Float[Array, "*batch dim"]:
        return self.member.from_noise(noise)

    def sample(self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()) -> Array:
        return self.member.sample(key, sample_shape)

    def log_prob(self, x: Array) -> Array:
        return self.member.log_prob(x)

    def log_prob_of_noise(self, noise: Float[Array, "*batch noise"]) -> Float[Array, "*batch"]:
        return self.member.log_prob_of_noise(noise)
