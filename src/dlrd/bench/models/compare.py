"""`dlrd bench models`: models of NumPyro and PyMC as people write them, beside the same library's NUTS."""

import importlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

from dlrd.bench.models.case import Case
from dlrd.bench.table import Column, Row, print_table, save_figure, write
from dlrd.fitting import fit
from dlrd.models import Model
from dlrd.plots.style import LINE, MARK, MUTED, house_style

LIBRARIES = {"NumPyro": "numpyro_models", "PyMC": "pymc_models"}
"""Modules of this room, each with a list `CASES`."""
TARGET = 0.2
"""Errors of means at the most, in sds of the reference."""
NUM_DRAWS = 10_000
COLUMNS = [
    Column("model", "model"),
    Column("library", "library"),
    Column("kind", "kind"),
    Column("dim", "d", "d"),
    Column("is_whole", "all there"),
    Column("outcome", "outcome"),
    Column("mean_error", "mean", ".3f"),
    Column("is_near", f"≤ {TARGET:g}"),
    Column("std_ratio", "sd", ".2f"),
    Column("tail_shape", "k̂", ".2f"),
    Column("seconds", "seconds", ".1f"),
    Column("nuts_seconds", "NUTS", ".1f"),
]


def chosen(names: Sequence[str] = ()) -> list[tuple[str, Case]]:
    """The cases with their libraries: those that are named, all if none is."""
    cases = [
        (library, case)
        for library, module in LIBRARIES.items()
        for case in importlib.import_module(f"dlrd.bench.models.{module}").CASES
    ]
    unknown = set(names) - {case.name for _, case in cases}
    if unknown:
        known = ", ".join(dict.fromkeys(case.name for _, case in cases))
        raise ValueError(f"a problem must be one of {known}, got {', '.join(sorted(unknown))}")
    return [(library, case) for library, case in cases if not names or case.name in names]


def run(cases: Sequence[tuple[str, Case]], out: Path, seed: int = 0) -> list[Row]:
    """Fits and samples every model in turn; prints, writes and draws what came out."""
    rows: list[Row] = []
    for library, case in cases:
        rows.append({"library": library, **row_of(case, seed)})
        print(f"{case.name} ({library}): worst mean {rows[-1]['mean_error']:.3f} sds off")
        write(out / "models", rows, target=TARGET, seed=seed)
        jax.clear_caches()
    print_table("Means and sds beside NUTS of the same library; times with compilation", COLUMNS, rows)
    save_figure(_figure(rows), out / "models")
    return rows


def row_of(case: Case, seed: int) -> Row:
    """One model, in double precision: a fit, and the same library's NUTS."""
    with jax.enable_x64(True):
        model, sample = case.make()
        started = time.perf_counter()
        found = fit(model, key=seed, progress=False)
        seconds = time.perf_counter() - started
        draws = {name: np.asarray(each) for name, each in found.sample(seed, NUM_DRAWS).items()}
        started = time.perf_counter()
        reference = sample(seed)
        nuts_seconds = time.perf_counter() - started
        is_whole = has_same_shapes(draws, reference) and is_inside(model, draws)
    assert found.verdict is not None
    mean_error, std_ratio = errors(draws, reference)
    return {
        "model": case.name,
        "kind": case.kind,
        "dim": model.dim,
        "num_scalars": sum(values[0].size for values in draws.values()),
        "is_whole": is_whole,
        "family": type(found.family).__name__,
        "outcome": found.outcome.name,
        "mean_error": mean_error,
        "is_near": mean_error <= TARGET,
        "std_ratio": std_ratio,
        "tail_shape": found.verdict.tail_shape,
        "seconds": seconds,
        "nuts_seconds": nuts_seconds,
    }


def errors(draws: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """The worst error of a mean in sds of the reference, and the ratio of sds that is furthest from one."""
    shifts, ratios = [], []
    for name, values in reference.items():
        spread = values.std(axis=0)
        varies = spread > 0  # ones on the diagonal of a correlation do not
        shift = np.abs(draws[name].mean(axis=0) - values.mean(axis=0))
        shifts.append((shift[varies] / spread[varies]).ravel())
        ratios.append((draws[name].std(axis=0)[varies] / spread[varies]).ravel())
    all_ratios = np.concatenate(ratios)
    return float(np.max(np.concatenate(shifts))), float(all_ratios[np.argmax(np.abs(np.log(all_ratios)))])


def has_same_shapes(draws: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> bool:
    """Whether the fit has every variable of the reference, each in its shape."""
    return {name: values.shape[1:] for name, values in draws.items()} == {
        name: values.shape[1:] for name, values in reference.items()
    }


def is_inside(model: Model, draws: Mapping[str, np.ndarray]) -> bool:
    """Whether the draws are in the supports of the variables: then there are coordinates for all of them."""
    some = {name: values[:100] for name, values in draws.items()}
    return bool(np.isfinite(np.asarray(model.unconstrained(some))).all())


def _figure(rows: Sequence[Row]) -> Figure:
    """The worst error of a mean of each model."""
    ordered = rows[::-1]
    with house_style():
        figure = Figure(figsize=(8, 1.4 + 0.32 * len(rows)), layout="constrained")
        axes = figure.subplots()
        colors = [LINE if row["is_near"] else MARK for row in ordered]
        axes.scatter([row["mean_error"] for row in ordered], range(len(ordered)), c=colors, s=30, zorder=3)
        axes.axvline(TARGET, color=MUTED, linestyle="--")
        axes.set_yticks(range(len(ordered)), [f"{row['model']} ({row['library']})" for row in ordered])
        axes.set(xlim=(0, None), xlabel="worst error of a mean, in sds of NUTS")
        figure.suptitle("Models as people write them", x=0.01, horizontalalignment="left")
    return figure
