"""A panel: what all of them share."""

from collections.abc import Callable
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dlrd.plots.style import MUTED


class Panel(NamedTuple):
    """A title, and the function that draws what it announces."""

    title: str
    draw: Callable[[Axes], None]


def add_note(axes: Axes, text: str, color: str = MUTED) -> None:
    """A few words at the right of the title."""
    axes.set_title(text, loc="right", color=color, fontsize="medium")


def count_axis(axes: Axes, num: int, label: str) -> None:
    """A horizontal axis of `num` things, counted from 0."""
    margin = max(0.6, 0.02 * num)
    axes.set_xlim(-margin, num - 1 + margin)
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(count))
    axes.grid(visible=False, axis="x")
    axes.set_xlabel(label)


def count(value: float, _: Any) -> str:
    """A tick of an axis of whole numbers."""
    return f"{value:,.0f}"
