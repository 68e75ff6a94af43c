"""How good an answer is, over the seconds that it took."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from dlrd.bench.seconds.tools import TOOLS
from dlrd.bench.table import Row
from dlrd.plots.style import INK, LINE, MARK, MUTED, house_style

COLORS = {"dlrd": LINE, "NumPyro": MARK, "BlackJAX": INK, "nutpie": "#009e73", "PyMC": "#cc79a7"}
"""Of libraries, told apart by the colour-blind."""
MARKERS = "osDv^"
"""Of the tools of a library."""
LARGEST = 1e3
"""Error shown, as a multiple of what is asked; what is beyond, or not finite, is drawn there."""
MANY = 100
"""Times the smallest number of an axis: beyond, it has room for powers of ten alone."""
PANELS = {"process": "a new process", "again": "a second call in it"}


def figure_of(medians: Sequence[Row], targets: tuple[float, float]) -> Figure:
    """A dot for each tool and problem: the larger of both errors, as a multiple of its target."""
    with house_style():
        figure = Figure(figsize=(10, 5), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for (key, title), axes in zip(PANELS.items(), panels, strict=True):
            for tool in dict.fromkeys(row["tool"] for row in medians):
                group = [row for row in medians if row["tool"] == tool and not math.isnan(row[key])]
                axes.scatter(
                    [row[key] for row in group],
                    [_error(row, targets) for row in group],
                    label=tool if axes is panels[0] else None,
                    **_style(tool),
                )
            axes.axhline(1, color=MUTED, linestyle="--")
            axes.set(xscale="log", yscale="log", xlabel="seconds")
            axes.set_title(title)
            low, high = axes.get_xlim()
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < MANY * low else (1,)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
        panels[0].set_ylabel(f"error over target (means {targets[0]:g}, sds {targets[1]:g})")
        figure.legend(loc="outside lower center", ncols=5)
        figure.suptitle(
            "Seconds until an answer, and how good it is: a dot for each posterior",
            x=0.01,
            horizontalalignment="left",
        )
    return figure


def _error(row: Row, targets: tuple[float, float]) -> float:
    error = max(row["mean_error"] / targets[0], row["std_error"] / targets[1])
    return min(error, LARGEST) if math.isfinite(error) else LARGEST


def _style(tool: str) -> dict[str, Any]:
    """The colour of its library, and a marker of its own among the tools of that."""
    library = TOOLS[tool].library
    siblings = [name for name, other in TOOLS.items() if other.library == library]
    return {
        "color": COLORS[library],
        "marker": MARKERS[siblings.index(tool)],
        "s": 34,
        "alpha": 0.8,
        "linewidth": 0,
    }
