"""Gradients through the draws: z = z(ε, λ)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from dlrd.families import Family, Stratified, frozen, split
from dlrd.gradients.estimate import Estimate, evaluated_model, failures, good_rows
from dlrd.models import LogDensity, Model


def reparameterized(
    log_density: Model | LogDensity, family: Family, key: Key[Array, ""], num_draws: int
) -> Estimate:
    r"""The plain reparameterised gradient.

    $$\frac1S \sum_s ∇_λ \left[\log p(z(ε_s, λ)) - \log q_λ(z(ε_s, λ))\right]$$

    The weights of a `dlrd.Mixture` have no path through a draw. There draw $s$ is one of every component $k$,
    and in the brackets stands $\sum_k w_k \left[\log p(z_{sk}) - \log q_λ(z_{sk})\right]$.

    Args:
        log_density: a model with gradients, or a function of one draw, differentiable.
        family: the variational family at its present parameters λ.
        key: of the draws.
        num_draws: S.

    Example:
        >>> import dlrd, jax
        >>> q = dlrd.MeanFieldNormal.standard(2)
        >>> estimate = dlrd.reparameterized(lambda z: -0.5 * (z @ z), q, jax.random.key(0), num_draws=4)
        >>> estimate.gradient.loc.shape
        (2,)

    References:
        Kingma and Welling, "Auto-Encoding Variational Bayes", 2013.
    """
    model = evaluated_model(log_density, family, "reparameterized")
    return _path_gradient(model, family, key, num_draws, is_score_removed=False)


def sticking_the_landing(
    log_density: Model | LogDensity, family: Family, key: Key[Array, ""], num_draws: int
) -> Estimate:
    r"""The reparameterised gradient without its score term, the paper's estimator and the default.

    $$\frac1S \sum_s ∇_z \left[\log p(z_s) - \log q_λ(z_s)\right] ∇_λ z(ε_s, λ)$$

    The term left out has mean zero. Where the family contains the posterior, what remains has no noise at all
    at the optimum. For a `dlrd.Mixture` the terms are those of `dlrd.reparameterized`, and the gradient of
    their weights $w_k$ remains.

    Args:
        log_density: a model with gradients, or a function of one draw, differentiable.
        family: the variational family at its present parameters λ.
        key: of the draws.
        num_draws: S.

    Example:
        >>> import dlrd, jax
        >>> q = dlrd.MeanFieldNormal.standard(2)
        >>> estimate = dlrd.sticking_the_landing(lambda z: -0.5 * (z @ z), q, jax.random.key(0), num_draws=4)
        >>> print(estimate.gradient.loc)  # the target is N(0, I) too
        [0. 0.]

    References:
        Roeder, Wu and Duvenaud, "Sticking the Landing", 2017.
    """
    model = evaluated_model(log_density, family, "sticking_the_landing")
    return _path_gradient(model, family, key, num_draws, is_score_removed=True)


def _path_gradient(
    model: Model, family: Family, key: Key[Array, ""], num_draws: int, is_score_removed: bool
) -> Estimate:
    if num_draws < 1:
        raise ValueError(f"num_draws must be at least 1, got {num_draws}")
    trainable, rest = split(family)

    def elbo(trainable: Family) -> tuple[Float[Array, ""], tuple[Float[Array, " num_draws"], Array | None]]:
        q = eqx.combine(trainable, rest)
        is_stratified = isinstance(q, Stratified)
        draws = q.sample_strata(key, num_draws) if is_stratified else q.sample(key, (num_draws,))
        evaluated = frozen(q) if is_score_removed else q
        if is_stratified:
            strata = jax.vmap(model.values, (0, None))(draws, key) - evaluated.log_prob(draws)
            # The weights here are never frozen: the score is the gradient of log q's own parameters alone.
            terms = jnp.sum(q.weights * strata, axis=1)
        else:
            terms = model.values(draws, key) - evaluated.log_prob(draws)
        num_failed = failures(model, terms)
        if model.can_fail:
            terms = terms[good_rows(jnp.isfinite(terms))]
        return jnp.mean(terms), (terms, num_failed)

    gradient, (terms, num_failed) = jax.grad(elbo, has_aux=True)(trainable)
    return Estimate(terms, gradient, num_failed)
