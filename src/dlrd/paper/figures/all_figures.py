"""Each figure by name, in the paper's form."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from dlrd.paper.experiments.batch import Results
from dlrd.paper.experiments.spec import RATES, WIDE_RATES, Setting
from dlrd.paper.figures.curves import draw_curve, finish, legend, power_of_ten, style_of
from dlrd.paper.problems import synthetic
from dlrd.plots.style import INK, LINE, MARK, MUTED, house_style

Found = dict[str, Results]
"""The results of the figure's batches, by name."""


LOST = 1e9
"""Divergences beyond are drawn as crosses."""


def draw(name: str, found: Found, folder: Path) -> None:
    """Draws a figure and writes it to `folder` as PNG and PDF."""
    with house_style():
        figure = _DRAWN[name](found)
        folder.mkdir(parents=True, exist_ok=True)
        for suffix in ("png", "pdf"):
            figure.savefig(folder / f"{name}.{suffix}", dpi=160)


def _panels(num: int, is_shared: bool = True) -> tuple[Figure, list]:
    figure = Figure(figsize=(5.2 * num, 4.0), layout="constrained")
    axes = figure.subplots(1, num, sharey=is_shared, squeeze=False)[0]
    return figure, list(axes)


def _toy(found: Found) -> Figure:
    """Figure 1: paths on the contours of the ELBO gap, from N(0, 1) at the left."""
    (results,) = found.values()
    with jax.enable_x64(True):
        optimum = synthetic(dim=1).optimum
        loc, log_scale = float(optimum.loc[0]), float(optimum.log_scale[0])
    assert results.shown is not None
    paths = results.shown[:, 0]  # of the first seed
    figure, panels = _panels(len(RATES))
    span_x = np.array([min(paths[..., 0].min(), 0), max(paths[..., 0].max(), loc)])
    span_y = np.array([min(paths[..., 1].min(), 0), max(paths[..., 1].max(), log_scale)])
    x = np.linspace(span_x[0] - 0.15 * np.ptp(span_x), span_x[1] + 0.15 * np.ptp(span_x), 150)
    y = np.linspace(span_y[0] - 0.3 * np.ptp(span_y), span_y[1] + 0.3 * np.ptp(span_y), 150)
    gap = _toy_gap(x[None], y[:, None])
    for axes, rate in zip(panels, RATES, strict=True):
        axes.contour(
            x, y, gap, levels=np.geomspace(1e-4, gap.max(), 14), colors=MUTED, linewidths=0.6, alpha=0.7
        )
        path = paths[results.of(rate=rate)]
        color, _ = style_of(Setting("static", rate))
        axes.plot([0, *path[:, 0]], [0, *path[:, 1]], color=color, linewidth=1.1)
        axes.plot(0, 0, "o", color=INK, markersize=5)
        axes.plot(loc, log_scale, "*", color=MARK, markersize=13, markeredgecolor="white")
        axes.set(title=f"η₀ = {power_of_ten(rate)}", xlabel="mean")
        axes.grid(visible=False)
    panels[0].set_ylabel("log standard deviation")
    panels[0].annotate("start", (0, 0), (4, -12), textcoords="offset points", fontsize="small")
    panels[-1].annotate("optimum", (loc, log_scale), (8, 6), textcoords="offset points", fontsize="small")
    return figure


def _toy_gap(loc: np.ndarray, log_scale: np.ndarray) -> np.ndarray:
    """How far the ELBO of N(loc, e^(2 log_scale)) lies below its best, by the moments of a normal."""
    with jax.enable_x64(True):
        problem = synthetic(dim=1)
        # log p(z) = −a (z − c)⁴ − b (z − c)²: two values at distances 1 and 2 from the centre c give a and b.
        center = float(problem.optimum.loc[0])
        best = float(np.exp(2 * problem.optimum.log_scale[0]))
        one, two = (-float(problem.log_density(jnp.array([center + h]))) for h in (1.0, 2.0))
    quartic = (two - 4 * one) / 12
    quadratic = one - quartic
    shift, variance = loc - center, np.exp(2 * log_scale)

    def negative_elbo(shift: np.ndarray, variance: np.ndarray) -> np.ndarray:
        fourth = shift**4 + 6 * shift**2 * variance + 3 * variance**2
        return quartic * fourth + quadratic * (shift**2 + variance) - 0.5 * np.log(variance)

    return negative_elbo(shift, variance) - negative_elbo(np.zeros(()), np.asarray(best))


