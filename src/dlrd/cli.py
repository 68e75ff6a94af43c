"""The command `dlrd`."""

from pathlib import Path
from typing import Annotated

import typer

import dlrd

app = typer.Typer(
    help="Variational inference without a learning rate to tune.", no_args_is_help=True, add_completion=False
)
bench = typer.Typer(help="Benchmarks that print ratios from one run.", no_args_is_help=True)
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


@bench.command()
def steps(
    json: Annotated[Path | None, typer.Option(help="Also write the table to this file.")] = None,
) -> None:
    """What a step costs: the rule beside a fixed rate, fit beside NumPyro and NumPy, a cold start.

    Takes about three minutes. Needs the extra dlrd[bench].
    """
    try:
        from dlrd.bench.steps import run
    except ImportError as error:
        raise typer.BadParameter(f"the benchmark needs {error.name}: pip install 'dlrd\\[bench]'") from error

    run(json)
