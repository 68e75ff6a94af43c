"""What SASA and SASA+ share: the rate falls when a test of a few scalars finds the iterates stationary."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from dlrd.checks import check_between, check_count
from dlrd.rates import _batch_means as batch_means
from dlrd.rates._rate import NO_PARAMS_MESSAGE, apply_rate, check_learning_rate, scalar, transformation

MeasureFn = Callable[[optax.Params, optax.Updates, Float[Array, ""]], list[Float[Array, ""]]]
TestFn = Callable[[batch_means.Samples, Int[Array, ""]], Bool[Array, ""]]


class Sampling(NamedTuple):
    """When tests are made, and of how many samples."""

    interval: int  # steps between two tests
    fraction: int  # 2 looks at the newest half of the samples since the last decay
    min_samples: int  # a test looks at more than these
    max_samples: int  # that are kept


class StationarityState(NamedTuple):
    """State of `sasa` and `sasa_plus`."""

    learning_rate: Float[Array, ""]  # the rate of the latest step
    num_decays: Int[Array, ""]
    scale: Float[Array, ""]  # product of the decays so far
    num_steps: Int[Array, ""]  # so far
    samples: batch_means.Samples  # of the measured scalars, since the last decay


def decay_when_stationary(
    learning_rate: ArrayLike,
    factor: ArrayLike,
    *,
    measure_fn: MeasureFn,
    num_channels: int,
    is_stationary_fn: TestFn,
    sampling: Sampling,
) -> optax.GradientTransformation:
    """Measures scalars at each step and tests the newest of them at intervals.

    Args:
        learning_rate: the initial rate.
        factor: what the rate is multiplied by at a decay.
        measure_fn: (parameters, direction, rate) to the scalars of this step.
        num_channels: how many scalars that are.
        is_stationary_fn: (samples, number of the newest to look at) to the verdict.
        sampling: when tests are made, and of how many samples.
    """
    interval, fraction, min_samples, max_samples = sampling
    check_learning_rate(learning_rate)
    check_between("factor", factor, 0, 1)
    check_count("interval", interval)
    if not min_samples < max_samples:
        raise ValueError(f"max_samples must be above {min_samples}, got {max_samples}")

    def init(params: optax.Params) -> StationarityState:
        del params
        return StationarityState(
            learning_rate=scalar(learning_rate),
            num_decays=jnp.zeros((), jnp.int32),
            scale=scalar(1.0),
            num_steps=jnp.zeros((), jnp.int32),
            samples=batch_means.empty(max_samples + 1, num_channels),
        )

    def update(
        updates: optax.Updates, state: StationarityState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, StationarityState]:
        if params is None:
            raise ValueError(NO_PARAMS_MESSAGE)
        num_steps = state.num_steps + 1
        rate = scalar(learning_rate) * state.scale
        samples = batch_means.append(state.samples, measure_fn(params, updates, rate))
        num_newest = jnp.minimum(-(-samples.num // fraction), max_samples)
        decays = jax.lax.cond(
            (num_steps % interval == 0) & (num_newest > min_samples),
            lambda: is_stationary_fn(samples, num_newest),
            lambda: jnp.asarray(False),
        )
        scale = jnp.where(decays, state.scale * scalar(factor), state.scale)
        rate = scalar(learning_rate) * scale
        return apply_rate(updates, rate), StationarityState(
            learning_rate=rate,
            num_decays=state.num_decays + decays,
            scale=scale,
            num_steps=num_steps,
            samples=batch_means.reset_if(decays, samples),
        )

    return transformation(init, update)
