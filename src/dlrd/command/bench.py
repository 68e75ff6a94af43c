"""`dlrd bench`, with a command for each part."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlrd.command.ends import UserError, told_in_a_sentence

if TYPE_CHECKING:
    from dlrd.bench.posteriors.cases import Settings

bench = typer.Typer(help="Benchmarks that print ratios from one run.", no_args_is_help=True)

Posteriors = Annotated[
    Path | None,
    typer.Option("--posteriordb", envvar="PDB_PATH", help="The folder with the posteriors' files."),
]
Out = Annotated[
    Path, typer.Option(help="Results and a figure go to a folder in this one, named as the part.")
]
Seeds = Annotated[int, typer.Option(min=1, help="Fits of each problem and family.")]
Tolerance = Annotated[
    float | None,
    typer.Option(help="Of each fit, in nats; 0.01 if not given, for the larger posteriors what suits them."),
]
Budget = Annotated[int, typer.Option(min=1, help="Gradients of each fit at the most.")]
Problems = Annotated[
    list[str] | None, typer.Option("--problem", help="Only this one, as arK-arK; may be given several times.")
]
OUT = Path("benchmark")


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Tells what a user can mend in one sentence."""
    with told_in_a_sentence():
        try:
            yield
        except ImportError as error:
            raise UserError(f"the benchmark needs {error.name}: pip install 'dlrd[bench]'") from error
        except (FileNotFoundError, ValueError) as error:
            raise UserError(str(error)) from error


def _settings(
    posteriordb: Path | None,
    out: Path,
    seeds: int,
    max_gradients: int,
    problems: list[str] | None,
    tolerance: float | None = None,
) -> "Settings":
    """What all parts with small posteriors are told."""
    from dlrd.bench.posteriors.cases import Settings

    return Settings(_given(posteriordb), out, seeds, max_gradients, tolerance, problems or [])


def _given(posteriordb: Path | None) -> Path:
    if posteriordb is None:
        raise ValueError(
            "the folder of the posteriors must be given by --posteriordb or the environment variable PDB_PATH"
        )
    return posteriordb


@bench.command()
def steps(out: Out = OUT) -> None:
    """What a step costs: the rule beside a fixed rate, fit beside NumPyro and NumPy, a cold start.

    Takes about six minutes. Needs the extra "bench".
    """
    with _plain_errors():
        from dlrd.bench import steps
    steps.run(out)


@bench.command()
def posteriors(
    posteriordb: Posteriors = None,
    out: Out = OUT,
    seeds: Seeds = 3,
    tolerance: Tolerance = None,
    max_gradients: Budget = 100_000,
    problem: Problems = None,
) -> None:
    """How close automatic fits come: posteriors with references, nine small and six larger, and the paper's.

    Problems of made data take part if they are named, all of them by --problem made. Needs the extra "bench".
    """
    with _plain_errors():
        from dlrd.bench.posteriors import accuracy, larger_cases

        settings = _settings(posteriordb, out, seeds, max_gradients, problem, tolerance)
        larger_cases.check(settings)
    accuracy.run(settings)


@bench.command()
def ablation(
    posteriordb: Posteriors = None,
    out: Out = OUT,
    seeds: Seeds = 2,
    tolerance: Tolerance = None,
    max_gradients: Budget = 32_000,
    problem: Problems = None,
) -> None:
    """The automatic mode with each of its parts switched off.

    Needs the extra "bench".
    """
    with _plain_errors():
        from dlrd.bench import ablation

        settings = _settings(posteriordb, out, seeds, max_gradients, problem, tolerance)
        settings.check()
    ablation.run(settings)


@bench.command()
def scaling(
    out: Out = OUT,
    tolerance: Annotated[float, typer.Option(help="Of each fit, in nats.")] = 1e-2,
    max_gradients: Budget = 32_000,
    max_dim: Annotated[int, typer.Option(min=10, help="Dimensions beyond are left out.")] = 100_000,
    max_rows: Annotated[int, typer.Option(min=1_000, help="Data sizes beyond are left out.")] = 100_000,
) -> None:
    """How the cost of a step and of a whole fit grows: with the dimension, the draws, the data.

    Needs the extra "bench".
    """
    with _plain_errors():
        from dlrd.bench import scaling
    scaling.run(out, tolerance, max_gradients, max_dim, max_rows)


