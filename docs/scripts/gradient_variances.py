"""Measures the variance of each gradient estimator and prints the table of docs/gradients.md."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

import dlrd
from dlrd.paper.problems import synthetic

DIM = 20
NUM_DRAWS = 8
NUM_ESTIMATES = 20_000
ESTIMATORS = [dlrd.sticking_the_landing, dlrd.reparameterized, dlrd.score_function]

Problem = tuple[Callable[[Array], Array], dlrd.MeanFieldNormal | dlrd.FullRankNormal]


def correlated() -> Problem:
    """A normal log density with correlations of 0.9 between neighbours, and this normal itself."""
    random = np.random.default_rng(1)
    loc = random.normal(size=DIM)
    std = random.uniform(0.5, 2, size=DIM)
    distance = np.abs(np.subtract.outer(np.arange(DIM), np.arange(DIM)))
    target = dlrd.FullRankNormal(loc, np.linalg.cholesky(std[:, None] * 0.9**distance * std))
    return target.log_prob, target


@eqx.filter_jit
def total_variance(estimator, log_density, family) -> Array:
    """The variance of a gradient estimate, summed over its components."""

    def gradient(key):
        return ravel_pytree(estimator(log_density, family, key, NUM_DRAWS).gradient)[0]

    gradients = jax.lax.map(gradient, jax.random.split(jax.random.key(0), NUM_ESTIMATES), batch_size=1000)
    return jnp.sum(jnp.var(gradients, axis=0, ddof=1))


def two_digits(variance: float) -> str:
    """Two significant digits, in full; what is left by rounding alone is 0."""
    return f"{float(f'{variance:.2g}'):,g}" if variance > 1e-20 else "0"


def main() -> None:
    print("| problem, family | at | " + " | ".join(f"`{rule.__name__}`" for rule in ESTIMATORS) + " |")
    print("|---|---|" + "---:|" * len(ESTIMATORS))
    for title, (log_density, optimum) in {
        "synthetic, mean-field": synthetic(DIM),
        "correlated normal, full-rank": correlated(),
    }.items():
        for place, family in {"start": type(optimum).standard(DIM), "optimum": optimum}.items():
            cells = [two_digits(float(total_variance(rule, log_density, family))) for rule in ESTIMATORS]
            print(f"| {title} | {place} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
