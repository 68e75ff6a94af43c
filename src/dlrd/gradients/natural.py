"""Gradients in the family's own geometry."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.families import Family, Natural, SecondOrder, log_prob_of, split
from dlrd.gradients.estimate import Estimate, evaluated_model, failures, good_rows
from dlrd.models import LogDensity, Model, hessian_products


def natural_gradient(
    log_density: Model | LogDensity, family: Family, key: Key[Array, ""], num_draws: int
) -> Estimate:
    r"""The natural gradient of the ELBO, for the normal families.

    The gradient without its score term, as in `dlrd.sticking_the_landing`, in the coordinates in which the
    family is N(0, I), and divided by the Fisher information there. With $z = μ + L ε$ and $h = L^\top ∇ \log
    p(z) + ε$ it consists of $E[h]$, for μ, and of $E[h ε^\top]$, for L. A step of size 1 along it would be
    Newton's for a normal posterior, whatever its scales and correlations: rates mean the same for all
    posteriors, and 0.3 is a good first one.

    The steps that follow from it are taken with the family's `moved`, as `dlrd.fit` does, and are not added
    to its arrays. Draws at which the log density or its gradient is not finite are left out.

    Args:
        log_density: a model with gradients, or a function of one draw, differentiable.
        family: one of dlrd's normals at its present parameters.
        key: of the draws.
        num_draws: S.

    Example:
        >>> import dlrd, jax
        >>> q = dlrd.MeanFieldNormal([0.0, 0.0], [0.0, 0.0])
        >>> log_density = lambda z: -0.5 * jnp.sum((z - 1.0) ** 2 / 1e6)
        >>> estimate = dlrd.natural_gradient(log_density, q, jax.random.key(0), num_draws=1000)
        >>> bool(jnp.all(jnp.abs(estimate.gradient.log_scale - 0.5) < 0.1))  # a far larger scale is wanted
        True

    References:
        Amari, "Natural gradient works efficiently in learning", 1998.
        Khan and Lin, "Conjugate-computation variational inference", 2017.
    """
    if not isinstance(family, Natural):
        raise TypeError(
            f"natural_gradient needs a family that knows its geometry, as dlrd's normals do, got a "
            f"{type(family).__name__}; take sticking_the_landing"
        )
    model = evaluated_model(log_density, family, "natural_gradient")
    noise = family.sample_noise(key, num_draws)
    draws = family.from_noise(noise)
    values, slopes = model.values_and_gradients(draws, key)
    terms = values - log_prob_of(family, noise, draws)
    chosen = finite_rows(terms, slopes)
    extra = []
    if isinstance(family, SecondOrder) and family.directions is not None:
        measured = draws[chosen[np.asarray(hessian_rows(num_draws))]]
        extra = [hessian_products(model, measured, family.directions, key)]
    gradient, _ = split(family.natural_gradient(slopes[chosen], noise[chosen], *extra))
    return Estimate(terms[chosen], gradient, failures(model, values), is_natural=True)


def hessian_rows(num_draws: int) -> list[int]:
    """The draws at which Hessians are measured: two of them, mirror images where draws come in such pairs.

    A Hessian costs many gradients, and the means need more draws than the precision does.
    """
    return [0] if num_draws == 1 else [0, num_draws - num_draws // 2]


def finite_rows(values: Float[Array, " draw"], slopes: Float[Array, "draw dim"]) -> Array:
    """For each draw itself, or a good one in place of one that is not finite."""
    return good_rows(jnp.isfinite(values) & jnp.all(jnp.isfinite(slopes), axis=1))