@bench.command()
def peers(
    posteriordb: Posteriors = None,
    out: Out = OUT,
    seeds: Seeds = 1,
    max_gradients: Budget = 32_000,
    problem: Problems = None,
) -> None:
    """The same posteriors by NumPyro, PyMC, BlackJAX, optax's rules, and the paper's rule alone.

    Needs the extra "bench".
    """
    with _plain_errors():
        from dlrd.bench.peers import compare, others

        others.check_installed()
        settings = _settings(posteriordb, out, seeds, max_gradients, problem)
        settings.check()
    compare.run(settings)


@bench.command()
def budgets(
    posteriordb: Posteriors = None,
    out: Out = OUT,
    seeds: Seeds = 3,
    max_gradients: Budget = 64_000,
    problem: Problems = None,
) -> None:
    """The gap after 8,000, 32,000 and 64,000 gradients: automatic, the paper's rule, Adam at its best rate.

    Needs the extra "bench".
    """
    with _plain_errors():
        from dlrd.bench import budgets

        settings = _settings(posteriordb, out, seeds, max_gradients, problem)
        settings.check()
    budgets.run(settings)


@bench.command()
def shapes(
    posteriordb: Posteriors = None,
    out: Out = OUT,
    seeds: Seeds = 5,
    max_gradients: Annotated[
        list[int] | None, typer.Option(min=1, help="Of each fit; may be given several times.")
    ] = None,
    problem: Problems = None,
    family: Annotated[
        list[str] | None, typer.Option(help="Only this one, as 'coupling flow'; may be given several times.")
    ] = None,
) -> None:
    """Flows and mixtures on six targets: automatic, Adam at its best rate in hindsight, a cosine schedule.

    With 100,000 gradients if not told otherwise. Needs the extra "bench".
    """
    with _plain_errors():
        from dlrd.bench import shapes

        budgets = max_gradients or [100_000]
        settings = shapes.Settings(_given(posteriordb), out, seeds, budgets, problem or [], family or [])
        settings.check()
    shapes.run(settings)


@bench.command()
def nuts(
    posteriordb: Posteriors = None,
    out: Out = OUT,
    seeds: Seeds = 3,
    problem: Problems = None,
) -> None:
    """Seconds until means and sds are right, for the larger posteriors, beside NumPyro's NUTS.

    Needs the extra "bench".
    """
    with _plain_errors():
        from dlrd.bench import nuts

        chosen = nuts.read(_given(posteriordb), problem or [])
    nuts.run(chosen, out, seeds)


@bench.command()
def seconds(
    posteriordb: Posteriors = None,
    out: Out = OUT,
    repeats: Annotated[int, typer.Option(min=1, help="Processes of each tool and problem.")] = 3,
    tool: Annotated[
        list[str] | None,
        typer.Option("--tool", help="Only this one, as 'NumPyro NUTS'; may be given several times."),
    ] = None,
    problem: Problems = None,
) -> None:
    """Seconds until an answer and its errors, in a new process and again, beside NUTS, SVI, Pathfinder, ….

    Takes about half an hour. Needs the extra "bench"; nutpie and pymc-extras take part where installed.
    """
    with _plain_errors():
        from dlrd.bench.seconds import compare

        settings = compare.settings(_given(posteriordb), out, repeats, tool or [], problem or [])
    compare.run(settings)


@bench.command()
def models(out: Out = OUT, problem: Problems = None) -> None:
    """NumPyro and PyMC models of many kinds as people write them, beside NUTS of the same library.

    Takes about ten minutes. Needs the extra "bench".
    """
    with _plain_errors():
        from dlrd.bench.models import compare

        chosen = compare.chosen(problem or [])
    compare.run(chosen, out)


@bench.command()
def simulators(out: Out = OUT) -> None:
    """What eight workers gain beside one, and what a run costs besides itself.

    Takes about three minutes. Needs the extras "bench" and "simulator".
    """
    with _plain_errors():
        from dlrd.bench import simulators
    simulators.run(out)
