"""Finding what the user names."""

import sys
from pathlib import Path

import pytest

from dlrd.command.ends import UserError
from dlrd.command.targets import find, is_whole


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a file and a package in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name in ("beside", "project", "project.part"):  # of an earlier test's folder
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "beside.py").write_text("LENGTH = 3\n")
    (tmp_path / "files" / "json.py").write_text(
        "from beside import LENGTH\n\ndef one():\n    return LENGTH\n"
    )
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "__init__.py").write_text("")
    (tmp_path / "project" / "part.py").write_text("def two():\n    pass\n")
    return tmp_path


def told(text: str) -> str:
    with pytest.raises(UserError) as caught:
        find(text)
    return str(caught.value)


def test_a_file_may_import_what_lies_beside_it() -> None:
    """And may be called as it likes."""
    import json

    target = find("files/json.py:one")
    assert (target.text, target.thing()) == ("files/json.py:one", 3)
    assert Path(target.file) == Path("files/json.py").absolute()
    assert sys.modules["json"] is json


def test_a_module() -> None:
    assert find("project.part:two").thing.__name__ == "two"
    assert find("dlrd.models:HostModel").thing.__name__ == "HostModel"


def test_whole_models(models: Path) -> None:
    assert is_whole(find(f"{models}:counted").thing)
    assert not is_whole(find(f"{models}:Scales").thing)
    assert not is_whole(find(f"{models}:normal").thing)


@pytest.mark.parametrize("text", ["model.py", "model.py:", ":name", "model.py:a b", "model.py:a.b"])
def test_how_a_model_is_named(text: str) -> None:
    assert told(text) == f"a model is named as my_model.py:name or package.module:name, got {text}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nowhere.py:one", "there is no file nowhere.py"),
        (
            "files/json:one",
            "there is no module files/json; a file is named with its ending, as my_model.py:name",
        ),
        ("project.other:one", "there is no module project.other; a file is named with its ending"),
        ("no_project.other:one", "there is no module no_project.other; a file is named with its ending"),
        ("project.part:too", "project.part has no too; it has two"),
        ("files/beside.py:one", "files/beside.py has no one; it has nothing to be fitted"),
    ],
)
def test_what_is_not_there_is_told(text: str, sentence: str) -> None:
    assert told(text).startswith(sentence)


def test_names_that_may_have_been_meant(models: Path) -> None:
    """Functions and models of the file's own, not what it imports, counts or hides."""
    assert told(f"{models}:norml").endswith(
        "has no norml; it has normal, measured, walled, broken, Scales, scales, counted"
    )


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("x = 1\ny = x / 0\n", "bad.py failed: ZeroDivisionError: division by zero, on line 2"),
        (
            "import math\n\nmath.sqrt('1')\n",
            "bad.py failed: TypeError: must be real number, not str, on line 3",
        ),
        ("def f(:\n", "bad.py failed: SyntaxError: invalid syntax (bad.py, line 1)"),
        ("import no_such_library\n", "bad.py needs no_such_library, which is not installed"),
        ("raise ValueError\n", "bad.py failed: ValueError, on line 1"),
    ],
)
def test_a_file_that_fails_is_told_in_its_own_words(source: str, sentence: str) -> None:
    Path("bad.py").write_text(source)
    assert told("bad.py:f") == sentence


def test_a_module_that_fails() -> None:
    Path("project/bad.py").write_text("import project.part\nproject.part.three\n")
    assert told("project.bad:f") == (
        "project.bad failed: AttributeError: module 'project.part' has no attribute 'three', on line 2"
    )
