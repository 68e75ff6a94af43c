"""The rooms of the house: who may import whom."""

import ast
import pathlib

import pytest

import dlrd

ROOT = pathlib.Path(dlrd.__file__).parent

MAY_IMPORT = {
    "checks": set(),
    "regression": set(),
    "compilation": set(),
    "rates": {"checks", "regression"},
    "torch": {"checks", "regression"},
    "families": {"checks"},
    "divergence": {"families"},
    "simulation": {"checks"},
    "models": {"checks", "simulation"},
    "gradients": {"families", "models"},
    # plots and report inside methods of Fit alone
    "fitting": {"checks", "families", "gradients", "models", "rates", "plots", "report"},
    "numpyro": {"checks", "families", "fitting", "models"},
    "pymc": {"families", "fitting", "models"},
    "plots": {"families", "fitting", "simulation"},
    "report": {"families", "fitting", "plots"},
    "paper": {"families", "gradients", "models", "rates", "divergence", "fitting", "plots"},
    "bench": {
        "families",
        "gradients",
        "models",
        "rates",
        "divergence",
        "fitting",
        "paper",
        "plots",
        "simulation",
        "torch",
    },
    "command": {"checks", "families", "models", "fitting", "bench", "paper", "plots", "simulation"},
    "cli": {"command"},
}


def imported_rooms(source: str) -> set[str]:
    """The rooms that a source text takes something from, its own too, in whichever way it does so."""
    nodes = list(ast.walk(ast.parse(source)))
    names, package_names = set(), set()
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                package, _, path = alias.name.partition(".")
                if package == "dlrd" and path:
                    names.add(path.split(".")[0])
                if package == "dlrd" and not (path and alias.asname):
                    package_names.add(alias.asname or "dlrd")
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"line {node.lineno}: imports must be absolute, got a relative one")
            package, _, path = (node.module or "").partition(".")
            if package == "dlrd":
                names |= {path.split(".")[0]} if path else {alias.name for alias in node.names}
    attributes = {
        id(node.value): node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in package_names:
            if id(node) not in attributes:
                raise ValueError(
                    f"line {node.lineno}: dlrd must be used by its attributes, got it as a whole"
                )
            names.add(attributes[id(node)])
    return {room_of_name(name) for name in names - {"__version__"}}


def room_of_name(name: str) -> str:
    """The room that an attribute of the package is or comes from."""
    room = dlrd._ROOM_OF.get(name, name)
    if room not in MAY_IMPORT:
        raise ValueError(f"a name of dlrd must be on its list or a room, got {name}")
    return room


def room_of(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_every_room_is_on_the_map() -> None:
    rooms = {room_of(path) for path in ROOT.rglob("*.py")} - {"__init__"}
    assert rooms == set(MAY_IMPORT)


def test_imports_only_go_down() -> None:
    for path in ROOT.rglob("*.py"):
        room = room_of(path)
        if room != "__init__":
            forbidden = imported_rooms(path.read_text(encoding="utf-8")) - MAY_IMPORT[room] - {room}
            assert not forbidden, f"{path.relative_to(ROOT)} imports from {forbidden}"


@pytest.mark.parametrize(
    ("source", "rooms"),
    [
        ("import dlrd.fitting.loop", {"fitting"}),
        ("import dlrd.fitting.loop as loop", {"fitting"}),
        ("import numpy, dlrd.plots", {"plots"}),
        ("from dlrd.fitting import loop", {"fitting"}),
        ("from dlrd.fitting.loop import run", {"fitting"}),
        ("from dlrd import regression", {"regression"}),
        ("from dlrd import FullRankNormal as Normal, fit", {"families", "fitting"}),
        ("def late():\n    from dlrd import jeffreys", {"divergence"}),
        ("if TYPE_CHECKING:\n    from dlrd import Fit", {"fitting"}),
        ("import dlrd\ndlrd.sasa(0.1)", {"rates"}),
        ("import dlrd as d\nd.plots.fit.plot_fit", {"plots"}),
        ("import dlrd.checks\ndlrd.fit", {"checks", "fitting"}),
        ("import dlrd.checks as checks\ndlrd.fit", {"checks"}),  # this dlrd is something else
        ("import dlrd\ndlrd.__version__", set()),
        ("from dlrd import __version__", set()),
        ("import numpy\nfrom numpy import linalg\nnumpy.fit", set()),
        ("import dlrdx.fitting\nfrom dlrdx import fit", set()),
    ],
)
def test_each_way_to_import_is_seen(source: str, rooms: set[str]) -> None:
    assert imported_rooms(source) == rooms


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("from . import loop", "line 1: imports must be absolute"),
        ("import numpy\nfrom ..fitting import loop", "line 2: imports must be absolute"),
        ("from dlrd import *", r"on its list or a room, got \*"),
        ("from dlrd import nothing", "on its list or a room, got nothing"),
        ("import dlrd\ngetattr(dlrd, name)", "line 2: dlrd must be used by its attributes"),
        ("import dlrd\nother = dlrd\nother.fit", "line 2: dlrd must be used by its attributes"),
    ],
)
def test_ways_that_hide_what_they_import_are_refused(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        imported_rooms(source)


def test_the_regression_imports_nothing_of_the_numeric_libraries() -> None:
    source = (ROOT / "regression.py").read_text(encoding="utf-8")
    modules = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert modules == {"operator", "typing"}
