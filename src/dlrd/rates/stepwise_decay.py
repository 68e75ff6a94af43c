"""The schedule of the paper's reference solutions: the rate falls by a factor at fixed intervals."""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int

from dlrd.checks import check_between, check_count
from dlrd.rates._rate import apply_rate, check_learning_rate, scalar, transformation


class StepwiseDecayState(NamedTuple):
    """State of `stepwise_decay`."""

    learning_rate: Float[Array, ""]  # the rate of the latest step
    num_decays: Int[Array, ""]
    num_steps: Int[Array, ""]  # so far


def stepwise_decay(
    learning_rate: ArrayLike, factor: ArrayLike, interval: int
) -> optax.GradientTransformation:
    r"""Multiplies the learning rate by `factor` every `interval` steps.

    $$\eta_i = \eta_0 \alpha^{⌊i/m⌋}, \quad i = 0, 1, …$$

    The last link of an `optax.chain`, as `dlrd.dynamic_decay`.

    Args:
        learning_rate: η₀, the rate of the first `interval` steps.
        factor: α, between 0 and 1.
        interval: m, the number of steps between two decays.

    Returns:
        A transformation; its state holds "learning_rate" and "num_decays".

    Example:
        >>> import jax.numpy as jnp
        >>> rule = stepwise_decay(1.0, factor=0.5, interval=2)
        >>> state = rule.init(jnp.ones(1))
        >>> for _ in range(3):
        ...     step, state = rule.update(jnp.ones(1), state)
        >>> print(step)
        [-0.5]
    """
    check_learning_rate(learning_rate)
    check_between("factor", factor, 0, 1)
    check_count("interval", interval)

    def init(params: optax.Params) -> StepwiseDecayState:
        del params
        return StepwiseDecayState(scalar(learning_rate), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def update(
        updates: optax.Updates, state: StepwiseDecayState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, StepwiseDecayState]:
        del params
        num_decays = state.num_steps // interval
        rate = scalar(learning_rate) * scalar(factor) ** num_decays
        return apply_rate(updates, rate), StepwiseDecayState(rate, num_decays, state.num_steps + 1)

    return transformation(init, update)
