"""`dlrd fit`."""

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dlrd.command.ends import (
    OF_OUTCOME,
    REFUSALS,
    ExitCode,
    interruptible,
    plain_warnings,
    refusal,
    told_in_a_sentence,
)

if TYPE_CHECKING:
    from dlrd.fitting import Fit
    from dlrd.models import Model

MAX_ROWS = 30
"""Of the table that is printed at the end; `dlrd show` has all."""


class FamilyName(enum.Enum):
    """The families that a fit may be asked for."""

    AUTO = "auto"
    MEAN_FIELD = "mean-field"
    LOW_RANK = "low-rank"
    SPARSE = "sparse"
    FULL_RANK = "full-rank"


class Precision(enum.Enum):
    """Bits of the floating-point numbers."""

    SINGLE = "32"
    DOUBLE = "64"


class Aim(NamedTuple):
    """What is asked of the fit."""

    family: FamilyName
    tolerance: float | None
    max_gradients: int
    seed: int


def fit(
    model: Annotated[
        str,
        typer.Argument(
            metavar="FILE.PY:NAME",
            help="A log density of a vector (with --dim), a NumPyro model, a PyMC or dlrd model, or a "
            "function that returns one. PACKAGE.MODULE:NAME works, too.",
        ),
    ],
    dim: Annotated[int | None, typer.Option(min=1, help="Length of a log density's vector.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="An npz, json or csv file; its entries are the function's arguments, by name."),
    ] = None,
    family: Annotated[
        FamilyName, typer.Option(help="Of the normals; auto tries richer and richer ones.")
    ] = FamilyName.AUTO,
    tolerance: Annotated[
        float | None,
        typer.Option(help="Gap to the family's best, in nats.", show_default="0.01, or 2e-4 a dimension"),
    ] = None,
    max_gradients: Annotated[int, typer.Option(min=1, help="The budget.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Of the fit and of the draws.")] = 0,
    draws: Annotated[int, typer.Option(min=1, help="Written to draws.npz and draws.nc.")] = 1_000,
    precision: Annotated[Precision, typer.Option(help="Bits of a floating-point number.")] = Precision.DOUBLE,
    out: Annotated[Path, typer.Option(help="The folder for all that the fit gives.")] = Path("fit"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another fit in OUT.")] = False,
) -> None:
    """Fits a model: OUT gets the fit, draws, a summary and a report.

    Stopped by Ctrl-C and called again, it goes on where it was.

    Exit codes: 0 certified or agreed, 2 bad input, 3 out of budget, 4 diverged, 130 interrupted.
    """
    with told_in_a_sentence(), interruptible(), plain_warnings():
        from dlrd.command import folder

        aim = Aim(family, tolerance, max_gradients, seed)
        settings = {
            "model": model.replace("\\", "/").rpartition("/")[2],
            "dim": dim,
            "family": family.value,
            "seed": seed,
            "precision": precision.value,
        }
        prepared = _prepared(model, dim, data, precision)
        if folder.claim(out, settings, overwrite):
            typer.echo(f"Going on with the fit in {out}.")
        result = _fitted(prepared, aim, out)
        if result.outcome.name == "INTERRUPTED" and not len(result.history.step):
            typer.echo("Interrupted before there was a result.", err=True)
            raise typer.Exit(ExitCode.INTERRUPTED)
        left_out = folder.write(out, result, seed, draws)
        _tell(out, left_out)
    raise typer.Exit(OF_OUTCOME[result.outcome.name])


def _prepared(text: str, dim: int | None, data: Path | None, precision: Precision) -> "Model":
    """The model, once the numbers are as precise as they should be."""
    import jax

    from dlrd.command.data import read_data
    from dlrd.command.kinds import as_model
    from dlrd.command.targets import find

    jax.config.update("jax_enable_x64", precision is Precision.DOUBLE)
    given = {} if data is None else read_data(data)
    return as_model(find(text), dim, given)


def _fitted(model: "Model", aim: Aim, out: Path) -> "Fit":
    """The fit, which goes on where an earlier call has stopped."""
    import dlrd
    from dlrd.command import folder
    from dlrd.fitting.checkpoint import AnotherFitError

    kinds: dict[FamilyName, Any] = {
        FamilyName.MEAN_FIELD: dlrd.MeanFieldNormal,
        FamilyName.LOW_RANK: dlrd.LowRankNormal,
        FamilyName.SPARSE: dlrd.SparseNormal,
        FamilyName.FULL_RANK: dlrd.FullRankNormal,
    }
    family = None if aim.family is FamilyName.AUTO else kinds[aim.family].standard(model.dim)
    try:
        return dlrd.fit(
            model,
            family,
            key=aim.seed,
            tolerance=aim.tolerance,
            max_gradients=aim.max_gradients,
            checkpoint=out / folder.CHECKPOINT,
            progress=sys.stdout.isatty(),
        )
    except AnotherFitError as error:
        raise folder.another_fit(out, "the model or its data have changed, or jax has") from error
    except REFUSALS as error:
        raise refusal(error) from error


def _tell(out: Path, left_out: list[str]) -> None:
    """Prints what there is now."""
    from dlrd.command import folder
    from dlrd.command.show import printed

    summary = folder.read(out)
    typer.echo(printed(summary.head(MAX_ROWS)))
    if len(summary.names) > MAX_ROWS:
        typer.echo(f"The table has {len(summary.names):,} rows: dlrd show {out}")
    there = [name for name in folder.RESULTS if (out / name).exists()]
    typer.echo(f"Wrote {', '.join(there)} to {out}.")
    for sentence in left_out:
        typer.echo(sentence)
