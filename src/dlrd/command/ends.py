"""How a command ends: its exit code, and one sentence on what the user can mend."""

import contextlib
import enum
import signal
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import typer


class ExitCode(enum.IntEnum):
    """What the shell is told. An error of dlrd's own gives 1, as any of Python."""

    SURE = 0
    BAD_INPUT = 2
    BUDGET = 3
    DIVERGED = 4
    INTERRUPTED = 130


OF_OUTCOME = {
    "CERTIFIED": ExitCode.SURE,
    "AGREED": ExitCode.SURE,
    "BUDGET": ExitCode.BUDGET,
    "DIVERGED": ExitCode.DIVERGED,
    "INTERRUPTED": ExitCode.INTERRUPTED,
}
"""By the name of the fit's outcome."""


REFUSALS = (ImportError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""What dlrd and the models' libraries raise about a model that cannot be fitted."""
_PACKAGE = Path(__file__).parents[1]


class UserError(Exception):
    """A mistake of the user's, told in one sentence."""


@contextlib.contextmanager
def told_in_a_sentence() -> Iterator[None]:
    """Ends the command with the sentence of a `UserError` instead of a traceback."""
    try:
        yield
    except UserError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(ExitCode.BAD_INPUT) from error


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Ends the command after Ctrl-C, also where jax makes an error of another kind of it: in callbacks."""
    previous = signal.getsignal(signal.SIGINT)
    if previous is not signal.default_int_handler:  # in the background, shells have it ignored
        yield
        return
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield
    except typer.Exit:  # all is said
        raise
    except BaseException as error:
        if not pressed:
            raise
        typer.echo("Interrupted; the same call goes on from the latest checkpoint.", err=True)
        raise typer.Exit(ExitCode.INTERRUPTED) from error
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Shows warnings without the line of code that gave them."""

    def show(message: Warning | str, *where: Any) -> None:
        typer.echo(f"Warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def refusal(error: Exception) -> UserError:
    """What is said about a model that cannot be fitted: dlrd's own sentences as they are."""
    frames = traceback.extract_tb(error.__traceback__)
    is_own = bool(frames) and Path(frames[-1].filename).is_relative_to(_PACKAGE)
    return UserError(first_line(error) if is_own else f"the fit failed: {last_words(error)}")


def last_words(error: BaseException) -> str:
    """The kind of an error, and what it says."""
    said = first_line(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
