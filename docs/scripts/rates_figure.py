"""Draws docs/images/rates.png: the accuracy of a fit over its initial rate, with and without the rule.

Run from the project's folder: python docs/scripts/rates_figure.py
"""

import pathlib

import jax
import numpy as np
import optax
from matplotlib.figure import Figure

import dlrd
from dlrd.paper.problems import synthetic

RATES = np.logspace(-4, 0, 9)
KEYS = range(5)
STEPS = 50_000


def final_divergences(rule: str) -> np.ndarray:
    """Jeffreys divergence to the optimum at the end, by rate and key."""
    problem = synthetic()
    last_link = {"fixed": optax.scale_by_learning_rate, "decaying": dlrd.dynamic_decay}[rule]
    fits = dlrd.fit_many(
        problem.log_density,
        dlrd.MeanFieldNormal.standard(100),
        keys=KEYS,
        learning_rates=RATES,
        optimizer=lambda rate: optax.chain(optax.scale_by_adam(), last_link(rate)),
        steps=STEPS,
        num_draws=2,
    )
    divergences = [float(dlrd.jeffreys(fit.family, problem.optimum)) for fit in fits]
    return np.reshape(divergences, (len(RATES), len(KEYS)))


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    styles = {
        "fixed": ("fixed rate", {"color": "#a0522d", "linestyle": ":", "marker": "s"}),
        "decaying": ("dynamic decay", {"color": "#1f3a93", "linestyle": "-", "marker": "o"}),
    }
    for rule, (label, style) in styles.items():
        divergences = final_divergences(rule)
        print(rule, dict(zip(RATES.round(5).tolist(), np.median(divergences, axis=1).tolist(), strict=True)))
        axes.fill_between(
            RATES, divergences.min(axis=1), divergences.max(axis=1), color=style["color"], alpha=0.2, lw=0
        )
        axes.plot(RATES, np.median(divergences, axis=1), label=label, **style)
    axes.set(xscale="log", yscale="log", xlabel="initial learning rate", ylabel="divergence from the optimum")
    axes.set_ylim(3e-4, 1e3)  # above that, a run has diverged
    axes.set_title(
        f"Adam, {STEPS:,} steps, 100 dimensions: median and range of {len(KEYS)} seeds", fontsize=10
    )
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    path = pathlib.Path("docs/images/rates.png")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=160)


if __name__ == "__main__":
    main()
