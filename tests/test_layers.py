"""The rooms of the house: who may import whom."""

import ast
import pathlib

import dlrd

ROOT = pathlib.Path(dlrd.__file__).parent

MAY_IMPORT = {
    "checks": set(),
    "regression": set(),
    "rates": {"checks", "regression"},
    "families": {"checks"},
    "divergence": {"families"},
    "gradients": {"families"},
    # plots and report inside methods of Fit alone
    "fitting": {"checks", "families", "gradients", "rates", "plots", "report"},
    "plots": {"families", "fitting"},
    "report": {"families", "fitting", "plots"},
    "paper": {"families", "gradients", "rates", "divergence", "fitting", "plots"},
    "bench": {"families", "gradients", "rates", "divergence", "fitting", "paper", "plots"},
    "cli": {"bench", "paper"},
}


def imported_rooms(path: pathlib.Path) -> set[str]:
    """The rooms that a file imports from, other than its own."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    rooms = {name.split(".")[1] for name in names if name.startswith("dlrd.")}
    return rooms & set(MAY_IMPORT) - {room_of(path)}


def room_of(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_every_room_is_on_the_map() -> None:
    rooms = {room_of(path) for path in ROOT.rglob("*.py")} - {"__init__"}
    assert rooms == set(MAY_IMPORT)


def test_imports_only_go_down() -> None:
    for path in ROOT.rglob("*.py"):
        room = room_of(path)
        if room != "__init__":
            forbidden = imported_rooms(path) - MAY_IMPORT[room]
            assert not forbidden, f"{path.relative_to(ROOT)} imports from {forbidden}"


def test_the_regression_imports_nothing_of_the_numeric_libraries() -> None:
    source = (ROOT / "regression.py").read_text(encoding="utf-8")
    modules = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert modules == {"operator", "typing"}
