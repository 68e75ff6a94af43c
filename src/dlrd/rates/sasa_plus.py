"""SASA+: a simpler test of stationarity that suits more optimisers."""

import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from dlrd.checks import check_between, check_count
from dlrd.rates import _batch_means as batch_means
from dlrd.rates._rate import inner
from dlrd.rates._stationarity import Sampling, decay_when_stationary


def sasa_plus(
    learning_rate: ArrayLike,
    factor: ArrayLike = 0.1,
    interval: int = 100,
    significance: float = 0.05,
    max_samples: int = 2**17,
) -> optax.GradientTransformation:
    r"""Decays the learning rate when a statistical test finds the iterates stationary (SASA+).

    The last link of an `optax.chain`, as `dlrd.dynamic_decay`. With parameters x, direction d and rate α, the
    mean of $Δ = ⟨x, d⟩ - \frac{α}{2} ‖d‖^2$ is zero for stationary iterates. Every `interval` steps the
    newest eighth of the samples since the last decay is looked at, once that is more than 1000: if the
    confidence interval of their mean, by batch means, contains 0, the rate is multiplied by `factor`.

    Args:
        learning_rate: the initial rate.
        factor: what the rate is multiplied by at a decay.
        interval: steps between two tests.
        significance: the interval has confidence 1 − `significance`.
        max_samples: how many of the newest samples are kept at the most.

    Returns:
        A transformation; its state holds "learning_rate" and "num_decays".

    Example:
        >>> import dlrd, optax
        >>> optimizer = optax.chain(optax.scale_by_adam(), dlrd.sasa_plus(1e-2))

    References:
        Zhang, Lang, Liu and Xiao, "Statistical Adaptive Stochastic Gradient Methods", 2020.
    """
    check_between("significance", significance, 0, 1)
    check_count("max_samples", max_samples)
    quantiles = batch_means.t_quantiles(1 - significance, max_samples)

    def delta(
        params: optax.Params, direction: optax.Updates, rate: Float[Array, ""]
    ) -> list[Float[Array, ""]]:
        return [inner(params, direction) - rate / 2 * inner(direction, direction)]

    def is_stationary(samples: batch_means.Samples, num: Int[Array, ""]) -> Bool[Array, ""]:
        (mean,) = batch_means.newest_mean(samples, num)
        return jnp.abs(mean) <= batch_means.half_width(samples, num, quantiles)

    return decay_when_stationary(
        learning_rate,
        factor,
        measure_fn=delta,
        num_channels=1,
        is_stationary_fn=is_stationary,
        sampling=Sampling(interval, fraction=8, min_samples=1000, max_samples=max_samples),
    )
