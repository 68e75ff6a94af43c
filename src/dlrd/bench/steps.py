"""`dlrd bench steps`: what a step costs."""

import dataclasses
import json
import platform
from collections.abc import Iterator
from pathlib import Path

import jax

from dlrd.bench import field_cost, fit_cost, rule_cost, start_cost
from dlrd.bench.timing import Row


def run(output: Path | None) -> bool:
    """Runs all comparisons, prints them and writes them to `output` as JSON; whether all is reached."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title="What a step costs")
    for column in ("what", "against", "ours", "theirs", "ratio", "reach", ""):
        table.add_column(column)
    rows = []
    with jax.enable_x64(True):
        for row in _rows():
            rows.append(row)
            ratio = f"{row.ratio:.2f} ×" + (" as fast" if row.is_speedup else "")
            reach = f"{'≥' if row.is_speedup else '≤'} {row.reach:g}"
            verdict = "✓" if row.is_reached else "✗"
            console.print(f"{verdict} {row.what} / {row.baseline}: {ratio} (reach {reach})")
            shown = [f"{value:.3g} {row.unit}" for value in (row.ours, row.theirs)]
            table.add_row(row.what, row.baseline, *shown, ratio, reach, verdict)
    num_compiled = start_cost.compilations()
    console.print(table)
    console.print(f"Programs compiled after the first chunk: {num_compiled}")
    if output is not None:
        data = {
            "machine": f"{platform.machine()}, {jax.local_device_count()} device(s)",
            "jax": jax.__version__,
            "rows": [dataclasses.asdict(row) | {"ratio": row.ratio} for row in rows],
            "compiled_after_first_chunk": num_compiled,
        }
        output.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return num_compiled == 0 and all(row.is_reached for row in rows)


def _rows() -> Iterator[Row]:
    yield rule_cost.small_problem()
    yield from rule_cost.many_parameters()
    yield from fit_cost.against_peers()
    yield from field_cost.field_gradients()
    yield fit_cost.many_runs()
    yield from start_cost.imports()
