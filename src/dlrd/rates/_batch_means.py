"""The newest samples of a few scalars, and the confidence interval of their mean by batch means."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int


class Samples(NamedTuple):
    """Running sums of the samples in a ring: the sum of any newest stretch is one difference.

    Each sum is kept with what rounding took from it: small samples after large ones keep their digits.
    """

    sums: Float[Array, "capacity channel"]  # at n mod capacity: the sum of the first n samples
    errors: Float[Array, "capacity channel"]  # what is to be added to it
    num: Int[Array, ""]  # samples since the last reset


def empty(capacity: int, num_channels: int) -> Samples:
    shape = (capacity, num_channels)
    return Samples(jnp.zeros(shape, dtype=float), jnp.zeros(shape, dtype=float), jnp.zeros((), jnp.int32))


def append(samples: Samples, values: list[Float[Array, ""]]) -> Samples:
    """The samples with one more value in each channel."""
    capacity = len(samples.sums)
    before = samples.sums[samples.num % capacity]
    value = jnp.stack(values)
    after = before + value
    # Exact whichever of the two is larger (Knuth's TwoSum).
    gained = after - before
    error = (before - (after - gained)) + (value - gained)
    num = samples.num + 1
    return Samples(
        samples.sums.at[num % capacity].set(after),
        samples.errors.at[num % capacity].set(samples.errors[samples.num % capacity] + error),
        num,
    )


def reset_if(condition: ArrayLike, samples: Samples) -> Samples:
    """The samples, forgotten if `condition` holds; the ring itself stays, only its origin is cleared."""
    return Samples(
        samples.sums.at[0].set(jnp.where(condition, 0, samples.sums[0])),
        samples.errors.at[0].set(jnp.where(condition, 0, samples.errors[0])),
        jnp.where(condition, 0, samples.num),
    )


def newest_mean(samples: Samples, num: Int[Array, ""]) -> Float[Array, " channel"]:
    """The mean of the newest `num` samples, channel by channel."""
    return _sums_between(samples, jnp.stack([samples.num - num, samples.num]))[0] / num


def half_width(
    samples: Samples, num: Int[Array, ""], quantiles: Float[Array, " max_batches"]
) -> Float[Array, ""]:
    """Half the confidence interval of the first channel's mean over the newest `num` samples.

    ⌊√num⌋ batches of ⌊√num⌋ samples each; the batches' means are taken as independent and normal.

    Args:
        samples: holds at least `num` samples.
        num: at least 4, so that there are two batches.
        quantiles: Student's t at the wanted confidence, by degrees of freedom less 1, as `t_quantiles` gives.
    """
    num_batches = jnp.floor(jnp.sqrt(num.astype(float))).astype(int)
    batch = jnp.arange(len(quantiles) + 1)
    is_batch = batch[1:] <= num_batches
    ends = samples.num - num_batches * jnp.maximum(num_batches - batch, 0)
    means = _sums_between(samples, ends)[:, 0] / num_batches
    center = jnp.sum(jnp.where(is_batch, means, 0)) / num_batches
    variance = jnp.sum(jnp.where(is_batch, (means - center) ** 2, 0)) / (num_batches - 1)
    return quantiles[num_batches - 2] * jnp.sqrt(variance / num_batches)


def t_quantiles(confidence: float, max_samples: int) -> Float[Array, " max_batches"]:
    """Student's t, two-sided, for 1, 2, … degrees of freedom, as far as `max_samples` samples need it."""
    from scipy.special import stdtrit

    degrees = range(1, math.isqrt(max_samples) + 1)
    return jnp.asarray([stdtrit(degree, (1 + confidence) / 2) for degree in degrees], dtype=float)


def _sums_between(samples: Samples, ends: Int[Array, " end"]) -> Float[Array, "stretch channel"]:
    """The sums of the samples between each two of `ends`, which count samples since the last reset."""
    places = ends % len(samples.sums)
    return jnp.diff(samples.sums[places], axis=0) + jnp.diff(samples.errors[places], axis=0)
