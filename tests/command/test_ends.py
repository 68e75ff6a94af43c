"""How commands end."""

import os
import signal
import warnings
from collections.abc import Iterator

import pytest
import typer

from dlrd import Outcome
from dlrd.command.ends import (
    OF_OUTCOME,
    ExitCode,
    UserError,
    interruptible,
    last_words,
    plain_warnings,
    refusal,
    told_in_a_sentence,
)


def test_every_end_of_a_fit_has_its_code() -> None:
    assert set(OF_OUTCOME) == {outcome.name for outcome in Outcome} - {"RUNNING"}
    assert OF_OUTCOME["CERTIFIED"] == OF_OUTCOME["AGREED"] == 0
    others = [code for code in OF_OUTCOME.values() if code != 0]
    assert len({*others, ExitCode.BAD_INPUT, 1}) == len(others) + 2


def test_mistakes_are_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, told_in_a_sentence():
        raise UserError("there is no file a[b].py")
    assert caught.value.exit_code == 2
    assert capsys.readouterr().err == "Error: there is no file a[b].py\n"


def test_errors_of_other_kinds_pass() -> None:
    with pytest.raises(ZeroDivisionError), told_in_a_sentence():
        _ = 1 / 0


@pytest.fixture
def in_the_foreground() -> Iterator[None]:
    """What a program in the foreground has; in the background, shells have SIGINT ignored."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("in_the_foreground")
def test_an_interrupt_has_its_code_whatever_becomes_of_it() -> None:
    def in_a_callback() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt as error:
            raise ValueError("INTERNAL: error when calling a callback") from error

    with pytest.raises(typer.Exit) as caught, interruptible():
        in_a_callback()
    assert caught.value.exit_code == 130
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("in_the_foreground")
def test_without_an_interrupt_errors_pass() -> None:
    with pytest.raises(ValueError, match="of its own"), interruptible():
        raise ValueError("of its own")


@pytest.mark.filterwarnings("default")
def test_warnings_are_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with plain_warnings():
        warnings.warn("a hierarchy is centred", stacklevel=1)
    assert capsys.readouterr().err == "Warning: a hierarchy is centred\n"


def raised(text: str) -> Exception:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_last_words() -> None:
    assert last_words(raised("\n one\ntwo")) == "ValueError: one"
    assert last_words(raised("")) == "ValueError"


def test_refusals_of_dlrd_are_sentences() -> None:
    """Those of others are told with their kind."""
    from dlrd.checks import check_count

    with pytest.raises(ValueError, match="num") as caught:
        check_count("num", 0)
    assert str(refusal(caught.value)) == "num must be a whole number of at least 1, got int 0"
    assert str(refusal(raised("not mine"))) == "the fit failed: ValueError: not mine"
