"""A compiled model that stands for a simulator, and one that tells by how much it is wrong."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from dlrd.models.flat import FunctionModel
from dlrd.models.polynomial import Polynomial
from dlrd.models.protocol import Audit, Emulable


class Emulator(FunctionModel):
    """The posterior with a polynomial in place of a simulator's outputs.

    Args:
        simulated: what it stands for.
        polynomial: of the coordinates that the outputs depend on.
    """

    def __init__(self, simulated: Emulable, polynomial: Polynomial):
        self.simulated = simulated
        super().__init__(self.log_density, (simulated.dim,), simulated.names, polynomial)

    def log_density(self, draw: Float[Array, " dim"]) -> Float[Array, ""]:
        polynomial = jax.tree.map(jnp.asarray, self._data)
        outputs = polynomial(draw[: self.simulated.num_emulated])
        return self.simulated.log_density_of(outputs.reshape(self.simulated.output_shape), draw)

    @property
    def _identity(self) -> tuple[Any, ...]:
        return type(self), self.simulated


class AuditedEmulator(Emulator):
    """An emulator beside what it stands for: its values are those of runs."""

    can_fail = True

    def values(self, draws: Float[Array, "draw dim"], key: Key[Array, ""] | None) -> Float[Array, " draw"]:
        return jax.vmap(lambda draw: self.simulated.log_density_of(self.simulated.outputs_at(draw), draw))(
            draws
        )

    def audit(self, draws: Float[Array, "draw dim"]) -> Audit:
        outputs = jax.vmap(self.simulated.outputs_at)(draws)
        values = jax.vmap(self.simulated.log_density_of)(outputs, draws)
        return Audit(values, values - super().values(draws, None), draws, outputs)
