"""Section 3.1 of the paper: the closed-form optimum, and what the rule makes of Adam."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dlrd
from dlrd.paper.problems import best_full_rank, synthetic


@pytest.mark.parametrize("family", ["mean-field", "full-rank"])
def test_optimum_is_stationary(x64: None, family: str) -> None:
    """At the optimum of appendix B the mean of many estimates is zero, within five standard errors."""
    problem = synthetic(dim=5)
    optimum = problem.optimum if family == "mean-field" else best_full_rank(dim=5)
    keys = jax.random.split(jax.random.key(0), 4000)
    gradients = jax.jit(
        jax.vmap(lambda key: dlrd.sticking_the_landing(problem.log_density, optimum, key, 8).gradient)
    )(keys)
    for samples in jax.tree.leaves(gradients):
        error = jnp.std(samples, axis=0) / np.sqrt(len(keys))
        assert jnp.all(jnp.abs(jnp.mean(samples, axis=0)) <= 5 * error)


def final_divergences(
    last_link: Callable[[jax.Array], optax.GradientTransformation], rates: list[float]
) -> np.ndarray:
    """Jeffreys divergence to the optimum after 10⁵ steps of Adam with two draws, by rate and seed."""
    problem = synthetic(dim=100)
    fits = dlrd.fit_many(
        problem.log_density,
        dlrd.MeanFieldNormal.standard(100),
        keys=range(8),
        learning_rates=rates,
        optimizer=lambda rate: optax.chain(optax.scale_by_adam(), last_link(rate)),
        steps=100_000,
        num_draws=2,
        progress=False,
    )
    divergences = [float(dlrd.jeffreys(fit.family, problem.optimum)) for fit in fits]
    return np.reshape(divergences, (len(rates), 8))


@pytest.mark.slow
def test_any_rate_will_do(x64: None) -> None:
    decaying = final_divergences(dlrd.dynamic_decay, [1e-1, 1e-2, 1e-3])
    assert np.all(np.median(decaying, axis=1) < 2e-3)


@pytest.mark.slow
def test_a_fixed_rate_stalls(x64: None) -> None:
    assert np.median(final_divergences(optax.scale_by_learning_rate, [1e-2])) > 0.1
