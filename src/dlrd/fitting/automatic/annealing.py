"""A rate that falls to zero over a round of steps."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from dlrd.fitting.step import State


class AnnealingState(NamedTuple):
    """State of `annealing`."""

    learning_rate: Float[Array, ""]  # of the latest step; before the first, that of the first
    num_annealed: Int[Array, ""]  # steps of the round so far


def annealing(settings: Float[Array, " 2"]) -> optax.GradientTransformation:
    """Half a period of a cosine, from a rate at the first step of a round to zero behind the last.

    Args:
        settings: that rate, and how many steps the round has.
    """
    first, length = settings

    def init(params: optax.Params) -> AnnealingState:
        del params
        return AnnealingState(jnp.asarray(first, float), jnp.zeros((), jnp.int32))

    def update(
        updates: optax.Updates, state: AnnealingState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, AnnealingState]:
        del params
        done = jnp.minimum(state.num_annealed / length, 1.0)
        rate = 0.5 * first * (1 + jnp.cos(jnp.pi * done))
        steps = jax.tree.map(lambda update: -rate.astype(update.dtype) * update, updates)
        return steps, AnnealingState(rate, state.num_annealed + 1)

    update_fn: Any = update  # whose own type of state is fine there
    return optax.GradientTransformation(init, update_fn)


def steps_left(steps: State) -> int:
    """Of the round."""
    assert steps.learning_rate is not None
    length = float(np.asarray(steps.learning_rate)[0, 1])
    return round(length) - int(np.asarray(optax.tree_utils.tree_get(steps.opt_state, "num_annealed"))[0])
