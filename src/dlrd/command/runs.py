"""`dlrd runs`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlrd.command.ends import UserError, told_in_a_sentence

if TYPE_CHECKING:
    from dlrd.simulation.log import Record

MAX_PARAMETERS = 6
"""Columns of parameters in the table."""


def runs(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="The log of a simulator, as runs.jsonl.")],
    last: Annotated[int, typer.Option(min=1, help="So many of the newest runs are listed.")] = 10,
    out: Annotated[
        Path | None, typer.Option(help="The picture (png, pdf, svg); LOG.png if not given.")
    ] = None,
) -> None:
    """Shows the runs of a simulator, also while they go on: counts, the newest, failures, a picture."""
    from dlrd.simulation.log import read

    with told_in_a_sentence():
        if not log.is_file():
            raise UserError(f"there is no file {log}")
        try:
            names, records = read(log)
        except ValueError as error:
            raise UserError(str(error)) from error
        if not records:
            raise UserError(f"{log} has no runs yet")
        picture = out or Path(f"{log}.png")
        for line in [*_summary(names, records), "", *_table(names, records, last)]:
            typer.echo(line)
        _draw(picture, names, records)
    typer.echo(f"\nWrote {picture}.")


def _summary(names: list[str], records: "list[Record]") -> list[str]:
    """In sentences: how many, when, how long, how many failed and where."""
    from collections import Counter
    from datetime import datetime

    import numpy as np

    from dlrd.simulation.region import failing_region

    good = [record for record in records if record.is_good]
    first = datetime.fromtimestamp(min(record.began for record in records))
    end = datetime.fromtimestamp(max(record.began + record.answer.seconds for record in records))
    workers = {record.answer.worker for record in records if record.answer.worker}
    lines = [
        f"{len(records):,} runs, {len(records) - len(good):,} failed, by {len(workers):,} process(es), "
        f"{first:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S}."
    ]
    if good:
        seconds = np.array([record.answer.seconds for record in good])
        lines.append(f"Seconds a run: mean {seconds.mean():.3g}, longest {seconds.max():.3g}.")
    failed = Counter(record.answer.status.value for record in records if not record.is_good)
    if failed:
        lines.append(f"Failed: {', '.join(f'{status} {number:,}' for status, number in failed.items())}.")
        points = np.stack([record.question.parameters for record in records])
        region = failing_region(points, np.array([not record.is_good for record in records]), names)
        lines += [f"Where: {region}."] if region else []
    return lines


def _table(names: list[str], records: "list[Record]", num: int) -> list[str]:
    """The newest runs, a line each, with their first parameters; of failed ones, why."""
    from datetime import datetime

    shown = names[:MAX_PARAMETERS]
    more = [f"and {len(names) - len(shown)} more"] if len(names) > len(shown) else []
    rows = [["run", "began", "seconds", "status", *shown, *more]]
    for number, record in list(enumerate(records, 1))[-num:]:
        answer = record.answer
        values = [f"{value:.5g}" for value in record.question.parameters[: len(shown)]]
        began = f"{datetime.fromtimestamp(record.began):%H:%M:%S}"
        rows.append(
            [f"{number:,}", began, f"{answer.seconds:.3g}", answer.status.value, *values, *["" for _ in more]]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    reasons = [record.answer.message for record in records[-num:]]
    return [
        line + (f"  {reason}" if reason else "") for line, reason in zip(lines, ["", *reasons], strict=True)
    ]


def _draw(path: Path, names: list[str], records: "list[Record]") -> None:
    from dlrd.plots.runs import plot_runs

    try:
        plot_runs(names, records).savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise UserError(f"the picture could not be written: {error}") from error
