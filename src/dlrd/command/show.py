"""`dlrd show`."""

import dataclasses
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlrd.command.ends import UserError, told_in_a_sentence

if TYPE_CHECKING:
    from dlrd.fitting.summary import Summary


def show(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that dlrd fit has made.")] = Path(
        "fit"
    ),
    var: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only this variable, as theta, or entry, as theta[2]; may be repeated."
        ),
    ] = None,
) -> None:
    """Prints the summary of a fit and how sure it is, from its folder alone."""
    from dlrd.command.folder import read

    with told_in_a_sentence():
        summary = read(folder)
        try:
            chosen = summary.of(var) if var else summary
        except ValueError as error:
            raise UserError(str(error).replace("var_names", "--var")) from error
    typer.echo(printed(chosen))


def printed(summary: "Summary") -> str:
    """The table and the sentences, which a terminal gets in lines that end between words."""
    if not sys.stdout.isatty():
        return str(summary)
    table = str(dataclasses.replace(summary, sentence="")).rstrip("\n")
    width = shutil.get_terminal_size().columns
    sentences = [textwrap.fill(each, width, subsequent_indent="  ") for each in summary.sentence.splitlines()]
    return "\n".join([table, *sentences])
