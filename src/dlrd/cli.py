"""The command `dlrd`."""

from typing import Annotated

import typer

import dlrd
from dlrd.command.bench import bench
from dlrd.command.fit import fit
from dlrd.command.reproduce import reproduce
from dlrd.command.runs import runs
from dlrd.command.show import show

app = typer.Typer(
    help="Variational inference without a learning rate to tune.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.command()(fit)
app.command()(show)
app.command()(runs)
app.command()(reproduce)
app.add_typer(bench, name="bench")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"dlrd {dlrd.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Variational inference without a learning rate to tune."""
