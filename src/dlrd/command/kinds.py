"""What a thing of the user's is, as a model: a log density, or a model of dlrd, NumPyro or PyMC."""

import contextlib
import importlib.util
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from dlrd import models
from dlrd.checks import shown
from dlrd.command.data import Data
from dlrd.command.ends import REFUSALS, UserError, refusal
from dlrd.command.targets import Target, is_pymc, is_whole, where
from dlrd.models import LogDensity, Model

OR_DIM = "if it is the log density of a vector, say how long that is, as --dim 31"


def as_model(target: Target, dim: int | None, data: Data) -> Model:
    """The model that a thing is, makes, or stands for.

    With `dim`, a function is the log density of a vector, and the data are its other arguments. Without, it
    is called with the data: it may return a model, of dlrd or PyMC, or else be a model of NumPyro's.

    Args:
        target: a model or a function.
        dim: of the vector.
        data: arguments, by name.
    """
    text, thing = target.text, target.thing
    if is_whole(thing):
        if data or dim is not None:
            raise UserError(f"{text} is a whole model: leave {'--data' if data else '--dim'} out")
        return _made(partial(_whole, thing))
    if not callable(thing):
        raise UserError(f"{text} must be a function, a PyMC model or a model of dlrd, got {shown(thing)}")
    arguments = _arguments(target, data, has_vector=dim is not None)
    if dim is not None:
        return models.function(cast("LogDensity", partial(thing, **arguments) if arguments else thing), dim)
    try:
        with _stopped_at_sites():
            given = thing(**arguments)
    except _HasSitesError:
        return _made(partial(models.numpyro, thing, **arguments))
    except Exception as error:
        raise UserError(f"{text} failed: {where(error, target.file)}") from error
    if not is_whole(given):
        raise UserError(
            f"{text} must be a NumPyro model or return a model, but returned {shown(given)}; {OR_DIM}"
        )
    return _made(partial(_whole, given))


class _HasSitesError(Exception):
    """A function has come to its first NumPyro site."""


def _stopped_at_sites() -> contextlib.AbstractContextManager[Any]:
    """Raises at the first NumPyro site, before it is evaluated."""
    if importlib.util.find_spec("numpyro") is None:
        return contextlib.nullcontext()
    from numpyro.primitives import Messenger

    class Stop(Messenger):
        def process_message(self, msg: Any) -> None:
            raise _HasSitesError

    return Stop()


def _whole(thing: Any) -> Model:
    return models.pymc(thing) if is_pymc(thing) else thing


def _made(make_fn: Callable[[], Model]) -> Model:
    """A model from a library of the user's, whose refusals are told."""
    try:
        return make_fn()
    except REFUSALS as error:
        raise refusal(error) from error


def _arguments(target: Target, data: Data, has_vector: bool) -> Data:
    """Those of the data that a function takes, besides the vector of a log density.

    More data do no harm unless they may be a misspelt argument.
    """
    parameters = list(inspect.signature(target.thing).parameters.values())[has_vector:]
    named = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    names = [each.name for each in named]
    given = f"--data gives {', '.join(data)}" if data else "no --data are given"
    missing = [each.name for each in named if each.default is each.empty and each.name not in data]
    if missing:
        advice = "" if has_vector or data else f"; {OR_DIM}"
        raise UserError(f"{target.text} needs {', '.join(missing)}, but {given}{advice}")
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return data
    if set(data) - set(names) and (set(names) - set(data) or not names):
        raise UserError(f"{target.text} takes {', '.join(names) or 'no data'}, but {given}")
    return {name: data[name] for name in names if name in data}
