"""Accuracy over the iterations: static rates dotted, DLRD solid, each initial rate in one colour."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from dlrd.paper.experiments.batch import Results
from dlrd.paper.experiments.spec import Setting
from dlrd.plots.style import MUTED

# Told apart by the colour-blind, and in grey by their lightness and markers.
_RATE_STYLES = {
    1e-1: ("#882255", "D"),
    1e-2: ("#0b3c6f", "o"),
    1e-3: ("#d55e00", "s"),
    1e-4: ("#4db6e2", "^"),
}
_RULE_LINES = {
    "static": (0, (1, 1.4)),
    "dlrd": "-",
    "power": "-.",
    "sasa": "--",
    "sasa+": (0, (5, 1.5, 1, 1.5)),
}
_RULE_NAMES = {"static": "static", "dlrd": "DLRD", "sasa": "SASA", "sasa+": "SASA+"}
_POWER_COLORS = {0.5: "#aa4499", 1.0: "#c9a400"}
NUM_MARKERS = 6


def draw_curve(axes: Axes, results: Results, index: int) -> None:
    """The median over seeds of a setting's accuracy, with a band from the least to the greatest."""
    setting = results.batch.settings[index]
    error = results.error[index]
    color, marker = style_of(setting)
    points = np.linspace(0.15, 0.97, NUM_MARKERS) * (len(results.step) - 1)
    axes.plot(
        results.step,
        np.median(error, axis=0),
        color=color,
        linestyle=_RULE_LINES[setting.rule],
        linewidth=1.3 if setting.rule == "static" else 1.7,
        marker=marker,
        markersize=4.5,
        markerfacecolor="white" if setting.rule == "static" else color,
        markevery=points.astype(int).tolist(),
        zorder=3 if setting.rule == "dlrd" else 2,
    )
    if len(error) > 1:
        axes.fill_between(
            results.step, error.min(axis=0), error.max(axis=0), color=color, alpha=0.15, linewidth=0
        )


def style_of(setting: Setting) -> tuple[str, str]:
    color, marker = _RATE_STYLES[setting.rate]
    return (_POWER_COLORS[setting.exponent], marker) if setting.rule == "power" else (color, marker)


def finish(axes: Axes, title: str, y_label: str = "Jeffreys divergence to the optimum") -> None:
    axes.set(xscale="log", yscale="log", xlabel="iteration", ylabel=y_label, title=title)


def legend(axes: Axes, settings: list[Setting]) -> None:
    """One entry for each rate and one for each rule, instead of one for each of their products."""
    rates = sorted({setting.rate for setting in settings}, reverse=True)
    rules = dict.fromkeys((setting.rule, setting.exponent) for setting in settings)
    handles = [
        Line2D(
            [],
            [],
            color=color,
            marker=marker,
            linewidth=1.7,
            markersize=4.5,
            label=f"η₀ = {power_of_ten(rate)}",
        )
        for rate, (color, marker) in ((rate, _RATE_STYLES[rate]) for rate in rates)
    ]
    handles += [
        Line2D(
            [],
            [],
            color=_POWER_COLORS.get(exponent, MUTED),
            linestyle=_RULE_LINES[rule],
            linewidth=1.7,
            label=_RULE_NAMES.get(rule, f"η₀ / i$^{{{exponent:g}}}$"),
        )
        for rule, exponent in rules
    ]
    axes.legend(handles=handles, fontsize="small", frameon=False, loc="lower left")


def power_of_ten(value: float) -> str:
    exponent = math.log10(value)
    return f"$10^{{{exponent:g}}}$"
