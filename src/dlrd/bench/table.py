"""What every part of the benchmark leaves behind: a table on the terminal, a JSON file, a figure."""

import json
import math
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from matplotlib.figure import Figure

FILE_WIDTH = 200
"""Characters a line, where the table does not go to a terminal."""
Row = Mapping[str, Any]
"""Values by the names of columns."""


class Column(NamedTuple):
    """A column of a table."""

    key: str  # of the rows' values
    heading: str
    form: str = ""  # as for `format`


def print_table(title: str, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Shows the rows on the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for column in columns:
        table.add_column(column.heading, justify="right" if column.form else "left")
    for row in rows:
        table.add_row(*(shown(row[column.key], column.form) for column in columns))
    # A file has room for all columns; only a terminal's lines end somewhere.
    console = Console() if Console().is_terminal else Console(width=FILE_WIDTH)
    console.print(table)


def shown(value: Any, form: str = "") -> str:
    """A value as a table shows it."""
    if isinstance(value, bool):
        return "✓" if value else "✗"
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return format(value, form)


def write(folder: Path, rows: Sequence[Row], **settings: Any) -> None:
    """Writes `results.json`: the rows, the settings, and on what kind of machine they were measured."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = f"{platform.machine()}, {jax.local_device_count()} device(s)"
    data = {"machine": machine, "jax": jax.__version__, **settings, "rows": [dict(row) for row in rows]}
    text = json.dumps(_finite(data), indent=2, allow_nan=False)
    (folder / "results.json").write_text(text + "\n", encoding="utf-8")


def save_figure(figure: Figure, folder: Path) -> None:
    """Writes `figure.png` and `figure.pdf`."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in ("png", "pdf"):
        figure.savefig(folder / f"figure.{suffix}", dpi=130)


def _finite(value: Any) -> Any:
    """The same with None for numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
