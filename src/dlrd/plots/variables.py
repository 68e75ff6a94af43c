"""The fitted variables of a model on their natural scale, a panel each: a density, or entry by entry."""

from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator

from dlrd.fitting.result import Fit
from dlrd.fitting.summary import Summary
from dlrd.plots.panel import Panel, add_note, count_axis
from dlrd.plots.style import INK, LINE, MUTED
from dlrd.plots.thinning import evenly_spread

MAX_VARIABLES = 6
"""Panels; of more variables, the first ones."""
MAX_LABELLED = 12
"""Up to so many entries stand under each other with their labels."""
MAX_ENTRIES = 60
"""Entries shown; of more, so many evenly spread ones."""
NUM_DRAWS = 10_000
NUM_BINS = 60
OUTER = (0.001, 0.999)
"""Quantiles between which a density is drawn."""


def variable_panels(fit: Fit) -> list[Panel]:
    """Of a model that has variables: the first ones, without those that are not finite."""
    summary = fit.summary()
    draws: dict[str, Any] = {} if fit.model is None else fit.sample(0, NUM_DRAWS)
    panels = []
    for name in shown_variables(summary):
        own = summary.of(name)
        if len(own.names) == 1 and name in draws:
            draw = partial(_draw_density, np.ravel(np.asarray(draws[name], float)))
        else:
            draw = partial(_draw_entries, own)
        if np.isfinite(own.quantiles).all():
            panels.append(Panel(name, draw))
    return panels


def shown_variables(summary: Summary) -> list[str]:
    """The variables that get a panel."""
    return [name for name, rows in summary.rows.items() if rows][:MAX_VARIABLES]


def first_of(fit: Fit) -> str:
    """A sentence, where there are more variables than panels."""
    num = len(fit.summary().shapes) if fit.has_variables else 0
    return f"Shown are the first {MAX_VARIABLES} of {num:,} variables." if num > MAX_VARIABLES else ""


def _draw_density(draws: Float[np.ndarray, " draw"], axes: Axes) -> None:
    heights, edges = np.histogram(draws, NUM_BINS, tuple(np.quantile(draws, OUTER)))
    axes.stairs(heights, edges, fill=True, color=LINE, alpha=0.3)
    axes.stairs(heights, edges, color=LINE, linewidth=1.2)
    low, high = np.quantile(draws, [0.05, 0.95])
    axes.plot([low, high], [0, 0], color=INK, linewidth=3, solid_capstyle="butt", clip_on=False)
    axes.plot([draws.mean()], [0], color=INK, marker="o", markersize=6, clip_on=False)
    axes.set_ylim(0, 1.08 * heights.max())
    axes.yaxis.set_major_locator(NullLocator())
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.grid(visible=False)
    add_note(axes, "mean, 5–95 %")


def _draw_entries(summary: Summary, axes: Axes) -> None:
    (low, _, high), mean = summary.quantiles, summary.mean
    if len(mean) <= MAX_LABELLED:
        rows = np.arange(len(mean))[::-1]
        axes.hlines(rows, low, high, color=LINE, alpha=0.55, linewidth=2)
        axes.plot(mean, rows, color=INK, linestyle="none", marker="o", markersize=4)
        labels = [_shortened(name) for name in summary.names] if len(rows) > 1 else [""]
        axes.set_yticks(rows, labels, parse_math=False)
        axes.set_ylim(-0.7, len(mean) - 0.3)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.grid(visible=False, axis="y")
        if np.min(low) < 0 < np.max(high):
            axes.axvline(0, color=MUTED, linewidth=0.8, zorder=1)
        add_note(axes, "mean, 5–95 %")
        return
    entries = evenly_spread(len(mean), MAX_ENTRIES)
    axes.vlines(entries, low[entries], high[entries], color=LINE, alpha=0.55, linewidth=2)
    axes.plot(entries, mean[entries], color=INK, linestyle="none", marker="o", markersize=3.5)
    if np.min(low) < 0 < np.max(high):
        axes.axhline(0, color=MUTED, linewidth=0.8, zorder=1)
    count_axis(axes, len(mean), "entry")
    few = f", {len(entries)} of {len(mean):,}" if len(entries) < len(mean) else ""
    add_note(axes, f"mean, 5–95 %{few}")


def _shortened(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"
