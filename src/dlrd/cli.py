"""The command `dlrd`."""

import enum
from pathlib import Path
from typing import Annotated

import typer

import dlrd

app = typer.Typer(
    help="Variational inference without a learning rate to tune.", no_args_is_help=True, add_completion=False
)
bench = typer.Typer(help="Benchmarks that print ratios from one run.", no_args_is_help=True)
app.add_typer(bench, name="bench")


class Scale(enum.Enum):
    """How much of the paper's settings is run."""

    QUICK = "quick"
    PAPER = "paper"


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


@app.command()
def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(help="Which figures, as quadnormal or logistic; all if none is named."),
    ] = None,
    scale: Annotated[
        Scale, typer.Option(help="paper: the full settings, about half an hour; quick: about three minutes.")
    ] = Scale.QUICK,
    out: Annotated[Path, typer.Option(help="Where results, figures and the page go.")] = Path("reproduction"),
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each setting, in place of the usual number.")
    ] = None,
) -> None:
    """Makes the paper's figures from scratch and checks its claims, in one page: OUT/index.html.

    Stopped and called again, it goes on where it was. Needs the extra dlrd[paper].
    """
    try:
        from dlrd.paper import reproduce as paper

        paper.chosen_figures(figures or [])
    except ImportError as error:
        raise typer.BadParameter(
            f"the reproduction needs {error.name}: pip install 'dlrd\\[paper]'"
        ) from error
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    claims = paper.reproduce(figures or [], scale.value, out, seeds)
    for claim in claims:
        typer.echo(f"{'holds         ' if claim.holds else 'does not hold '} {claim.name}: {claim.measured}")
    typer.echo(
        f"{sum(claim.holds for claim in claims)} of {len(claims)} claims hold; see {out / 'index.html'}"
    )


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
