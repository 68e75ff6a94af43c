"""What the user names on the command line: `file.py:name`, or `package.module:name`."""

import importlib.util
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from dlrd.command.ends import UserError, last_words
from dlrd.models import Model


class Target(NamedTuple):
    """A thing with a name in a module of the user's."""

    text: str  # as the user wrote it
    thing: Any
    file: str  # where the module is


def find(text: str) -> Target:
    """The thing that a text names.

    Args:
        text: a file or a module, a colon, and a name in it.
    """
    place, _, name = text.rpartition(":")
    if not place or not name.isidentifier():
        raise UserError(f"a model is named as my_model.py:name or package.module:name, got {text}")
    module = _module_of_file(Path(place)) if place.endswith(".py") else _module(place)
    if not hasattr(module, name):
        candidates = [key for key, value in vars(module).items() if _may_be_meant(key, value, module)]
        raise UserError(f"{place} has no {name}; it has {', '.join(candidates) or 'nothing to be fitted'}")
    return Target(text, getattr(module, name), str(module.__file__))


def is_whole(thing: Any) -> bool:
    """Whether a thing is a model of dlrd or PyMC, and not a function or a class that makes one."""
    return not isinstance(thing, type) and (isinstance(thing, Model) or is_pymc(thing))


def is_pymc(thing: Any) -> bool:
    """Whether a thing is a PyMC model; told by the name of its class, so that PyMC is not imported for it."""
    kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(thing).__mro__]
    return ("pymc", "Model") in kinds


def _may_be_meant(key: str, value: Any, module: ModuleType) -> bool:
    is_own_function = callable(value) and getattr(value, "__module__", None) == module.__name__
    return not key.startswith("_") and (is_own_function or is_whole(value))


def _module_of_file(path: Path) -> ModuleType:
    """A file as a module, which may import what lies beside it."""
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    name = f"{path.stem} by its path"  # no other module has such a name
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[name] = module
    _run(partial(spec.loader.exec_module, module), str(path), str(path.absolute()))
    return module


def _module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:
        spec = None
    if spec is None:
        raise UserError(f"there is no module {name}; a file is named with its ending, as my_model.py:name")
    return _run(partial(importlib.import_module, name), name, str(spec.origin))


def _run(load_fn: Callable[[], Any], place: str, file: str) -> Any:
    """Runs a module of the user's, whose errors are told in their own words."""
    try:
        return load_fn()
    except ModuleNotFoundError as error:
        raise UserError(f"{place} needs {error.name}, which is not installed") from error
    except Exception as error:
        raise UserError(f"{place} failed: {where(error, file)}") from error


def where(error: Exception, file: str) -> str:
    """What an error says, and the last line of the file on the way to it."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == Path(file)]
    return f"{last_words(error)}{f', on line {lines[-1]}' if lines else ''}"
