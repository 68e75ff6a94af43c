"""`dlrd bench posteriors`: how close automatic fits come, where the truth is known."""

import statistics
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from dlrd.bench.posteriors.cases import FAMILIES, Case, Settings, cases
from dlrd.bench.posteriors.models import Posterior
from dlrd.bench.posteriors.optimum import elbo_gap
from dlrd.bench.table import Column, Row, print_table, save_figure, write
from dlrd.families import Family, FullRankNormal, MeanFieldNormal
from dlrd.fitting import fit
from dlrd.fitting.outcome import Outcome
from dlrd.plots.style import LINE, MARK, house_style

NUM_SCORED = 20_000
"""Draws behind the errors of means and sds: the noise of these is 0.01."""
SMALLEST_GAP = 1e-6
"""Shown; smaller ones, and those that noise makes negative, are drawn there."""
COLUMNS = [
    Column("problem", "problem"),
    Column("family", "family"),
    Column("dim", "d", "d"),
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
]


def run(settings: Settings) -> list[Row]:
    """Fits every problem with both families and every seed; prints, writes and draws what came out."""
    rows, medians, together, tolerance = [], [], [], settings.tolerance
    for case in cases(settings):
        rows += [_row(case, seed, settings) for seed in range(settings.num_seeds)]
        last = rows[-1]
        print(f"{case.problem}, {case.family}: gap {last['gap']:.1e}, {last['gradients']:,} gradients")
        medians, together = _medians(rows), overall(rows, tolerance)
        write(settings.out / "posteriors", rows, **settings.written, summary=medians, overall=together)
        jax.clear_caches()
    print_table(f"Automatic fits, tolerance {tolerance:g} nats, medians", COLUMNS, medians)
    print_table("All together", OVERALL_COLUMNS, together)
    save_figure(_figure(rows, tolerance), settings.out / "posteriors")
    return rows


def errors(posterior: Posterior | None, family: Family) -> tuple[float, float]:
    """Root mean squares of the errors of means and sds, in sds of the reference; nan if there is none."""
    if posterior is None:
        return float("nan"), float("nan")
    draws = family.sample(jax.random.key(7), (NUM_SCORED,))
    parameters = np.asarray(jax.vmap(posterior.constrain)(draws))
    mean = (parameters.mean(axis=0) - posterior.reference_mean) / posterior.reference_std
    std = parameters.std(axis=0) / posterior.reference_std - 1
    return float(np.sqrt(np.mean(mean**2))), float(np.sqrt(np.mean(std**2)))


def _row(case: Case, seed: int, settings: Settings) -> dict[str, Any]:
    found = fit(
        case.log_density,
        case.start,
        key=seed,
        tolerance=settings.tolerance,
        max_gradients=settings.max_gradients,
        progress=False,
    )
    assert found.verdict is not None
    assert isinstance(found.family, (MeanFieldNormal, FullRankNormal))
    gap, gap_error = elbo_gap(case.log_density, found.family, case.optimum)
    mean_error, std_error = errors(case.posterior, found.family)
    return {
        "problem": case.problem,
        "family": case.family,
        "dim": case.dim,
        "seed": seed,
        "gap": gap,
        "gap_error": gap_error,
        "mean_error": mean_error,
        "std_error": std_error,
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
        keys = ("dim", "gap", "mean_error", "std_error", "gradients", "seconds")
        median: dict[str, Any] = {key: statistics.median(row[key] for row in group) for key in keys}
        num_certified = sum(row["outcome"] == Outcome.CERTIFIED.name for row in group)
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


def overall(rows: Sequence[Row], tolerance: float) -> list[Row]:
    """One row for each family: whether certificates are right, and what they cost."""
    merged = []
    for family in dict.fromkeys(row["family"] for row in rows):
        group = [row for row in rows if row["family"] == family]
        certified = [row for row in group if row["outcome"] == Outcome.CERTIFIED.name]
        problems = dict.fromkeys(row["problem"] for row in group)
        shares = [
            statistics.fmean(
                row["outcome"] == Outcome.CERTIFIED.name for row in group if row["problem"] == name
            )
            for name in problems
        ]
        unknown = float("nan")
        merged.append(
            {
                "family": family,
                "fits": len(group),
                "certified": len(certified),
                "right": statistics.fmean(row["gap"] <= tolerance for row in certified)
                if certified
                else unknown,
                "problems": f"{sum(share > 0.5 for share in shares)} of {len(problems)}",
                "gradients": statistics.median(row["gradients"] for row in certified)
                if certified
                else unknown,
            }
        )
    return merged


def _figure(rows: Sequence[Row], tolerance: float) -> Figure:
    """Gaps and gradients, a line for each problem, a point for each seed."""
    names = list(dict.fromkeys(row["problem"] for row in rows))[::-1]
    with house_style():
        figure = Figure(figsize=(10, 1.4 + 0.42 * len(names)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for family, color, marker, shift in zip(FAMILIES, (LINE, MARK), "os", (0.14, -0.14), strict=True):
            group = [row for row in rows if row["family"] == family]
            heights = [names.index(row["problem"]) + shift for row in group]
            style: dict[str, Any] = {"color": color, "marker": marker, "s": 26, "alpha": 0.75, "linewidth": 0}
            left.scatter([max(row["gap"], SMALLEST_GAP) for row in group], heights, **style)
            right.scatter([row["gradients"] for row in group], heights, label=family, **style)
        left.axvline(tolerance, color=MARK, linestyle="--", label=f"tolerance {tolerance:g}")
        left.set_yticks(range(len(names)), names)
        left.set(xscale="log", xlabel="ELBO of the best of the family less that of the fit, nats")
        right.set(xscale="log", xlabel="gradients in all")
        figure.legend(loc="outside upper right", ncols=3)
        figure.suptitle("Automatic fits: a point for each seed", x=0.01, horizontalalignment="left")
    return figure
