"""The table of hard cases in `docs/benchmarks.md`: python docs/scripts/hard_cases.py

Posteriors on which automatic fits are known to go wrong: ridges, funnels, several modes, heavy tails. Each is
fitted with the defaults and both families, and compared with the best normal, searched for from the best fit.
"""

import statistics
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import dlrd
from dlrd.bench.posteriors.optimum import elbo_gap, optimum

NUM_SEEDS = 8
EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def centred_eight_schools(z: jax.Array) -> jax.Array:
    """Its density grows without bound where all schools agree."""
    mean, log_spread, schools = z[0], z[1], z[2:]
    prior = -0.5 * (mean / 5) ** 2 - jnp.log1p(jnp.exp(2 * log_spread) / 25) + log_spread
    level = -0.5 * jnp.sum((schools - mean) ** 2) * jnp.exp(-2 * log_spread) - 8 * log_spread
    return prior + level - 0.5 * jnp.sum(((EFFECTS - schools) / ERRORS) ** 2)


def funnel(z: jax.Array) -> jax.Array:
    """Neal's, with nine arms; its mode is deep in the neck."""
    return -0.5 * (z[0] / 3) ** 2 - 4.5 * z[0] - 0.5 * jnp.sum(z[1:] ** 2) * jnp.exp(-z[0])


def poisson_hierarchy(z: jax.Array) -> jax.Array:
    """Counts of 40 years with an effect of each year, centred."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(np.exp(3 + 0.2 * rng.normal(size=40)))
    mean, log_spread, effects = z[0], z[1], z[2:]
    prior = -0.5 * (mean / 10) ** 2 - 0.5 * jnp.exp(2 * log_spread) + log_spread
    level = -0.5 * jnp.sum((effects - mean) ** 2) * jnp.exp(-2 * log_spread) - 40 * log_spread
    return prior + level + jnp.sum(counts * effects - jnp.exp(effects))


def two_modes(z: jax.Array) -> jax.Array:
    """The minor one, with a twentieth of the mass, is the nearest to 0."""
    minor = jnp.log(0.05) - 0.5 * jnp.sum((z - 0.5) ** 2)
    return jnp.logaddexp(minor, jnp.log(0.95) - 0.5 * jnp.sum((z - 6.0) ** 2))


def heavy_tails(z: jax.Array) -> jax.Array:
    """A Student distribution with three degrees of freedom in ten dimensions, of very different scales."""
    return -6.5 * jnp.log1p(jnp.sum((z / jnp.geomspace(1e-3, 1e3, 10)) ** 2) / 3)


CASES: dict[str, tuple[Callable[[jax.Array], jax.Array], int]] = {
    "eight schools, centred": (centred_eight_schools, 10),
    "funnel": (funnel, 10),
    "Poisson hierarchy, centred": (poisson_hierarchy, 42),
    "two modes": (two_modes, 2),
    "heavy tails": (heavy_tails, 10),
}


def main() -> None:
    print("| posterior | family | d | certified | gap, nats | worst | gradients |")
    print("|---|---|---:|---|---:|---:|---:|")
    for name, (log_density, dim) in CASES.items():
        for kind in (dlrd.MeanFieldNormal, dlrd.FullRankNormal):
            fits = [
                dlrd.fit(log_density, kind.standard(dim), key=key, progress=False) for key in range(NUM_SEEDS)
            ]
            best = optimum(log_density, max(fits, key=lambda fit: fit.elbo).family)
            gaps = [elbo_gap(log_density, fit.family, best.family)[0] for fit in fits]
            num_certified = sum(fit.outcome is dlrd.Outcome.CERTIFIED for fit in fits)
            gradients = statistics.median(fit.verdict.num_gradients for fit in fits)
            family = "mean-field" if kind is dlrd.MeanFieldNormal else "full-rank"
            print(
                f"| {name} | {family} | {dim} | {num_certified} of {NUM_SEEDS} "
                f"| {statistics.median(gaps):.2g} | {max(gaps):.2g} | {gradients:,.0f} |",
                flush=True,
            )
            jax.clear_caches()


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
