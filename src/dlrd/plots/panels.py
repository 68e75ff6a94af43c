"""What there is to see of a fit, one function a panel."""

from functools import partial

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from dlrd.fitting.history import History
from dlrd.fitting.result import Fit
from dlrd.plots.panel import Panel, add_note, count, count_axis
from dlrd.plots.style import INK, LINE, MARK, MUTED
from dlrd.plots.thinning import evenly_spread, outline, smoothed
from dlrd.plots.variables import variable_panels

MAX_COORDINATES = 60
"""Marginals shown; of more coordinates, so many evenly spread ones."""
MAX_DOTTED = 30
"""Up to so many rows show a dot each; more decays than this are drawn in thinner lines."""


def fit_panels(fit: Fit) -> list[Panel]:
    """The panels of a fit, without those that would be empty."""
    if not isinstance(fit, Fit):
        raise TypeError(f"fit must be what dlrd.fit returns, got {type(fit).__name__}")
    history = fit.history
    course = [
        (history.elbo, Panel("ELBO", partial(_draw_elbo, history))),
        (_positive(history.learning_rate), Panel("Learning rate", partial(_draw_rate, history))),
        (_positive(history.snr), Panel("Signal-to-noise ratio", partial(_draw_snr, history))),
    ]
    shown = [panel for values, panel in course if np.any(np.isfinite(values))]
    return [*shown, *(variable_panels(fit) if fit.has_variables else _marginal_panels(fit))]


def _draw_elbo(history: History, axes: Axes) -> None:
    is_finite = np.isfinite(history.elbo)
    step, elbo = history.step[is_finite], history.elbo[is_finite]
    events = np.sort(np.concatenate([history.decays, history.resets]))
    mean = smoothed(elbo, np.searchsorted(step, events))
    if not np.array_equal(mean, elbo):
        rows = outline(elbo)
        axes.plot(step[rows], elbo[rows], color=LINE, alpha=0.35, linewidth=0.6)
    rows = outline(mean)
    axes.plot(step[rows], mean[rows], color=LINE, linewidth=1.6, marker=_marker(elbo), markersize=7)
    # The first tenth, and what a reset has undone, may lie anywhere below: it would flatten all that follows.
    later = elbo[max(len(elbo) // 10, int(np.searchsorted(step, history.resets.max(initial=0)))) :]
    later = later if len(later) else elbo[-1:]
    low, high = np.quantile(later, 0.002), later.max()
    margin = 0.08 * (high - low) if high - low > 1e-9 * abs(high) else 1e-2 * max(abs(high), 1)
    low, high = low - margin, high + margin
    axes.set_ylim(low, high)
    if elbo[0] < low:
        add_note(axes, f"starts at {_number(elbo[0])}")
    _finish_steps(history, axes)


def _draw_rate(history: History, axes: Axes) -> None:
    rate = _positive(history.learning_rate)
    rows = outline(rate)
    axes.plot(
        history.step[rows],
        rate[rows],
        color=LINE,
        linewidth=1.6,
        drawstyle="steps-post",
        marker=_marker(rate),
        markersize=7,
    )
    _set_log_scale(axes, np.nanmin(rate), np.nanmax(rate))
    marked = [("dotted", len(history.decays), "decay"), ("solid", len(history.resets), "reset")]
    notes = [f"{line}: {num:,} {what}{'s' * (num > 1)}" for line, num, what in marked if num]
    if notes:
        add_note(axes, ", ".join(notes), MARK)
    _finish_steps(history, axes)


def _draw_snr(history: History, axes: Axes) -> None:
    snr = _positive(history.snr)
    # Between a decay and its next look, a rule goes on showing its last reading.
    is_held = np.r_[False, history.snr[1:] == history.snr[:-1]]
    measured = np.where(is_held, np.nan, snr)
    rows = outline(measured)
    axes.plot(
        history.step[rows], measured[rows], color=LINE, linewidth=1.6, marker=_marker(snr), markersize=7
    )
    at_decays = np.searchsorted(history.step, history.decays).clip(max=len(snr) - 1)
    axes.plot(history.decays, snr[at_decays], color=LINE, linestyle="none", marker="o", markersize=4)
    axes.axhline(1, color=MARK, linestyle="--", linewidth=1.2)
    add_note(axes, "dashed: signal = noise", MARK)
    _set_log_scale(axes, min(1, np.nanmin(snr)), max(1, np.nanquantile(snr, 0.99)))
    _finish_steps(history, axes)


def _marginal_panels(fit: Fit) -> list[Panel]:
    """Of a model without variables of its own: all coordinates in one panel."""
    mean, std = _marginals(fit)
    is_known = np.any(np.isfinite(mean + std))
    return [Panel("Fitted marginals", partial(_draw_marginals, mean, std))] if is_known else []


def _draw_marginals(mean: Float[np.ndarray, " dim"], std: Float[np.ndarray, " dim"], axes: Axes) -> None:
    coordinates = evenly_spread(len(mean), MAX_COORDINATES)
    few = f", {len(coordinates)} of {len(mean):,}" if len(coordinates) < len(mean) else ""
    shown = coordinates[np.isfinite(mean + std)[coordinates]]
    axes.axhline(0, color=MUTED, linewidth=0.8)
    axes.vlines(shown, *(mean[shown] + [[-2], [2]] * std[shown]), color=LINE, alpha=0.55, linewidth=2)
    axes.plot(shown, mean[shown], color=INK, linestyle="none", marker="o", markersize=3.5)
    count_axis(axes, len(mean), "coordinate")
    add_note(axes, f"mean ± 2 sd{few}")


def _finish_steps(history: History, axes: Axes) -> None:
    """The axis of steps, and the decays and resets on it."""
    for steps, line in ((history.decays, ":"), (history.resets, "-")):
        width = 1.2 if len(steps) <= MAX_DOTTED else 0.5
        if len(steps) or line == ":":
            all_height = axes.get_xaxis_transform()
            axes.vlines(
                steps, 0, 1, transform=all_height, color=MARK, linestyle=line, linewidth=width, zorder=1
            )
    axes.set_xlim(0, 1.02 * history.step[-1])
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(count))
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("step")


def _set_log_scale(axes: Axes, low: float, high: float) -> None:
    """Whole powers of ten with some air around, also for a constant."""
    axes.set_yscale("log")
    axes.set_ylim(10 ** np.floor(np.log10(low)) / 2, 10 ** np.ceil(np.log10(high)) * 2)
    axes.yaxis.set_major_locator(LogLocator(numticks=7))
    axes.yaxis.set_minor_locator(NullLocator())


def _marginals(fit: Fit) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
    """Mean and standard deviation of each coordinate: the family's own, or else of draws."""
    own = [getattr(fit.family, name, None) for name in ("mean", "std")]
    if any(value is None or callable(value) for value in own):
        summary = fit.summary()
        return summary.mean, summary.std
    mean, std = (np.ravel(np.asarray(value, dtype=float)) for value in own)
    return mean, std


def _positive(values: Float[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
    """The values that a logarithmic axis can show, nan for the others."""
    return np.where((values > 0) & np.isfinite(values), values, np.nan)


def _marker(values: Float[np.ndarray, " row"]) -> str | None:
    return "." if len(values) <= MAX_DOTTED else None


def _number(value: float) -> str:
    text = f"{value:,.0f}" if 100 <= abs(value) < 1e7 else f"{value:.3g}"
    return text.replace("-", "−")
