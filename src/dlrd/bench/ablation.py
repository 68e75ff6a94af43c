"""`dlrd bench ablation`: the automatic mode with each of its parts switched off."""

import statistics
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from dlrd.bench.posteriors.cases import Case, Settings, cases
from dlrd.bench.posteriors.optimum import elbo_gap
from dlrd.bench.table import Column, Row, print_table, save_figure, write
from dlrd.families import FullRankNormal, MeanFieldNormal
from dlrd.fitting.automatic.fit import fit_automatically
from dlrd.fitting.automatic.plan import Plan
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.request import Aim, Request, Sampling, Stepping, Watching
from dlrd.models import as_model
from dlrd.plots.style import LINE, MARK, house_style

COMPLETE = "all parts"
PARTS: dict[str, Plan] = {
    COMPLETE: Plan(),
    "no search for modes": Plan(has_start=False),
    "one start": Plan(num_starts=1),
    "Adam for natural gradients": Plan(is_natural=False),
    "independent draws for Sobol": Plan(draws="independent"),
    "no average over the tail": Plan(is_averaging=False),
    "curvature as at the mode": Plan(is_updating=False),
    "no strides": Plan(has_strides=False),
    "no floor for the windows": Plan(min_travel=0.0),
    "the paper's factor 0.1": Plan(factor=0.1),
    "32 draws a step for 8": Plan(num_draws=32),
}
"""What is switched off or exchanged, in words, and the plan for that."""
COLUMNS = [
    Column("part", "the automatic mode with"),
    Column("certified", "certified", ".0%"),
    Column("within", "gap within tolerance", ".0%"),
    Column("gradients", "gradients", ",.0f"),
    Column("ratio", "against all parts", ".2f"),
    Column("seconds", "seconds", ".2f"),
    Column("gap", "gap, nats", ".2g"),
    Column("worst_gap", "worst", ".2g"),
]


def run(settings: Settings) -> list[Row]:
    """Fits every problem with each part off; prints, writes and draws what came out."""
    rows, merged = [], []
    for case in cases(settings):
        for part in PARTS:
            rows += [_row(case, part, seed, settings) for seed in range(settings.num_seeds)]
        print(f"{case.problem}, {case.family}: done")
        merged = summary(rows)
        write(settings.out / "ablation", rows, **settings.written, summary=merged)
        # Programs of one problem are of no use to the next, and there are many.
        jax.clear_caches()
    print_table("Each part switched off, medians", COLUMNS, merged)
    save_figure(_figure(rows), settings.out / "ablation")
    return merged


def _row(case: Case, part: str, seed: int, settings: Settings) -> dict[str, Any]:
    aim = Aim(case.tolerance, settings.max_gradients)
    request = Request(aim, Stepping(), Sampling(), Watching(progress=False))
    model = as_model(case.log_density, case.start.loc.shape)
    found = fit_automatically(model, case.start, jax.random.key(seed), request, PARTS[part])
    assert found.verdict is not None
    assert isinstance(found.family, (MeanFieldNormal, FullRankNormal))
    gap, _ = elbo_gap(case.log_density, found.family, case.optimum)
    return {
        "part": part,
        "problem": case.problem,
        "family": case.family,
        "seed": seed,
        "tolerance": case.tolerance,
        "outcome": found.outcome.name,
        "gap": gap if np.isfinite(gap) else np.inf,
        "gradients": found.verdict.num_gradients,
        "seconds": found.seconds,
    }


def summary(rows: Sequence[Row]) -> list[Row]:
    """One row for each part, over problems, families and seeds."""
    complete = {_fitted(row): row["gradients"] for row in rows if row["part"] == COMPLETE}
    merged = []
    for part in PARTS:
        group = [row for row in rows if row["part"] == part]
        merged.append(
            {
                "part": part,
                "certified": statistics.fmean(row["outcome"] == Outcome.CERTIFIED.name for row in group),
                "within": statistics.fmean(row["gap"] <= row["tolerance"] for row in group),
                "gradients": statistics.median(row["gradients"] for row in group),
                "ratio": statistics.median(row["gradients"] / complete[_fitted(row)] for row in group),
                "seconds": statistics.median(row["seconds"] for row in group),
                "gap": statistics.median(row["gap"] for row in group),
                "worst_gap": max(row["gap"] for row in group),
            }
        )
    return merged


def _fitted(row: Row) -> tuple[str, str, int]:
    return row["problem"], row["family"], row["seed"]


def _figure(rows: Sequence[Row]) -> Figure:
    """For each part the gradients of every fit against those of the complete mode."""
    complete = {_fitted(row): row["gradients"] for row in rows if row["part"] == COMPLETE}
    names = [part for part in PARTS if part != COMPLETE][::-1]
    with house_style():
        figure = Figure(figsize=(9, 4.6), layout="constrained")
        axes = figure.subplots()
        for is_certified, color, label in ((True, LINE, "certified"), (False, MARK, "not certified")):
            group = [
                row
                for row in rows
                if row["part"] in names and (row["outcome"] == Outcome.CERTIFIED.name) == is_certified
            ]
            # Spread over the height of a line, so that equal ratios can be counted.
            shifts = np.random.default_rng(0).uniform(-0.28, 0.28, len(group))
            axes.scatter(
                [row["gradients"] / complete[_fitted(row)] for row in group],
                [names.index(row["part"]) + shift for row, shift in zip(group, shifts, strict=True)],
                s=16,
                color=color,
                alpha=0.7,
                linewidth=0,
                label=label,
            )
        axes.axvline(1, color=LINE, linewidth=0.8)
        axes.set_yticks(range(len(names)), names)
        axes.set(
            xscale="log", xlabel="gradients, as a multiple of those with all parts; a point for each fit"
        )
        figure.legend(loc="outside upper right", ncols=2)
        figure.suptitle("The automatic mode with one part switched off", x=0.01, horizontalalignment="left")
    return figure
