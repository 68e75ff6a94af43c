"""`dlrd bench budgets`: how far each rule has come after so many gradients."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import optax
from matplotlib.figure import Figure

from dlrd.bench.peers.answer import is_finite
from dlrd.bench.peers.ours import GRID, NUM_DRAWS, RATE
from dlrd.bench.posteriors.cases import Case, Settings, arrays_of, cases, from_arrays
from dlrd.bench.posteriors.optimum import Normal, elbo_gap
from dlrd.bench.table import Column, Row, print_table, save_figure, write
from dlrd.families import FullRankNormal, MeanFieldNormal
from dlrd.fitting import fit, fit_many
from dlrd.plots.style import LINE, MARK, MUTED, house_style
from dlrd.rates import dynamic_decay

BUDGETS = 8_000, 32_000, 64_000
NEVER = 1e-12
"""A tolerance, in nats, that is not reached: automatic fits use up their budget."""
NUM_POINTS = 2**13
"""Draws behind each gap."""
SMALLEST_GAP, LARGEST_GAP = 1e-7, 1e5
"""Shown; what is beyond, or not finite, is drawn there."""
AUTOMATIC, RULE, STATIC = "automatic", "rule", "static"
COLUMNS = [
    Column("problem", "problem"),
    Column("family", "family"),
    Column("budget", "gradients", ",d"),
    Column(AUTOMATIC, "automatic", ".1e"),
    Column(RULE, "the paper's rule", ".1e"),
    Column(STATIC, "Adam, best rate in hindsight", ".1e"),
    Column("rate", "that rate", "g"),
    Column("is_lowest", "automatic is lowest"),
]


def run(settings: Settings) -> list[Row]:
    """Fits every problem by each of the three; prints, writes and draws the medians of the gaps."""
    budgets = [budget for budget in BUDGETS if budget <= settings.max_gradients] or [settings.max_gradients]
    rows: list[Row] = []
    for case in cases(settings):
        rows += _rows(case, settings.num_seeds, budgets)
        print(f"{case.problem}, {case.family}: done")
        write(settings.out / "budgets", rows, **settings.written)
        jax.clear_caches()
    print_table("Gaps in nats after so many gradients, medians", COLUMNS, rows)
    save_figure(_figure(rows), settings.out / "budgets")
    return rows


def _rows(case: Case, num_seeds: int, budgets: Sequence[int]) -> Iterator[Row]:
    """One for each budget; all are of the same problem and family."""
    ruled = _medians(case, num_seeds, budgets, [RATE], dynamic_decay)[RATE]
    by_rate = _medians(case, num_seeds, budgets, GRID, optax.scale_by_learning_rate)
    for i, budget in enumerate(budgets):
        best_rate = min(GRID, key=lambda rate: by_rate[rate][i])
        gaps = {
            AUTOMATIC: statistics.median(_automatic_gap(case, seed, budget) for seed in range(num_seeds)),
            RULE: ruled[i],
            STATIC: by_rate[best_rate][i],
        }
        yield {
            "problem": case.problem,
            "family": case.family,
            "budget": budget,
            **gaps,
            "rate": best_rate,
            "is_lowest": gaps[AUTOMATIC] <= min(gaps[RULE], gaps[STATIC]),
        }


def _automatic_gap(case: Case, seed: int, budget: int) -> float:
    found = fit(
        case.log_density, case.start, key=seed, tolerance=NEVER, max_gradients=budget, progress=False
    ).family
    assert isinstance(found, (MeanFieldNormal, FullRankNormal))
    return _gap(case, found)


def _medians(
    case: Case,
    num_seeds: int,
    budgets: Sequence[int],
    rates: Sequence[float],
    rule: Callable[[Any], optax.GradientTransformation],
) -> dict[float, list[float]]:
    """For each rate the median gap at each budget, of Adam with a rule that starts from the rate."""
    num_steps = [budget // NUM_DRAWS for budget in budgets]
    fits = fit_many(
        case.log_density,
        case.start,
        keys=range(num_seeds),
        learning_rates=rates,
        optimizer=lambda rate: optax.chain(optax.scale_by_adam(), rule(rate)),
        steps=num_steps[-1],
        num_draws=NUM_DRAWS,
        monitor=arrays_of,
        monitor_steps=num_steps,
        progress=False,
    )
    gaps = []
    for found in fits:
        assert found.monitored is not None
        loc, scale = found.monitored["loc"], found.monitored["scale"]
        # Where all runs have ended early, they stay as they are.
        last = [min(i, len(loc) - 1) for i in range(len(budgets))]
        gaps.append([_gap(case, from_arrays(loc[i], scale[i])) if len(loc) else math.inf for i in last])
    groups = [gaps[i * num_seeds : (i + 1) * num_seeds] for i in range(len(rates))]
    return {
        rate: [statistics.median(at_budget) for at_budget in zip(*group, strict=True)]
        for rate, group in zip(rates, groups, strict=True)
    }


def _gap(case: Case, family: Normal) -> float:
    gap = elbo_gap(case.log_density, family, case.optimum, NUM_POINTS)[0] if is_finite(family) else math.inf
    return gap if math.isfinite(gap) else math.inf


def _figure(rows: Sequence[Row]) -> Figure:
    """The automatic mode's gaps over those of the better of the two others."""
    budgets = list(dict.fromkeys(row["budget"] for row in rows))
    with house_style():
        figure = Figure(figsize=(3.6 * len(budgets) + 0.6, 4.4), layout="constrained")
        panels = figure.subplots(1, len(budgets), sharex=True, sharey=True, squeeze=False)[0]
        for axes, budget in zip(panels, budgets, strict=True):
            for family, color, marker in (("mean-field", LINE, "o"), ("full-rank", MARK, "s")):
                group = [row for row in rows if row["budget"] == budget and row["family"] == family]
                axes.scatter(
                    [_shown(min(row[RULE], row[STATIC])) for row in group],
                    [_shown(row[AUTOMATIC]) for row in group],
                    color=color,
                    marker=marker,
                    s=30,
                    alpha=0.8,
                    linewidth=0,
                    label=family if axes is panels[0] else None,
                )
            axes.plot([SMALLEST_GAP, LARGEST_GAP], [SMALLEST_GAP, LARGEST_GAP], color=MUTED, linewidth=0.8)
            axes.set(xscale="log", yscale="log", title=f"{budget:,} gradients")
        panels[0].set_ylabel("gap of the automatic mode, nats")
        figure.supxlabel("gap of the better of the paper's rule and Adam at its best rate, nats")
        figure.legend(loc="outside upper right", ncols=2)
        figure.suptitle("Below the line the automatic mode is closer", x=0.01, horizontalalignment="left")
    return figure


def _shown(gap: float) -> float:
    return min(max(gap, SMALLEST_GAP), LARGEST_GAP)
