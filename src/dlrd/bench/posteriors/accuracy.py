"""`dlrd bench posteriors`: how close automatic fits come, where the truth is known."""

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from dlrd.bench.posteriors.cases import Case, Settings, cases
from dlrd.bench.posteriors.larger_cases import FAMILIES, LargerCase, as_normal, larger_cases
from dlrd.bench.posteriors.models import Posterior
from dlrd.bench.posteriors.optimum import Normal, elbo_gap
from dlrd.bench.table import Column, Row, print_table, save_figure, write
from dlrd.families import Family
from dlrd.fitting import Fit, fit
from dlrd.fitting.outcome import Outcome
from dlrd.models import LogDensity
from dlrd.plots.style import INK, LINE, MARK, MUTED, house_style

NUM_SCORED = 20_000
"""Draws behind the errors of means and sds: the noise of these is 0.01."""
NUM_BATCHES, BATCH = 64, 256
"""Draws behind an independent ELBO: batches, and how many at once."""
FAR = 5.0
"""Standard errors by which a reported ELBO may differ from an independent one."""
SMALLEST_GAP = 1e-6
"""Shown; smaller ones, and those that noise makes negative, are drawn there."""
COLUMNS = [
    Column("problem", "problem"),
    Column("family", "family"),
    Column("dim", "d", "d"),
    Column("elbo", "ELBO", ",.2f"),
    Column("gap", "gap, nats", ".2g"),
    Column("worst_gap", "worst", ".2g"),
    Column("mean_error", "mean error", ".3f"),
    Column("std_error", "sd error", ".3f"),
    Column("gradients", "gradients", ",.0f"),
    Column("seconds", "seconds", ".1f"),
    Column("certified", "certified"),
]
OVERALL_COLUMNS = [
    Column("family", "family"),
    Column("fits", "fits", "d"),
    Column("certified", "certified", "d"),
    Column("right", "of these, gap within tolerance", ".1%"),
    Column("problems", "problems certified for most seeds"),
    Column("gradients", "gradients of these", ",.0f"),
    Column("off", f"reported ELBO off by more than {FAR:g} standard errors", "d"),
]


def run(settings: Settings) -> list[Row]:
    """Fits every problem with its families and every seed; prints, writes and draws what came out."""
    rows, medians, together = [], [], []
    for case in itertools.chain(cases(settings), larger_cases(settings)):
        rows += _rows(case, settings)
        last = rows[-1]
        print(f"{case.problem}, {case.family}: gap {last['gap']:.1e}, {last['gradients']:,} gradients")
        medians, together = _medians(rows), overall(rows)
        write(settings.out / "posteriors", rows, **settings.written, summary=medians, overall=together)
        jax.clear_caches()
    print_table("Automatic fits, medians", COLUMNS, medians)
    print_table("All together", OVERALL_COLUMNS, together)
    save_figure(_figure(rows), settings.out / "posteriors")
    return rows


def errors(posterior: Posterior | None, family: Family) -> tuple[float, float]:
    """Those of the means and sds of draws, `errors_of_moments`; nan if there is no reference."""
    if posterior is None:
        return float("nan"), float("nan")
    draws = family.sample(jax.random.key(7), (NUM_SCORED,))
    parameters = np.asarray(jax.vmap(posterior.constrain)(draws))
    return errors_of_moments(posterior, parameters.mean(axis=0), parameters.std(axis=0))


def errors_of_moments(
    posterior: Posterior, mean: Float[np.ndarray, " parameter"], std: Float[np.ndarray, " parameter"]
) -> tuple[float, float]:
    """Root mean squares of the errors of means and sds, in sds of the reference."""
    shifts = (mean - posterior.reference_mean) / posterior.reference_std
    stretches = std / posterior.reference_std - 1
    return float(np.sqrt(np.mean(shifts**2))), float(np.sqrt(np.mean(stretches**2)))


def independent_elbo(log_density: LogDensity, family: Family, seed: int) -> tuple[float, float]:
    """The ELBO and its standard error, from draws that no fit has seen and with nothing that fits use."""
    key = jax.random.fold_in(jax.random.key(2**31 - 1), seed)
    terms = np.asarray(_elbo_terms(log_density, family, key))
    return float(np.mean(terms)), float(np.std(terms, ddof=1) / np.sqrt(terms.size))


@eqx.filter_jit
def _elbo_terms(log_density: LogDensity, family: Family, key: Array) -> Float[Array, "batch draw"]:
    def of_batch(key: Array) -> Float[Array, " draw"]:
        draws = family.sample(key, (BATCH,))
        return jax.vmap(log_density)(draws) - family.log_prob(draws)

    return jax.lax.map(of_batch, jax.random.split(key, NUM_BATCHES))


def _rows(case: Case | LargerCase, settings: Settings) -> list[Row]:
    """One for each seed."""
    limits = {"tolerance": case.tolerance, "max_gradients": settings.max_gradients}
    fits = [
        fit(case.log_density, case.start, key=seed, progress=False, **limits)
        for seed in range(settings.num_seeds)
    ]
    highest = max(fits, key=lambda found: np.nan_to_num(found.elbo, nan=-np.inf))
    best = case.best_near(highest.family)
    return [_row(case, best, seed, found) for seed, found in enumerate(fits)]


