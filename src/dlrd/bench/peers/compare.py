"""`dlrd bench peers`: the same posteriors by other libraries and simpler rules, in one run."""

import contextlib
import importlib.util
import io
import math
import statistics
import time
from collections.abc import Sequence
from typing import Any

import jax
from matplotlib.figure import Figure

from dlrd.bench.peers import others, ours
from dlrd.bench.peers.answer import Answer, MethodFn, Task, is_finite
from dlrd.bench.posteriors.cases import Case, Settings, cases
from dlrd.bench.posteriors.optimum import elbo_gap
from dlrd.bench.table import Column, Row, print_table, save_figure, write
from dlrd.plots.style import LINE, MARK, MUTED, house_style

AUTOMATIC = "dlrd, automatic"
BEST_RATE = "Adam, best rate of a grid in hindsight"
METHODS: dict[str, MethodFn] = {
    AUTOMATIC: ours.automatic,
    "the paper's rule alone": ours.paper_rule,
    "optax schedule-free Adam": ours.schedule_free,
    "optax reduce-on-plateau": ours.reduce_on_plateau,
    "NumPyro SVI": others.numpyro_svi,
    "Pyro SVI": others.pyro_svi,
    "PyMC ADVI": others.pymc_advi,
    "BlackJAX VI": others.blackjax_vi,
    "BlackJAX Pathfinder": others.blackjax_pathfinder,
}
FULL_RANK_ONLY = ("BlackJAX Pathfinder",)
WHERE_INSTALLED = {"Pyro SVI": "pyro"}
"""Methods that are left out without a package, which no extra brings: its PyTorch is larger than all else."""
SMALLEST_GAP, LARGEST_GAP = 1e-5, 1e7
"""Shown; what is beyond, or not finite, is drawn there."""
COLUMNS = [
    Column("method", "method"),
    Column("fits", "fits", "d"),
    Column("below_hundredth", "gap < 0.01", "d"),
    Column("below_tenth", "< 0.1", "d"),
    Column("above_hundred", "> 100 or not finite", "d"),
    Column("gap", "median gap", ".2g"),
    Column("gradients", "gradients", ",.0f"),
    Column("seconds", "seconds", ".1f"),
]


def run(settings: Settings) -> list[Row]:
    """Fits every problem with every method; prints, writes and draws what came out."""
    rows, merged, max_gradients = [], [], settings.max_gradients
    for case in cases(settings):
        for seed in range(settings.num_seeds):
            rows += _rows(case, Task(case.log_density, case.dim, case.family, seed, max_gradients))
        print(f"{case.problem}, {case.family}: done")
        merged = summary(rows)
        write(settings.out / "peers", rows, **settings.written, summary=merged)
        jax.clear_caches()
    print_table(f"{max_gradients:,} gradients at the most, medians", COLUMNS, merged)
    save_figure(_figure(rows), settings.out / "peers")
    return merged


def _rows(case: Case, task: Task) -> list[dict[str, Any]]:
    rows = []
    for method, solve in METHODS.items():
        package = WHERE_INSTALLED.get(method)
        is_missing = package is not None and importlib.util.find_spec(package) is None
        if is_missing or (method in FULL_RANK_ONLY and task.is_mean_field):
            continue
        # PyMC reports to the terminal whatever it is told.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            started = time.perf_counter()
            answer = solve(task)
            jax.block_until_ready(jax.tree.leaves(answer.family))
            seconds = time.perf_counter() - started
        rows.append(_row(case, task, method, answer, seconds))
    started = time.perf_counter()
    tried = ours.static_rates(task)
    seconds = (time.perf_counter() - started) / len(tried)
    each = [_row(case, task, BEST_RATE, answer, seconds) for answer in tried]
    return [*rows, min(each, key=lambda row: row["gap"])]


def _row(case: Case, task: Task, method: str, answer: Answer, seconds: float) -> dict[str, Any]:
    gap = math.inf
    if is_finite(answer.family):
        gap, _ = elbo_gap(case.log_density, answer.family, case.optimum)
    return {
        "method": method,
        "problem": case.problem,
        "family": case.family,
        "seed": task.seed,
        "gap": gap if math.isfinite(gap) else math.inf,
        "gradients": answer.num_gradients,
        "seconds": seconds,
    }


def summary(rows: Sequence[Row]) -> list[Row]:
    """One row for each method, over problems, families and seeds."""
    merged = []
    for method in dict.fromkeys(row["method"] for row in rows):
        group = [row for row in rows if row["method"] == method]
        gaps = [row["gap"] for row in group]
        keys = "gap", "gradients", "seconds"
        merged.append(
            {
                "method": method,
                "fits": len(group),
                "below_hundredth": sum(gap < 0.01 for gap in gaps),
                "below_tenth": sum(gap < 0.1 for gap in gaps),
                "above_hundred": sum(gap > 100 for gap in gaps),
                **{key: statistics.median(row[key] for row in group) for key in keys},
            }
        )
    return merged


def _figure(rows: Sequence[Row]) -> Figure:
    """The gap of every fit, a line for each method."""
    names = list(dict.fromkeys(row["method"] for row in rows))[::-1]
    with house_style():
        figure = Figure(figsize=(9, 1.4 + 0.42 * len(names)), layout="constrained")
        axes = figure.subplots()
        for family, color, marker, shift in (
            ("mean-field", LINE, "o", 0.14),
            ("full-rank", MARK, "s", -0.14),
        ):
            group = [row for row in rows if row["family"] == family]
            axes.scatter(
                [min(max(row["gap"], SMALLEST_GAP), LARGEST_GAP) for row in group],
                [names.index(row["method"]) + shift for row in group],
                color=color,
                marker=marker,
                s=24,
                alpha=0.75,
                linewidth=0,
                label=family,
            )
        axes.axvline(0.01, color=MUTED, linestyle="--")
        axes.set_yticks(range(len(names)), names)
        axes.set(xscale="log", xlim=(SMALLEST_GAP / 3, LARGEST_GAP * 3))
        axes.set_xlabel("ELBO of the best of the family less that of the fit, nats; a point for each fit")
        figure.legend(loc="outside upper right", ncols=2)
        figure.suptitle("The same posteriors by other methods", x=0.01, horizontalalignment="left")
    return figure
