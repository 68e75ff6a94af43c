"""A picture of a log of runs: how many there were over time, what they took, and where they failed."""

import datetime
from collections.abc import Sequence

import matplotlib.dates
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlrd.plots.panel import add_note, count_axis
from dlrd.plots.style import LINE, MARK, house_style
from dlrd.simulation.log import Record

MAX_PARAMETERS = 10
"""Panels of parameters; of more, the first."""


def plot_runs(names: Sequence[str], records: Sequence[Record]) -> Figure:
    """Panels of the runs over time, of their seconds, and of each parameter's values.

    Args:
        names: of the parameters.
        records: the runs, one at least.
    """
    shown = list(names[:MAX_PARAMETERS])
    num_rows = 1 + -(-len(shown) // 2)
    is_good = np.array([record.is_good for record in records])
    points = np.stack([record.question.parameters for record in records])
    with house_style():
        figure = Figure(figsize=(10, 2.6 * num_rows), layout="constrained")
        first, second, *others = figure.subplots(num_rows, 2, squeeze=False).ravel()
        _draw_course(first, records, is_good)
        _draw_seconds(second, records, is_good)
        for axes, name, values in zip(others, shown, points.T, strict=False):
            axes.set_title(name)
            _draw_values(axes, values, is_good)
        for axes in others[len(shown) :]:
            axes.set_axis_off()
        if len(names) > len(shown):
            figure.supxlabel(f"The first {len(shown)} of {len(names)} parameters.", fontsize="medium")
    return figure


def _draw_course(axes: Axes, records: Sequence[Record], is_good: np.ndarray) -> None:
    ends = np.array([record.began + record.answer.seconds for record in records])
    order = np.argsort(ends, kind="stable")
    times = np.array(matplotlib.dates.date2num([datetime.datetime.fromtimestamp(end) for end in ends[order]]))
    axes.set_title("Runs")
    axes.step(times, np.cumsum(is_good[order]), where="post", color=LINE, label="good")
    if not is_good.all():
        axes.step(times, np.cumsum(~is_good[order]), where="post", color=MARK, linestyle="--", label="failed")
        axes.legend(frameon=False, loc="upper left")
    locator = matplotlib.dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(matplotlib.dates.ConciseDateFormatter(locator))
    axes.set(ylim=(0, None))


def _draw_seconds(axes: Axes, records: Sequence[Record], is_good: np.ndarray) -> None:
    seconds = np.array([record.answer.seconds for record in records])
    axes.set_title("Seconds a run")
    _draw_values(axes, seconds, is_good)
    if is_good.any():
        add_note(axes, f"mean {seconds[is_good].mean():.3g}")
    axes.set(ylim=(0, None))


def _draw_values(axes: Axes, values: np.ndarray, is_good: np.ndarray) -> None:
    """A value a run, in order; those of failed runs are crosses, at the edge if they are beyond it."""
    # A search for modes may look far away, beside which all else would be a line.
    low, high = np.quantile(values, [0.02, 0.98])
    margin = 0.25 * (high - low) or 0.1 * abs(high) or 1.0
    low, high = low - margin, high + margin
    number = np.arange(len(values))
    axes.plot(number[is_good], values[is_good], ".", color=LINE, markersize=3, alpha=0.6)
    if not is_good.all():  # no crosses that are not clipped would leave the layout without a size
        failed = np.clip(values[~is_good], low, high)
        axes.plot(number[~is_good], failed, "x", color=MARK, markersize=5, clip_on=False)
    axes.set_ylim(low, high)
    count_axis(axes, len(values), "run")
