"""`dlrd reproduce`."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from dlrd.command.ends import UserError, told_in_a_sentence


class Scale(enum.Enum):
    """How much of the paper's settings is run."""

    QUICK = "quick"
    PAPER = "paper"


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
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Also run the experiments on the checks that fail: some minutes."),
    ] = False,
) -> None:
    """Makes the paper's figures from scratch and checks its claims, in one page: OUT/index.html.

    Stopped and called again, it goes on where it was. Needs the extra "paper".
    """
    with told_in_a_sentence():
        try:
            from dlrd.paper import reproduce as paper

            paper.chosen_figures(figures or [])
        except ImportError as error:
            raise UserError(f"the reproduction needs {error.name}: pip install 'dlrd[paper]'") from error
        except ValueError as error:
            raise UserError(str(error)) from error
    if explain:
        for finding in paper.explain(out):
            typer.echo(f"{finding.question} {finding.answer}")
    claims = paper.reproduce(figures or [], scale.value, out, seeds)
    for claim in claims:
        typer.echo(f"{'holds         ' if claim.holds else 'does not hold '} {claim.name}: {claim.measured}")
    typer.echo(
        f"{sum(claim.holds for claim in claims)} of {len(claims)} claims hold; see {out / 'index.html'}"
    )
