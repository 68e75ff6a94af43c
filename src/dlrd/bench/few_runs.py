"""What a few runs of a simulator buy: automatic fits with small budgets, part of `dlrd bench simulators`."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import dlrd
from dlrd.bench.posteriors.optimum import elbo_gap, optimum
from dlrd.bench.table import Column, print_table
from dlrd.models import priors
from dlrd.paper.problems.field import NOISE_STD, field

BUDGETS = 30, 100, 300, 1000
NUM_SEEDS = 8
TOLERANCE = 0.05
TRUTH = np.array([0.5, -0.3, 0.4, 0.2, 0.1])
"""Of the oscillation."""
COLUMNS = [
    Column("problem", "problem"),
    Column("dim", "d", "d"),
    Column("kind", "a run gives"),
    Column("budget", "budget", ",d"),
    Column("most", "most runs of a fit", ",d"),
    Column("gap", "gap, nats", ".2g"),
    Column("worst", "worst", ".2g"),
    Column("mean_error", "mean error", ".2g"),
    Column("num_certified", "certified", "d"),
]


FitFn = Callable[["Problem", int, int], tuple[dlrd.Fit, int]]
"""With a budget and a seed: the fit, and how many runs it took."""


def oscillation(z: Float[Array, " 5"]) -> Float[Array, ""]:
    """Forty readings of an oscillation with unknown amplitude, damping, frequency, phase and level."""
    time = jnp.linspace(0.0, 4.0, 40)
    noise = 0.1 * jnp.asarray(np.random.default_rng(0).standard_normal(40))

    def reading(at: Float[Array, " 5"]) -> Float[Array, " 40"]:
        swing = jnp.cos((3 + 0.5 * at[2]) * time + 0.5 * at[3])
        return jnp.exp(0.3 * at[0] - 0.5 * jnp.exp(0.5 * at[1]) * time) * swing + at[4]

    misfit = (reading(z) - reading(jnp.asarray(TRUTH)) - noise) / 0.1
    return -0.5 * jnp.sum(misfit**2) - 0.5 * jnp.sum(z**2)


def swing(z: Float[np.ndarray, " 5"]) -> Float[np.ndarray, " 40"]:
    """The readings without noise, as a program that knows nothing of jax."""
    time = np.linspace(0.0, 4.0, 40)
    swings = np.cos((3 + 0.5 * z[2]) * time + 0.5 * z[3])
    return np.exp(0.3 * z[0] - 0.5 * np.exp(0.5 * z[1]) * time) * swings + z[4]


class Solution:
    """Of the field problem at the inner nodes, as another."""

    def __init__(self) -> None:
        self.modes = field().modes

    def __call__(self, z: Float[np.ndarray, " mode"]) -> Float[np.ndarray, " unknown"]:
        from dlrd.paper.problems import finite_elements

        return finite_elements.solve(np.exp(self.modes @ z)[None])[0]


class Problem(NamedTuple):
    """A posterior, with gradients by jax, and as a program that has none."""

    name: str
    dim: int
    log_density: Callable[[Array], Array]
    program: Callable[[np.ndarray], np.ndarray]
    data: np.ndarray
    noise: float


def problems() -> list[Problem]:
    """Those that budgets are tried on."""
    swung = swing(TRUTH) + 0.1 * np.random.default_rng(0).standard_normal(40)
    known = field()
    return [
        Problem("oscillation", 5, oscillation, swing, swung, 0.1),
        Problem("the paper's field", 29, known.log_density, Solution(), known.observed, NOISE_STD),
    ]


def few_runs() -> list[dict[str, Any]]:
    """Full-rank fits of both problems with each budget, beside the best normal; prints a table."""
    with jax.enable_x64(True):
        rows = [row for problem in problems() for row in _of_problem(problem)]
    print_table("Full-rank fits with few runs, medians", COLUMNS, rows)
    return rows


def _of_problem(problem: Problem) -> list[dict[str, Any]]:
    best: Any = optimum(problem.log_density, dlrd.FullRankNormal.standard(problem.dim)).family
    kinds = {"an adjoint": _by_gradients, "values alone": _by_values}
    return [_row(problem, kind, budget, fit_fn, best) for kind, fit_fn in kinds.items() for budget in BUDGETS]


def _row(problem: Problem, kind: str, budget: int, fit_fn: FitFn, best: Any) -> dict[str, Any]:
    gaps, errors, most, num_certified = [], [], 0, 0
    for seed in range(NUM_SEEDS):
        fit, num = fit_fn(problem, budget, seed)
        found: Any = fit.family
        gaps.append(elbo_gap(problem.log_density, found, best)[0])
        errors.append(float(np.sqrt(np.mean(np.square((found.mean - best.mean) / best.std)))))
        most, num_certified = max(most, num), num_certified + (fit.outcome is dlrd.Outcome.CERTIFIED)
    return {
        "problem": problem.name,
        "dim": problem.dim,
        "kind": kind,
        "budget": budget,
        "most": most,
        "gap": float(np.median(gaps)),
        "worst": max(gaps),
        "mean_error": float(np.median(errors)),
        "num_certified": num_certified,
    }


def _by_gradients(problem: Problem, budget: int, seed: int) -> tuple[dlrd.Fit, int]:
    both_fn, num = _compiled(problem.log_density), 0

    def counted(draws: np.ndarray) -> Any:
        nonlocal num
        num += len(draws)
        with jax.enable_x64(True):  # the thread that is called back has a setting of its own
            return both_fn(draws)

    return _fitted(dlrd.models.host(counted, problem.dim), problem.dim, budget, seed), num


def _by_values(problem: Problem, budget: int, seed: int) -> tuple[dlrd.Fit, int]:
    prior = {"z": priors.normal(0, 1, (problem.dim,))}
    model = dlrd.models.simulator(problem.program, prior, problem.data, problem.noise)
    fit = _fitted(model, problem.dim, budget, seed)
    num = len(model.runs.session.log.records)
    model.close()
    return fit, num


def _fitted(model: dlrd.models.Model, dim: int, budget: int, seed: int) -> dlrd.Fit:
    return dlrd.fit(
        model,
        dlrd.FullRankNormal.standard(dim),
        tolerance=TOLERANCE,
        max_gradients=budget,
        starts=1,
        key=seed,
        progress=False,
    )


@functools.cache
def _compiled(log_density: Callable[[Array], Array]) -> Callable[..., Any]:
    return jax.jit(jax.vmap(jax.value_and_grad(log_density)))
