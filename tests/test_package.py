"""The package as a whole: its names, and what importing it does."""

import subprocess
import sys

import pytest

import dlrd


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_all_names_are_there() -> None:
    assert [name for name in dlrd.__all__ if not hasattr(dlrd, name)] == []
    assert set(dlrd.__all__) <= set(dir(dlrd))
    with pytest.raises(AttributeError, match="module 'dlrd' has no attribute 'nothing'"):
        dlrd.nothing  # noqa: B018 - the access is the test


def test_import_is_lazy() -> None:
    """`import dlrd` alone does not even import jax; the public names need neither rich nor matplotlib."""
    assert run("import dlrd, sys; print('jax' in sys.modules)") == "False\n"
    heavy = ("rich", "matplotlib", "scipy.special", "typer", "sklearn", "numpyro", "flowjax", "arviz")
    assert run(f"from dlrd import *; import sys; print([m for m in {heavy} if m in sys.modules])") == "[]\n"


def test_import_changes_no_setting() -> None:
    code = """
import jax, logging, warnings
def settings():
    return dict(jax.config.values), logging.getLogger().handlers[:], warnings.filters[:]
import optax, equinox
before = settings()
from dlrd import *
print(settings() == before)
"""
    assert run(code) == "True\n"
