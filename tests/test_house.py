"""Rules of the house that a reader counts on: what fits may ask, how long things are, where tests are."""

import ast
import pathlib
from collections.abc import Iterator

import pytest

import dlrd

ROOT = pathlib.Path(dlrd.__file__).parent
TESTS = pathlib.Path(__file__).parent
PATHS = sorted(ROOT.rglob("*.py"))
CONCRETE = {
    "Curved",
    "CurvedLowRank",
    "DenseCurvature",
    "FullRankNormal",
    "FunctionModel",
    "HostModel",
    "LowRankCurvature",
    "LowRankNormal",
    "MeanFieldNormal",
    "Mixture",
    "SparseNormal",
}
"""Families and models as classes; fits ask for capabilities instead."""
MAX_LINES, MAX_PARAMETERS = 300, 8
PUBLIC = {"fit", "fit_many", "simulator"}
"""Functions that may have more parameters: their callers name them."""
WITHOUT_BEHAVIOUR = {"models/protocol.py", "families/protocol.py"}
"""Protocols: what they ask for is tested with what meets them."""


def checked_classes(source: str) -> Iterator[str]:
    """The names that `isinstance` is asked about."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            for name in ast.walk(node.args[1]):
                if isinstance(name, (ast.Name, ast.Attribute)):
                    yield name.id if isinstance(name, ast.Name) else name.attr


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(ROOT)))
def test_fits_ask_for_capabilities_alone(path: pathlib.Path) -> None:
    if path.is_relative_to(ROOT / "fitting"):
        assert not CONCRETE & set(checked_classes(path.read_text(encoding="utf-8")))


def test_concrete_classes_would_be_seen() -> None:
    source = "isinstance(q, (Family, MeanFieldNormal)) and isinstance(m, models.HostModel)"
    assert CONCRETE & set(checked_classes(source)) == {"MeanFieldNormal", "HostModel"}


def test_files_are_short() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in PATHS}
    assert {path.name: length for path, length in lengths.items() if length > MAX_LINES} == {}


def test_functions_have_few_parameters() -> None:
    for path in PATHS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.Lambda)):
                arguments = node.args
                count = sum(map(len, (arguments.posonlyargs, arguments.args, arguments.kwonlyargs)))
                name = getattr(node, "name", "lambda")
                assert count <= MAX_PARAMETERS or name in PUBLIC, f"{path.name}: {name} has {count}"


def test_every_module_has_a_namesake_among_the_tests() -> None:
    """But for the paper and the benchmarks, which are tested by what they are made for."""
    for path in PATHS:
        name = path.relative_to(ROOT)
        if path.stem == "__init__" or name.parts[0] in ("paper", "bench") or str(name) in WITHOUT_BEHAVIOUR:
            continue
        namesake = TESTS / name.with_name(f"test_{path.stem.lstrip('_')}.py")
        assert namesake.exists(), f"{name} has no {namesake.relative_to(TESTS)}"
