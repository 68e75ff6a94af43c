"""What an estimator of the ELBO's gradient gives, and what it needs."""

from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from dlrd.families import Family
from dlrd.models import LogDensity, Model, as_model


class Estimate(eqx.Module):
    """One Monte Carlo estimate of the ELBO and of its gradient, and what may be done with it."""

    elbo_terms: Float[Array, " num_draws"]  # log p(z) − log q(z); their mean is the ELBO's estimate
    gradient: Any  # of the ELBO, which is maximised: the family with its gradient in place of its arrays
    num_failed: Int[Array, ""] | None = None  # draws that were left out, of models that can fail
    is_natural: bool = eqx.field(static=True, default=False)  # steps are taken by the family's `moved`
    needs_independent: bool = eqx.field(static=True, default=False)  # its draws must be independent


class Estimator(Protocol):
    """A rule for estimating the gradient of the ELBO from `num_draws` draws."""

    def __call__(
        self, log_density: Model | LogDensity, family: Family, key: Key[Array, ""], num_draws: int, /
    ) -> Estimate: ...


def evaluated_model(log_density: Model | LogDensity, family: Family, needs_gradient: str | None) -> Model:
    """What an estimator was given as a model.

    Args:
        log_density: a model, or a plain function of one draw.
        family: whose draws it is to evaluate.
        needs_gradient: the name of the estimator, if it cannot do without gradients.
    """
    shape = None
    if not isinstance(log_density, Model):
        shape = jax.eval_shape(family.sample, jax.random.key(0)).shape
    model = as_model(log_density, shape)
    if needs_gradient is not None and not model.has_gradient:
        raise ValueError(
            f"{needs_gradient} needs the gradient of the log density, and the model gives values alone; take "
            "dlrd.score_function"
        )
    return model


def good_rows(is_good: Bool[Array, " draw"]) -> Int[Array, " draw"]:
    """For each draw itself, or in place of one that is not good a good one, of these each in its turn."""
    num_good = jnp.cumsum(is_good)
    turn = jnp.cumsum(~is_good) - 1
    wanted = turn % jnp.maximum(num_good[-1], 1) + 1
    stand_in = jnp.argmax(num_good == wanted[:, None], axis=1)  # the first with so many good up to it
    return jnp.where(is_good, jnp.arange(len(is_good)), stand_in)


def failures(model: Model, values: Float[Array, " draw"]) -> Int[Array, ""] | None:
    """How many of the draws have failed, of a model of which they may."""
    return jnp.sum(jnp.isnan(values)) if model.can_fail else None
