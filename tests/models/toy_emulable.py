"""A simulator in jax itself: its outputs can be learnt, and its posterior is known to the last digit."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from dlrd.models import FunctionModel

TIME = np.linspace(0.0, 4.0, 20)


def decay(z: jax.Array) -> jax.Array:
    """An exponential decay with an unknown height, rate and level."""
    return jnp.exp(0.3 * z[0] - jnp.exp(0.4 * z[1]) * jnp.asarray(TIME, z.dtype)) + z[2]


class ToyEmulable(FunctionModel):
    """Outputs with noise, N(0, I) a priori; every run at which `fails` holds gives nan."""

    is_emulated = True
    can_fail = True
    difference_step = 0.01

    def __init__(
        self,
        outputs_fn: Callable[[jax.Array], jax.Array] = decay,
        truth: tuple[float, ...] = (0.5, -0.4, 0.3),
        noise: float = 0.05,
        fails: Callable[[jax.Array], jax.Array] = lambda z: jnp.zeros((), bool),
    ):
        self.outputs_fn, self.noise, self.fails = outputs_fn, noise, fails
        clean = np.asarray(outputs_fn(jnp.asarray(truth)))
        self.data = clean + noise * np.random.default_rng(0).standard_normal(clean.shape)
        super().__init__(self.log_density, (len(truth),))
        self.num_emulated, self.output_shape = len(truth), clean.shape

    def log_density(self, draw: jax.Array) -> jax.Array:
        return self.log_density_of(self.outputs_fn(draw), draw)

    def outputs_at(self, draw: jax.Array) -> jax.Array:
        return jnp.where(self.fails(draw), jnp.nan, self.outputs_fn(draw))

    def log_density_of(self, outputs: jax.Array, draw: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum(((outputs - self.data) / self.noise) ** 2) - 0.5 * draw @ draw