def _snr(found: Found) -> Figure:
    """Figure 2: some parameters of a static run, and the mean signal-to-noise ratio of them all."""
    (results,) = found.values()
    index = results.of(rule="static", rate=1e-2)
    assert results.shown is not None
    shown = results.shown[index, 0]
    figure = Figure(figsize=(8, 5.4), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    for i, (color, line) in enumerate(zip((LINE, MARK, "#4db6e2"), ("-", "--", "-."), strict=True)):
        top.plot(
            results.step, shown[:, 0, i], color=color, linestyle=line, linewidth=1.2, label=f"mean {i + 1}"
        )
    for i, (color, line) in enumerate(zip(("#0b3c6f", "#c9a400", "#882255"), ("-", "--", "-."), strict=True)):
        label = f"log σ {i + 1}"
        top.plot(results.step, shown[:, 1, i], color=color, linestyle=line, linewidth=0.8, label=label)
    top.set(title="Six of the 200 parameters, Adam with a static rate of 0.01", ylabel="value")
    top.legend(ncols=2, fontsize="small", frameon=False)
    snr = results.snr[index]
    bottom.plot(results.step, np.median(snr, axis=0), color=LINE, linewidth=1.6)
    bottom.fill_between(results.step, snr.min(axis=0), snr.max(axis=0), color=LINE, alpha=0.2, linewidth=0)
    bottom.axhline(1, color=MARK, linestyle="--", linewidth=1.2)
    bottom.annotate("ρ_min = 1", (results.step[0], 1), (4, 5), textcoords="offset points", color=MARK)
    bottom.set(
        title="Their mean signal-to-noise ratio",
        xlabel="iteration",
        ylabel="mean SNR",
        xscale="log",
        yscale="log",
    )
    return figure


def _convergence(titles: dict[str, str]) -> Callable[[Found], Figure]:
    """One panel for each batch: figures 3, 6, 7 and 8."""

    def drawn(found: Found) -> Figure:
        figure, panels = _panels(len(titles))
        for axes, (name, title) in zip(panels, titles.items(), strict=True):
            results = found[name]
            for index in range(len(results.batch.settings)):
                draw_curve(axes, results, index)
            finish(axes, title)
        legend(panels[0], list(found[next(iter(titles))].batch.settings))
        for axes in panels[1:]:
            axes.set_ylabel("")
        return figure

    return drawn


def _by_rate(rules: dict[str, str], rates: tuple[float, ...]) -> Callable[[Found], Figure]:
    """One panel for each initial rate, the rules of several batches together: figures 4 and 5."""

    def drawn(found: Found) -> Figure:
        figure, panels = _panels(len(rates))
        for axes, rate in zip(panels, rates, strict=True):
            shown = []
            for name, results in found.items():
                for index, setting in enumerate(results.batch.settings):
                    if setting.rate == rate and setting.rule in rules.get(name, ""):
                        draw_curve(axes, results, index)
                        shown.append(setting)
            finish(axes, f"SGD, η₀ = {power_of_ten(rate)}")
            legend(axes, shown)
        for axes in panels[1:]:
            axes.set_ylabel("")
        return figure

    return drawn


def _rates(found: Found) -> Figure:
    """Final accuracy over the initial rate, static against DLRD: the picture that says it all."""
    alone, guarded = found.values()
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    start = np.median(alone.error[:, :, 0])
    top = 10 * start
    shown = (
        (alone, "static", MUTED, (0, (1, 1.4)), "s", "static rate"),
        (alone, "dlrd", MARK, "--", "^", "dynamic decay"),
        (guarded, "dlrd", LINE, "-", "o", "dynamic decay, with the guard"),
    )
    lowest = np.inf
    for results, rule, color, line, marker, label in shown:
        tail = results.error[:, :, -max(1, len(results.step) // 20) :]
        finals = np.nan_to_num(np.median(tail, axis=-1), nan=np.inf, posinf=1e200).clip(max=1e200)
        each = finals[[results.of(rule=rule, rate=rate) for rate in WIDE_RATES]]
        lowest = min(lowest, each.min())
        axes.plot(
            WIDE_RATES, np.median(each, axis=1), color=color, linestyle=line, marker=marker, label=label
        )
        axes.fill_between(WIDE_RATES, each.min(axis=1), each.max(axis=1), color=color, alpha=0.2, linewidth=0)
    finish(axes, f"Accuracy after {alone.batch.steps:,} steps of Adam, synthetic problem, d = 100")
    axes.set_ylim(lowest / 3, top)
    axes.annotate("diverges ↑", (0.985, 0.97), xycoords="axes fraction", ha="right", va="top", color=MUTED)
    axes.set_xlabel("initial learning rate")
    figure.legend(frameon=False, loc="outside lower center", ncols=3)
    return figure


def _divergence(found: Found) -> Figure:
    """Each run's final accuracy over its rate: a row of panels an optimiser, a column a problem."""
    problems = list(dict.fromkeys(results.batch.problem for results in found.values()))
    optimizers = list(dict.fromkeys(results.batch.optimizer for results in found.values()))
    figure = Figure(figsize=(4.4 * len(problems), 2.9 * len(optimizers)), layout="constrained")
    panels = figure.subplots(len(optimizers), len(problems), squeeze=False, sharex=True)
    for results in found.values():
        batch = results.batch
        axes = panels[optimizers.index(batch.optimizer), problems.index(batch.problem)]
        color, marker = (LINE, "o") if batch.has_guard else (MUTED, "s")
        label = "with the guard" if batch.has_guard else "alone"
        rates = np.array([setting.rate for setting in batch.settings])
        finals = results.error[:, :, -1]
        shift = 1.12 if batch.has_guard else 1 / 1.12  # beside each other
        for seed in range(batch.num_seeds):
            is_good = finals[:, seed] < LOST
            axes.plot(
                rates[is_good] * shift,
                finals[is_good, seed],
                color=color,
                linestyle="none",
                marker=marker,
                markersize=5,
                alpha=0.8,
                label=label if seed == 0 else None,
            )
            axes.plot(
                rates[~is_good] * shift,
                np.full(int(np.sum(~is_good)), LOST),
                color=color,
                linestyle="none",
                marker="x",
                markersize=7,
                label=f"{label}, above {LOST:.0e}" if seed == 0 and not batch.has_guard else None,
            )
        axes.set(xscale="log", yscale="log")
        axes.set_title(f"{batch.problem}, {batch.optimizer}", fontsize="medium")
    for axes in panels.flat:
        axes.set_ylim(None, 10 * LOST)  # at the end: from then on the lower limit stays
    figure.supxlabel("initial learning rate")
    figure.supylabel("final divergence")
    panels[0, 0].legend(frameon=False, fontsize="small")
    return figure


def _sensitivity(found: Found) -> Figure:
    """Final accuracy over the rule's two constants, as a table in colours with its numbers."""
    (results,) = found.values()
    settings = results.batch.settings
    factors = sorted({setting.factor for setting in settings})
    limits = sorted({setting.min_snr for setting in settings})
    finals = np.array(
        [[results.final(factor=factor, min_snr=limit) for limit in limits] for factor in factors]
    )
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(np.log10(finals), cmap="cividis", origin="lower", aspect="auto")
    middle = np.log10(finals).mean()
    for (row, column), value in np.ndenumerate(finals):
        color = "black" if np.log10(value) > middle else "white"
        axes.text(column, row, f"{value:.1e}", ha="center", va="center", color=color, fontsize="small")
    axes.set(
        xticks=range(len(limits)),
        xticklabels=[f"{limit:g}" for limit in limits],
        yticks=range(len(factors)),
        yticklabels=[f"{factor:g}" for factor in factors],
        xlabel="min_snr (the paper: 1)",
        ylabel="factor (the paper: 0.1)",
        title="Final Jeffreys divergence, Adam from 0.01",
    )
    axes.grid(visible=False)
    figure.colorbar(image, label="log₁₀ of the divergence")
    return figure


def _families(found: Found) -> Figure:
    figure, panels = _panels(2, is_shared=False)
    titles = {"mixture-adam-S8": "Mixture of two normals, Adam", "flow-adam-S8": "Coupling flow, Adam"}
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        results = found[name]
        for index in range(len(results.batch.settings)):
            draw_curve(axes, results, index)
        finish(axes, title, "KL divergence to the target")
        axes.set_ylim(max(axes.get_ylim()[0], 1e-10), None)  # below that, a mixture that is its target
    legend(panels[0], list(found["mixture-adam-S8"].batch.settings))
    return figure


_DRAWN: dict[str, Callable[[Found], Figure]] = {
    "1d_convergence": _toy,
    "snr": _snr,
    "quadnormal": _convergence({"synthetic-adam-S2": "Adam", "synthetic-sgd-S2": "SGD"}),
    "quadnormal_loglin": _by_rate(
        {"synthetic-sgd-S2": "static dlrd", "synthetic-sgd-S2-power": "power"}, (1e-2, 1e-3)
    ),
    "quadnormal_sasa": _by_rate(
        {"synthetic-sgd-S2": "dlrd", "synthetic-sgd-S2-sasa": "sasa", "synthetic-sgd-S2-sasa-plus": "sasa+"},
        RATES,
    ),
    "quadnormal_sample_size": _convergence(
        {f"synthetic-adam-S{num_draws}": f"Adam, S = {num_draws}" for num_draws in (1, 32, 128)}
    ),
    "logistic": _convergence({"logistic-adam-S8": "Adam", "logistic-rmsprop-S8": "RMSProp"}),
    "diffusion": _convergence({"field-adam-S8": "Adam", "field-adamax-S8": "AdaMax"}),
    "rates": _rates,
    "divergence": _divergence,
    "sensitivity": _sensitivity,
    "families": _families,
}