def _row(case: Case | LargerCase, best: Normal | None, seed: int, found: Fit) -> Row:
    assert found.verdict is not None
    gap, gap_error = float("nan"), float("nan")
    if best is not None:
        gap, gap_error = elbo_gap(case.log_density, as_normal(found.family), best)
    mean_error, std_error = errors(case.posterior, found.family)
    elbo, elbo_error = independent_elbo(case.log_density, found.family, seed)
    return {
        "problem": case.problem,
        "family": case.family,
        "dim": case.dim,
        "seed": seed,
        "tolerance": case.tolerance,
        "gap": gap,
        "gap_error": gap_error,
        "mean_error": mean_error,
        "std_error": std_error,
        "elbo": elbo,
        "elbo_error": elbo_error,
        "said_elbo": found.verdict.elbo,
        "said_elbo_error": found.verdict.elbo_error,
        "gradients": found.verdict.num_gradients,
        "seconds": found.seconds,
        "outcome": found.outcome.name,
        "certified_gap": found.verdict.gap,
        "tail_shape": found.verdict.tail_shape,
    }


def _medians(rows: Sequence[Row]) -> list[Row]:
    """One row for the seeds of each problem and family."""
    merged = []
    for names in dict.fromkeys((row["problem"], row["family"]) for row in rows):
        group = [row for row in rows if (row["problem"], row["family"]) == names]
        keys = ("elbo", "gap", "mean_error", "std_error", "gradients", "seconds")
        median: dict[str, Any] = {key: statistics.median(row[key] for row in group) for key in keys}
        num_certified = sum(map(_is_certified, group))
        merged.append(
            {"problem": names[0], "family": names[1]}
            | median
            | {
                "dim": group[0]["dim"],
                "worst_gap": max(row["gap"] for row in group),
                "certified": f"{num_certified} of {len(group)}",
            }
        )
    return merged


def overall(rows: Sequence[Row]) -> list[Row]:
    """One row for each family: whether what fits say is right, and what that costs."""
    merged = []
    for family in dict.fromkeys(row["family"] for row in rows):
        group = [row for row in rows if row["family"] == family]
        certified = [row for row in group if _is_certified(row)]
        judged = [row["gap"] <= row["tolerance"] for row in certified if math.isfinite(row["gap"])]
        problems = dict.fromkeys(row["problem"] for row in group)
        shares = [
            statistics.fmean(_is_certified(row) for row in group if row["problem"] == name)
            for name in problems
        ]
        gradients = [row["gradients"] for row in certified]
        merged.append(
            {
                "family": family,
                "fits": len(group),
                "certified": len(certified),
                "right": statistics.fmean(judged) if judged else float("nan"),
                "problems": f"{sum(share > 0.5 for share in shares)} of {len(problems)}",
                "gradients": statistics.median(gradients) if gradients else float("nan"),
                "off": sum(map(_is_off, group)),
            }
        )
    return merged


def _is_certified(row: Row) -> bool:
    return row["outcome"] == Outcome.CERTIFIED.name


def _is_off(row: Row) -> bool:
    """Whether the ELBO that a fit reports is not the one that it has."""
    error = math.hypot(row["elbo_error"], row["said_elbo_error"])
    return not abs(row["elbo"] - row["said_elbo"]) <= FAR * error


def _figure(rows: Sequence[Row]) -> Figure:
    """Gaps and gradients, a line for each problem, a point for each seed."""
    names = list(dict.fromkeys(row["problem"] for row in rows))[::-1]
    styles = zip(FAMILIES, (LINE, MARK, MUTED, INK), "os^D", (0.24, 0.08, -0.08, -0.24), strict=True)
    with house_style():
        figure = Figure(figsize=(10, 1.4 + 0.42 * len(names)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for family, color, marker, shift in styles:
            group = [row for row in rows if row["family"] == family]
            heights = [names.index(row["problem"]) + shift for row in group]
            style: dict[str, Any] = {"color": color, "marker": marker, "s": 26, "alpha": 0.75, "linewidth": 0}
            left.scatter([np.maximum(row["gap"], SMALLEST_GAP) for row in group], heights, **style)
            if group:
                right.scatter([row["gradients"] for row in group], heights, label=family, **style)
        tolerances = {row["problem"]: row["tolerance"] for row in rows}
        heights = [names.index(name) for name in tolerances]
        left.scatter(list(tolerances.values()), heights, color=MARK, marker="|", s=300, label="tolerance")
        left.set_yticks(range(len(names)), names)
        left.set(xscale="log", xlabel="ELBO of the best of the family less that of the fit, nats")
        right.set(xscale="log", xlabel="gradients in all")
        figure.legend(loc="outside upper right", ncols=5)
        figure.suptitle("Automatic fits: a point for each seed", x=0.01, horizontalalignment="left")
    return figure
