"""The schedules that the paper compares with: rate = η₀ / i^ζ."""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int

from dlrd.checks import check_not_negative
from dlrd.rates._rate import apply_rate, check_learning_rate, scalar, transformation


class PowerDecayState(NamedTuple):
    """State of `power_decay`."""

    learning_rate: Float[Array, ""]  # the rate of the latest step
    num_steps: Int[Array, ""]  # so far


def power_decay(learning_rate: ArrayLike, exponent: ArrayLike) -> optax.GradientTransformation:
    r"""Lets the learning rate fall as a power of the iteration.

    $$\eta_i = \eta_0 / i^{\zeta}, \quad i = 1, 2, …$$

    The last link of an `optax.chain`, as `dlrd.dynamic_decay`. For ζ in (1/2, 1] the rates meet the
    conditions of Robbins and Monro.

    Args:
        learning_rate: η₀, the rate of the first step.
        exponent: ζ, at least 0.

    Returns:
        A transformation; its state holds "learning_rate".

    Example:
        >>> import jax.numpy as jnp
        >>> rule = power_decay(1.0, exponent=0.5)
        >>> state = rule.init(jnp.ones(1))
        >>> for _ in range(4):
        ...     step, state = rule.update(jnp.ones(1), state)
        >>> print(step)
        [-0.5]
    """
    check_learning_rate(learning_rate)
    check_not_negative("exponent", exponent)

    def init(params: optax.Params) -> PowerDecayState:
        del params
        return PowerDecayState(scalar(learning_rate), jnp.zeros((), jnp.int32))

    def update(
        updates: optax.Updates, state: PowerDecayState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, PowerDecayState]:
        del params
        num_steps = state.num_steps + 1
        rate = scalar(learning_rate) / scalar(num_steps) ** scalar(exponent)
        return apply_rate(updates, rate), PowerDecayState(rate, num_steps)

    return transformation(init, update)
