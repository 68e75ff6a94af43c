"""What a few runs of a simulator buy: automatic fits with small budgets, part of `dlrd bench simulators`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import dlrd
from dlrd.bench.posteriors.optimum import elbo_gap, optimum
from dlrd.bench.table import Column, print_table
from dlrd.paper.problems.field import field

BUDGETS = 30, 100, 300, 1000
NUM_SEEDS = 8
TOLERANCE = 0.05
COLUMNS = [
    Column("problem", "problem"),
    Column("dim", "d", "d"),
    Column("budget", "budget", ",d"),
    Column("most", "most runs of a fit", ",d"),
    Column("gap", "gap, nats", ".2g"),
    Column("worst", "worst", ".2g"),
    Column("mean_error", "mean error", ".2g"),
    Column("num_certified", "certified", "d"),
]


def oscillation(z: Float[Array, " 5"]) -> Float[Array, ""]:
    """Forty readings of an oscillation with unknown amplitude, damping, frequency, phase and level."""
    time = jnp.linspace(0.0, 4.0, 40)
    noise = 0.1 * jnp.asarray(np.random.default_rng(0).standard_normal(40))

    def reading(at: Float[Array, " 5"]) -> Float[Array, " 40"]:
        swing = jnp.cos((3 + 0.5 * at[2]) * time + 0.5 * at[3])
        return jnp.exp(0.3 * at[0] - 0.5 * jnp.exp(0.5 * at[1]) * time) * swing + at[4]

    truth = jnp.asarray([0.5, -0.3, 0.4, 0.2, 0.1])
    misfit = (reading(z) - reading(truth) - noise) / 0.1
    return -0.5 * jnp.sum(misfit**2) - 0.5 * jnp.sum(z**2)


def few_runs() -> list[dict[str, Any]]:
    """Full-rank fits of two problems with each budget, beside the best normal; prints a table."""
    problems = {"oscillation": (oscillation, 5), "the paper's field": (field().log_density, 29)}
    with jax.enable_x64(True):
        rows = [row for name, (density, dim) in problems.items() for row in _of_problem(name, density, dim)]
    print_table("Full-rank fits with few runs, medians", COLUMNS, rows)
    return rows


def _of_problem(name: str, log_density: Callable[[Array], Array], dim: int) -> list[dict[str, Any]]:
    both_fn = jax.jit(jax.vmap(jax.value_and_grad(log_density)))
    best: Any = optimum(log_density, dlrd.FullRankNormal.standard(dim)).family
    rows, num = [], 0

    def counted(draws: np.ndarray) -> Any:
        nonlocal num
        num += len(draws)
        return both_fn(draws)

    model = dlrd.models.host(counted, dim)
    for budget in BUDGETS:
        gaps, errors, most, num_certified = [], [], 0, 0
        for seed in range(NUM_SEEDS):
            num = 0
            fit = dlrd.fit(
                model,
                dlrd.FullRankNormal.standard(dim),
                tolerance=TOLERANCE,
                max_gradients=budget,
                starts=1,
                key=seed,
                progress=False,
            )
            found: Any = fit.family
            gaps.append(elbo_gap(log_density, found, best)[0])
            errors.append(float(np.sqrt(np.mean(np.square((found.mean - best.mean) / best.std)))))
            most, num_certified = max(most, num), num_certified + (fit.outcome is dlrd.Outcome.CERTIFIED)
        rows.append(
            {
                "problem": name,
                "dim": dim,
                "budget": budget,
                "most": most,
                "gap": float(np.median(gaps)),
                "worst": max(gaps),
                "mean_error": float(np.median(errors)),
                "num_certified": num_certified,
            }
        )
    return rows
