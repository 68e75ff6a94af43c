"""Data files: what they give, and what is said about those that cannot be read."""

from pathlib import Path

import numpy as np
import pytest

from dlrd.command.data import read_data
from dlrd.command.ends import UserError


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=np.eye(2), num=np.array(3), groups=np.array([0, 1]))
    data = read_data(path)
    assert data["x"].tolist() == [[1, 0], [0, 1]]
    assert data["groups"].dtype.kind == "i"
    assert data["num"] == 3
    assert type(data["num"]) is int  # so that it can be the length of something


def test_json(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text('{"y": [1, 2.5], "num": 2, "names": ["a", "b"], "is_known": [true, false]}')
    data = read_data(path)
    assert data["y"].tolist() == [1, 2.5]
    assert data["num"] == 2
    assert data["names"].tolist() == ["a", "b"]
    assert data["is_known"].dtype == bool


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("school, y,sigma\n\nA,28,15.0\nB,8,1e1\n", encoding="utf-8-sig")  # as Excel writes it
    data = read_data(path)
    assert data["school"].tolist() == ["A", "B"]
    assert data["y"].tolist() == [28, 8]
    assert data["y"].dtype.kind == "i"
    assert data["sigma"].tolist() == [15, 10]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("data.txt", "", "data must be in a file that ends in .npz or .json or .csv, got data.txt"),
        ("data.npz", "no zip", "data.npz: must be a file that np.savez wrote"),
        ("data.json", "{", "data.json cannot be read as json (JSONDecodeError: Expecting property name"),
        ("data.json", "[1]", 'data.json: must hold named entries, as {"y": [1, 2]}, got a list'),
        ("data.json", '{"y": [[1], [2, 3]]}', "data.json: y must be an array, got rows of different lengths"),
        ("data.json", '{"y": [null]}', "data.json: y must have numbers or texts, got entries of type object"),
        ("data.csv", "", "data.csv: must have a line of names, and lines of data below"),
        ("data.csv", "x,y\n1,2\n3\n", "data.csv: row 2 must have 2 entries, as the names, got 1"),
        ("data.csv", "x\n1\nNA\n", "data.csv: x must have numbers in all rows, got 'NA' in row 2"),
    ],
)
def test_what_cannot_be_read_is_told(
    name: str, text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    with pytest.raises(UserError) as caught:
        read_data(Path(name))
    assert str(caught.value).startswith(told)


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=np.array([{}]))
    with pytest.raises(
        UserError, match=r"cannot be read as npz \(ValueError: Object arrays cannot be loaded"
    ):
        read_data(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file .*data\.npz"):
        read_data(tmp_path / "data.npz")
