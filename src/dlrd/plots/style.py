"""How the pictures look: few colours, told apart by the colour-blind and, with the dashes, in grey."""

import contextlib

import matplotlib.style

INK = "#1f2933"  # text
MUTED = "#65717d"  # axes, ticks, notes
GRID = "#e2e6ea"
LINE = "#0072b2"  # what was measured
MARK = "#d55e00"  # what to compare it with: thresholds and decays

_SETTINGS = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.labelcolor": MUTED,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlepad": 8.0,
    "axes.titlesize": "large",
    "font.size": 10.0,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": MUTED,
    "xtick.minor.visible": False,
    "ytick.color": MUTED,
    "ytick.minor.visible": False,
}


def house_style(**settings: str) -> contextlib.AbstractContextManager[None]:
    """This style and further matplotlib settings, whatever the user's are, which come back at the end."""
    return matplotlib.style.context(["default", {**_SETTINGS, **settings}])
