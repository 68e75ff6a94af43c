"""Archives: what was written is read, whole or not at all, and nothing in it is run."""

import os
import pathlib
import pickle
import zipfile

import numpy as np
import pytest

from dlrd.fitting import archive

ARRAYS = {
    "floats": np.array([1.5, np.nan, -np.inf]),
    "whole": np.arange(6, dtype=np.int32).reshape(2, 3),
    "truths": np.array(True),
    "none": np.zeros((0, 4)),
}
DATA = {"name": "γ", "numbers": [1, 2.5], "nothing": None}


def test_what_was_written_is_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "folder" / "that is new" / "file.npz"
    archive.write(path, ARRAYS, DATA)
    arrays, data = archive.read(path)
    assert data == DATA
    assert list(arrays) == list(ARRAYS)
    for name, expected in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], expected, strict=True)


def test_second_write_replaces_the_first_and_leaves_no_other_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file.npz"
    archive.write(path, ARRAYS, DATA)
    archive.write(path, {}, {"second": True})
    assert archive.read(path) == ({}, {"second": True})
    assert list(tmp_path.iterdir()) == [path]


def test_crash_while_writing_leaves_the_file_before(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.npz"
    archive.write(path, ARRAYS, DATA)

    def crash(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(OSError, match="no space left"):
        archive.write(path, {}, {})
    assert archive.read(path)[1] == DATA


def test_file_holds_no_pickle(tmp_path: pathlib.Path) -> None:
    archive.write(tmp_path / "file.npz", ARRAYS, DATA)
    with zipfile.ZipFile(tmp_path / "file.npz") as file:
        assert file.testzip() is None
        for name in file.namelist():
            with file.open(name) as entry:
                np.lib.format.read_array(entry, allow_pickle=False)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        archive.write(tmp_path / "file.npz", {"object": np.array([object()])}, {})


@pytest.mark.parametrize("content", [b"something else", b"", pickle.dumps([1, 2])])
def test_other_files_are_refused(tmp_path: pathlib.Path, content: bytes) -> None:
    path = tmp_path / "file.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"file\.npz is not a file that dlrd wrote"):
        archive.read(path)


def test_archives_of_others_are_refused(tmp_path: pathlib.Path) -> None:
    np.savez(tmp_path / "file.npz", some=np.ones(2))
    with pytest.raises(ValueError, match=r"file\.npz is not a file that dlrd wrote"):
        archive.read(tmp_path / "file.npz")


def test_missing_file_is_said_to_be_missing(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        archive.read(tmp_path / "file.npz")
