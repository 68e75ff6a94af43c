"""`dlrd bench scaling`: how the cost grows with the dimension, the draws of a step, and the data."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dlrd.bench.scaling_run import FAMILIES, NUM_COVARIATES, Size
from dlrd.bench.table import Column, Row, print_table, save_figure, write
from dlrd.plots.style import INK, LINE, MARK, house_style

DIMENSIONS = 10, 100, 1_000, 10_000, 100_000
DRAWS = 2, 8, 32, 128
DATA = 1_000, 10_000, 100_000
DIM_OF_DRAWS = 1_000
"""Of the posterior on which the number of draws varies."""
NUM_DRAWS = 8
COLUMNS = [
    Column("axis", "axis"),
    Column("family", "family"),
    Column("size", "size", ",d"),
    Column("milliseconds", "ms a step", ".3g"),
    Column("first_seconds", "seconds, first", ".3g"),
    Column("seconds", "seconds, again", ".3g"),
    Column("gradients", "gradients", ",d"),
    Column("peak_megabytes", "peak MB", ",.0f"),
    Column("gap", "gap, nats", ".2g"),
    Column("outcome", "outcome"),
]
EXPONENT_COLUMNS = [
    Column("axis", "axis"),
    Column("family", "family"),
    Column("step", "a step", ".2f"),
    Column("fit", "a whole fit", ".2f"),
    Column("memory", "memory", ".2f"),
]


def run(
    out: Path,
    tolerance: float,
    max_gradients: int,
    max_dim: int = DIMENSIONS[-1],
    max_rows: int = DATA[-1],
) -> list[Row]:
    """Fits each size in a process of its own; prints, writes and draws what came out.

    Args:
        out: results go to `out`/scaling.
        tolerance: of each fit, in nats.
        max_gradients: of each fit.
        max_dim: sizes beyond are left out.
        max_rows: of data; sizes beyond are left out.
    """
    rows, exponents = [], []
    for size in sizes(tolerance, max_gradients, max_dim, max_rows):
        row = _measured(size)
        rows.append(row)
        print(
            f"{size.axis} {size.size:,}, {size.family}: {row['milliseconds']:.3g} ms a step, {row['outcome']}"
        )
        # The largest come last and take longest: whoever stops then has the others.
        exponents = fitted_exponents(rows)
        write(out / "scaling", rows, tolerance=tolerance, max_gradients=max_gradients, exponents=exponents)
    print_table(f"Cost, tolerance {tolerance:g} nats", COLUMNS, rows)
    print_table("Fitted exponents: cost grows like size to the power", EXPONENT_COLUMNS, exponents)
    save_figure(_figure(rows), out / "scaling")
    return rows


def sizes(tolerance: float, max_gradients: int, max_dim: int, max_rows: int) -> list[Size]:
    """All that is measured."""
    dims = [dim for dim in DIMENSIONS if dim <= max_dim]
    dim_of_draws = min(DIM_OF_DRAWS, max_dim)
    limits = {"tolerance": tolerance, "max_gradients": max_gradients}
    return [
        *(Size("draws", "mean-field", num, dim_of_draws, num, **limits) for num in DRAWS),
        *(
            Size("data", "mean-field", num, NUM_COVARIATES, NUM_DRAWS, **limits)
            for num in DATA
            if num <= max_rows
        ),
        *(Size("dimension", name, dim, dim, NUM_DRAWS, **limits) for dim in dims for name in FAMILIES),
    ]


def fitted_exponents(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Slopes of straight lines through the logarithms, over the sizes from the second on.

    The smallest sizes cost what a call costs, whatever the size.
    """
    found = []
    for names in dict.fromkeys((row["axis"], row["family"]) for row in rows):
        group = [row for row in rows if (row["axis"], row["family"]) == names and row["outcome"] != "FAILED"]
        group = group[1:] if len(group) > 2 else group
        if len(group) < 2:
            continue
        logs = np.log([row["size"] for row in group])
        slopes = {
            name: float(np.polyfit(logs, np.log([row[key] for row in group]), 1)[0])
            for name, key in {
                "step": "seconds_per_step",
                "fit": "seconds",
                "memory": "peak_megabytes",
            }.items()
        }
        found.append({"axis": names[0], "family": names[1], **slopes})
    return found


def _measured(size: Size) -> dict[str, Any]:
    command = [sys.executable, "-m", "dlrd.bench.scaling_run", json.dumps(dataclasses.asdict(size))]
    ended = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    # A size for which the memory does not suffice is a result too; the others count all the same.
    unknown = dict.fromkeys(("seconds_per_step", "first_seconds", "seconds", "peak_megabytes"), float("nan"))
    row = dataclasses.asdict(size) | unknown | {"gap": None, "gradients": None, "outcome": "FAILED"}
    if ended.returncode == 0:
        row |= json.loads(ended.stdout.splitlines()[-1])
    return row | {"milliseconds": 1e3 * row["seconds_per_step"]}


def _figure(rows: Sequence[Row]) -> Figure:
    """Cost of a step and of a fit, a panel for each axis."""
    with house_style():
        figure = Figure(figsize=(11, 3.8), layout="constrained")
        panels = figure.subplots(1, 3)
        for axes, axis in zip(panels, ("dimension", "draws", "data"), strict=True):
            for family, color in zip(FAMILIES, (LINE, MARK, INK), strict=True):
                group = [row for row in rows if (row["axis"], row["family"]) == (axis, family)]
                if group:
                    places = [row["size"] for row in group]
                    axes.plot(
                        places, [row["seconds"] for row in group], "o-", color=color, label=f"{family}, a fit"
                    )
                    steps = [row["seconds_per_step"] for row in group]
                    axes.plot(places, steps, "s--", color=color, label=f"{family}, a step")
            axes.set(xscale="log", yscale="log", xlabel=axis, ylabel="seconds")
        panels[0].legend(fontsize="small")
        figure.suptitle("How the cost grows", x=0.01, horizontalalignment="left")
    return figure
