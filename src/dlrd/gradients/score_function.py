"""Gradients from values of the log density alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from dlrd.families import Factorized, Family, split
from dlrd.gradients.estimate import Estimate, evaluated_model, failures, good_rows
from dlrd.models import LogDensity, Model


def score_function(
    log_density: Model | LogDensity, family: Family, key: Key[Array, ""], num_draws: int
) -> Estimate:
    r"""The score-function gradient with control variates: needs values of the log density alone.

    With the score $h_s = ∇_λ \log q_λ(z_s)$ and the weight $w_s = \log p(z_s) - \log q_λ(z_s)$, parameter by
    parameter,

    $$\frac1S \sum_s h_s (w_s - a_s), \qquad a_s = \frac{\sum_{r≠s} h_r^2 w_r}{\sum_{r≠s} h_r^2}.$$

    The score times any constant has mean zero; $a_s$ estimates the constant of least variance from the other
    draws, so the estimate stays unbiased. Where the family factorises (it has `log_prob_factors`), the weight
    of a coordinate's parameters contains that coordinate's factor of q alone: the others have mean zero there
    (Rao–Blackwellisation).

    Args:
        log_density: a model, or a function of one draw, which need not be differentiable.
        family: the variational family at its present parameters λ.
        key: of the draws.
        num_draws: S, at least 2: the control variate comes from the other draws.

    Example:
        >>> import dlrd, jax
        >>> q = dlrd.MeanFieldNormal.standard(2)
        >>> estimate = dlrd.score_function(lambda z: -0.5 * (z @ z), q, jax.random.key(0), num_draws=64)
        >>> estimate.gradient.log_scale.shape
        (2,)

    References:
        Ranganath, Gerrish and Blei, "Black Box Variational Inference", 2014.
    """
    if num_draws < 2:
        raise ValueError(
            f"num_draws must be at least 2 for score_function, got {num_draws}: "
            "its control variate comes from the other draws"
        )
    model = evaluated_model(log_density, family, None)
    trainable, rest = split(family)
    draws = jax.lax.stop_gradient(family.sample(key, (num_draws,)))
    values = model.values(draws, key)
    log_probs = family.log_prob(draws)
    scores = jax.vmap(
        jax.grad(lambda trainable, draw: eqx.combine(trainable, rest).log_prob(draw)), (None, 0)
    )(trainable, draws)
    terms, num_failed = values - log_probs, failures(model, values)
    if model.can_fail:
        is_good = jnp.isfinite(values)
        chosen = good_rows(is_good)
        values, terms = values[chosen], terms[chosen]
        scores = jax.tree.map(lambda score: _of_good(score, is_good), scores)
    centered = values - jnp.mean(values)  # a constant changes nothing but the rounding
    if isinstance(family, Factorized):
        weights = centered[:, None] - family.log_prob_factors(draws)
    else:
        weights = centered - log_probs

    def combine(score: Float[Array, "num_draws ..."]) -> Float[Array, "..."]:
        weight = weights.reshape(weights.shape + (1,) * (score.ndim - weights.ndim))
        return jnp.mean(score * (weight - _others_mean(weight, score**2)), axis=0)

    return Estimate(terms, jax.tree.map(combine, scores), num_failed, needs_independent=True)


def _of_good(score: Float[Array, "num_draws ..."], is_good: Bool[Array, " num_draws"]) -> Array:
    """Failed draws without a score count neither in a mean nor for control variates; the others for more."""
    keep = is_good.reshape(-1, *(1,) * (score.ndim - 1))
    return jnp.where(keep, score, 0) / jnp.mean(is_good, dtype=score.dtype)


def _others_mean(
    values: Float[Array, "num_draws ..."], weights: Float[Array, "num_draws ..."]
) -> Float[Array, "num_draws ..."]:
    """For each draw the weighted mean of the other draws' values; 0 where these have no weight."""
    # Sums of the others, not the sum less one, whose rounding a small denominator would magnify.
    others = 1 - jnp.eye(len(values), dtype=values.dtype)
    numerator, denominator = (
        jnp.tensordot(others, each, axes=1, precision="highest") for each in (weights * values, weights)
    )
    return jnp.where(denominator > 0, numerator / jnp.where(denominator > 0, denominator, 1), 0)
