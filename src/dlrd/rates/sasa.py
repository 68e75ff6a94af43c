"""SASA: the rate falls when a test finds stochastic gradient descent stationary."""

import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from dlrd.checks import check_between, check_count
from dlrd.rates import _batch_means as batch_means
from dlrd.rates._rate import inner
from dlrd.rates._stationarity import Sampling, decay_when_stationary


def sasa(
    learning_rate: ArrayLike,
    factor: ArrayLike = 0.1,
    interval: int = 1000,
    tolerance: float = 0.02,
    significance: float = 0.2,
    max_samples: int = 2**17,
) -> optax.GradientTransformation:
    r"""Decays the learning rate when a statistical test finds the iterates stationary (SASA).

    The last link of an `optax.chain`, as `dlrd.dynamic_decay`. With parameters x, direction d and rate α, for
    stationary iterates the mean of

    $$z = ⟨x, d⟩ - v, \qquad v = \frac{α}{2} ‖d‖^2$$

    is zero, since ‖x‖² no longer grows. (The reference has a further factor (1+β)/(1−β) in v for momentum β;
    it belongs to ⟨x, gradient⟩; a link of a chain sees the direction d.) Every `interval` steps the newest
    half of the samples since the last decay is looked at: if the confidence interval of the mean of z, by
    batch means, lies within ± `tolerance` times the mean of v, the rate is multiplied by `factor` and the
    samples are forgotten. Only scalars are kept, never parameters.

    Args:
        learning_rate: the initial rate.
        factor: what the rate is multiplied by at a decay; the reference leaves it open, 0.1 is that of SASA+.
        interval: steps between two tests; the reference tests once an epoch.
        tolerance: δ of the reference.
        significance: γ of the reference: the interval has confidence 1 − γ. The published experiments of the
            paper on dynamic learning rate decay used δ = 0.02 here too, a 98 % interval.
        max_samples: how many of the newest samples are kept at the most.

    Returns:
        A transformation; its state holds "learning_rate" and "num_decays".

    Example:
        >>> import dlrd, optax
        >>> optimizer = optax.chain(optax.identity(), dlrd.sasa(1e-2))  # stochastic gradient descent

    References:
        Lang, Zhang and Xiao, "Using Statistics to Automate Stochastic Optimization", NeurIPS 2019.
    """
    check_between("tolerance", tolerance, 0, float("inf"))
    check_between("significance", significance, 0, 1)
    check_count("max_samples", max_samples)
    quantiles = batch_means.t_quantiles(1 - significance, max_samples)

    def z_and_v(
        params: optax.Params, direction: optax.Updates, rate: Float[Array, ""]
    ) -> list[Float[Array, ""]]:
        v = rate / 2 * inner(direction, direction)
        return [inner(params, direction) - v, v]

    def is_stationary(samples: batch_means.Samples, num: Int[Array, ""]) -> Bool[Array, ""]:
        mean_z, mean_v = batch_means.newest_mean(samples, num)
        return jnp.abs(mean_z) + batch_means.half_width(samples, num, quantiles) < tolerance * mean_v

    return decay_when_stationary(
        learning_rate,
        factor,
        measure_fn=z_and_v,
        num_channels=2,
        is_stationary_fn=is_stationary,
        sampling=Sampling(interval, fraction=2, min_samples=3, max_samples=max_samples),
    )
