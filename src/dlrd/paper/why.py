"""Experiments on the checks that do not hold: small, run on demand, each with its finding in a sentence."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.stats
from jaxtyping import Float

from dlrd import dynamic_decay, fit_many
from dlrd.paper.experiments.batch import run_batch
from dlrd.paper.experiments.spec import Batch, static_and_dlrd
from dlrd.paper.experiments.targets import TARGETS


class Finding(NamedTuple):
    """What an experiment says about the checks of these names."""

    checks: list[str]
    question: str
    answer: str
    numbers: dict[str, Any]


def sasa_plus_at_1e_4(folder: Path, num_steps: int = 100_000) -> Finding:
    """When SASA+'s test would first fire on one run of SGD with 1e-4, in forms that code may give it."""
    with jax.enable_x64(True):
        samples = _stationarity_samples(TARGETS["synthetic"](folder), 1e-4, num_steps)
    forms = {
        "as its paper has it: newest eighth, more than 1000 samples, batch means, 95 %": (8, 1000, "batch"),
        "from 100 samples on": (8, 100, "batch"),
        "newest half": (2, 1000, "batch"),
        "all samples": (1, 1000, "batch"),
        "overlapping batch means": (8, 1000, "overlapping"),
        "samples taken for independent": (8, 1000, "independent"),
    }
    first = {name: first_firing(samples, *form) for name, form in forms.items()}
    fires = [f"{name}: step {step:,}" for name, step in first.items() if step]
    return Finding(
        ["sasa-plus-fires-early-at-1e-4", "sasa-plus-stalls"],
        "Does SASA+ fire early from 1e-4 in another form of its test?",
        f"Of {len(forms)} forms, {len(fires)} fire within {num_steps:,} steps"
        + (f" ({'; '.join(fires)})." if fires else ": the mean of Δ stays significantly apart from zero."),
        {"first_firing": first},
    )


def _stationarity_samples(target: Any, rate: float, num_steps: int) -> Float[np.ndarray, " step"]:
    """Δ = ⟨x, d⟩ − (α/2) ‖d‖² along a run of SGD."""

    def init(params: optax.Params) -> Any:
        return {"snr": jnp.zeros(())}  # a name that histories keep

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        product, square = optax.tree.vdot(params, updates), optax.tree.vdot(updates, updates)
        return jax.tree.map(lambda d: -rate * d, updates), {"snr": product - rate / 2 * square}

    columns = []
    # In pieces of 10,000 steps, of which histories keep every one.
    start = target.start
    for piece in range(num_steps // 10_000):
        (fit,) = fit_many(
            target.log_density,
            start,
            keys=[piece],
            optimizer=optax.GradientTransformation(init, update),
            steps=10_000,
            num_draws=2,
            progress=False,
        )
        start = fit.family
        columns.append(fit.history.snr)
    return np.concatenate(columns)


def first_firing(
    samples: Float[np.ndarray, " step"], fraction: int, min_samples: int, variance: str, interval: int = 100
) -> int:
    """The first step at which the 95 % interval of the newest samples' mean contains zero; 0 if none does."""
    for step in range(interval, len(samples) + 1, interval):
        newest = samples[step - math.ceil(step / fraction) : step]
        if len(newest) <= min_samples:
            continue
        size = math.isqrt(len(newest))
        if variance == "independent":
            error, degrees = np.std(newest, ddof=1) / math.sqrt(len(newest)), len(newest) - 1
        elif variance == "batch":
            means = newest[-(size**2) :].reshape(size, size).mean(axis=1)
            error, degrees = np.std(means, ddof=1) / math.sqrt(size), size - 1
        else:
            sums = np.cumsum(np.r_[0.0, newest - newest.mean()])
            means = (sums[size:] - sums[:-size]) / size
            error, degrees = math.sqrt(size * np.mean(means**2) / len(newest)), round(1.5 * size) - 1
        if abs(newest.mean()) <= scipy.stats.t.ppf(0.975, degrees) * error:
            return step
    return 0


def sgd_at_1e_4(folder: Path, num_steps: int = 1_000_000) -> Finding:
    """The spread over rates once the smallest has had time to arrive: ten times the paper's steps."""
    batch = Batch("synthetic-sgd-S2-long", "synthetic", "sgd", static_and_dlrd(), 2, num_steps, 1)
    results = run_batch(replace(batch, num_points=200), folder, lambda steps: None)
    spreads = {}
    for name, step in (("short", num_steps // 10), ("long", num_steps)):
        column = int(np.searchsorted(results.step, step))
        for rule in ("static", "dlrd"):
            finals = [
                float(np.median(results.error[results.of(rule=rule, rate=rate), :, column - 3 : column + 1]))
                for rate in (1e-2, 1e-3, 1e-4)
            ]
            spreads[f"{rule} {name}"] = max(finals) / min(finals)
    first = results.decays[results.of(rule="dlrd", rate=1e-4)][0]
    return Finding(
        ["spread-over-rates-shrinks: synthetic-sgd-S2", "spread-over-rates-shrinks: field-adamax-S8"],
        "Is the spread over rates so large only because 1e-4 has not arrived?",
        f"After {num_steps // 10:,} steps of SGD the spread is {spreads['dlrd short']:.3g} with DLRD and "
        f"{spreads['static short']:.3g} without, after {num_steps:,} steps {spreads['dlrd long']:.3g} and "
        f"{spreads['static long']:.3g}; from 1e-4 the rate first decays at step "
        f"{f'{first[0]:,}' if first else '(never)'}.",
        spreads | {"first_decay": first[0] if first else None},
    )


def rmsprop_forms(folder: Path, num_steps: int = 300_000) -> Finding:
    """When the rate of RMSProp decays, from 1e-2 with the rule, by how the paper's formula can be read."""
    forms = {
        "bias corrected, ε outside the root": {"bias_correction": True, "eps_in_sqrt": False},
        "bias corrected, ε inside": {"bias_correction": True, "eps_in_sqrt": True},
        "not corrected, ε inside, as printed": {"bias_correction": False, "eps_in_sqrt": True},
    }
    decays = {}
    with jax.enable_x64(True):
        target = TARGETS["logistic"](folder / "references")
        for name, form in forms.items():
            direction = optax.scale_by_rms(decay=0.999, eps=1e-8, **form)
            (fit,) = fit_many(
                target.log_density,
                target.start,
                keys=[0],
                optimizer=optax.chain(direction, dynamic_decay(1e-2)),
                steps=num_steps,
                num_draws=8,
                progress=False,
            )
            decays[name] = fit.history.decays.tolist()
    late = {name: [step for step in steps if step > 1e5] for name, steps in decays.items()}
    return Finding(
        ["rmsprop-rate-is-kept-late"],
        "Does the rate of RMSProp stay the same after 1e5 steps in another form of the optimiser?",
        f"In {num_steps:,} steps: "
        + "; ".join(f"{name}: decays at {', '.join(map('{:,}'.format, s))}" for name, s in decays.items())
        + (". None of them keeps its rate after 1e5 steps." if all(late.values()) else "."),
        {"decays": decays},
    )


EXPERIMENTS: tuple[Callable[[Path], Finding], ...] = (sasa_plus_at_1e_4, sgd_at_1e_4, rmsprop_forms)
