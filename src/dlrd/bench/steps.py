"""`dlrd bench steps`: what a step costs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
from matplotlib.figure import Figure

from dlrd.bench import adapter_cost, field_cost, fit_cost, rule_cost, start_cost, torch_cost
from dlrd.bench.table import print_table, save_figure, write
from dlrd.bench.timing import COLUMNS, Row, in_words
from dlrd.plots.style import LINE, MARK, house_style

TICKS = 1, 2, 5, 10


def run(out: Path) -> list[Row]:
    """Runs all comparisons; prints, writes and draws them."""
    rows = []
    with jax.enable_x64(True):
        for row in _rows():
            rows.append(row)
            print(f"{row.what} / {row.baseline}: {row.ratio_in_words} (reach {row.reach_in_words})")
    num_compiled = start_cost.compilations()
    values = [row.__dict__ | {"ratio": row.ratio, "is_reached": row.is_reached} for row in rows]
    write(out / "steps", values, compiled_after_first_chunk=num_compiled)
    print_table("What a step costs", COLUMNS, [in_words(row) for row in rows])
    print(f"Programs compiled after the first chunk: {num_compiled}")
    save_figure(_figure(rows), out / "steps")
    return rows


def _rows() -> Iterator[Row]:
    yield rule_cost.small_problem()
    yield from rule_cost.many_parameters()
    yield from torch_cost.many_parameters()
    yield from fit_cost.against_peers()
    yield fit_cost.guarded()
    yield from field_cost.field_gradients()
    yield fit_cost.many_runs()
    yield from fit_cost.automatic_fits()
    yield adapter_cost.numpyro_hierarchy()
    yield adapter_cost.pymc_hierarchy()
    yield from start_cost.imports()


def _figure(rows: Sequence[Row]) -> Figure:
    """Ratios and what is to be reached: how many times as fast, and how many times the cost."""
    kinds = [
        ("times as fast as", [row for row in rows if row.is_speedup][::-1]),
        ("times the cost of", [row for row in rows if not row.is_speedup][::-1]),
    ]
    with house_style():
        figure = Figure(figsize=(10, 2 + 0.5 * len(rows)), layout="constrained")
        heights = [len(group) for _, group in kinds]
        for axes, (label, group) in zip(figure.subplots(2, 1, height_ratios=heights), kinds, strict=True):
            at = range(len(group))
            axes.scatter([row.ratio for row in group], at, color=LINE, zorder=3, label="measured")
            axes.scatter([row.reach for row in group], at, color=MARK, marker="|", s=200, label="to reach")
            axes.axvline(1, color=LINE, linewidth=0.8)
            axes.set_yticks(at, [f"{row.what}\n{label} {row.baseline}" for row in group], fontsize=8)
            axes.set(xscale="log", xlabel=f"{label} …", ylim=(-0.6, len(group) - 0.4))
            axes.set_xticks(TICKS, [str(tick) for tick in TICKS])
            axes.minorticks_off()
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=2)
        figure.suptitle("What a step costs: ratios from one run", x=0.01, horizontalalignment="left")
    return figure
