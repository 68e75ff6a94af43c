"""Data for a model function: named numbers and arrays from a file."""

import contextlib
import csv
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dlrd.command.ends import UserError, last_words

Data = dict[str, Any]
"""Arrays by name; single numbers are plain ones, so that they can be lengths."""


def read_data(path: Path) -> Data:
    """The entries of an npz or json file, or the columns of a csv file, by name."""
    if path.suffix not in _READERS:
        raise UserError(f"data must be in a file that ends in {' or '.join(_READERS)}, got {path}")
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    try:
        return {name: _plain(name, value) for name, value in _READERS[path.suffix](path).items()}
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        kind = path.suffix.removeprefix(".")
        raise UserError(f"{path} cannot be read as {kind} ({last_words(error)})") from error


def _read_npz(path: Path) -> Data:
    if not zipfile.is_zipfile(path):
        raise UserError("must be a file that np.savez wrote")
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def _read_json(path: Path) -> Data:
    given = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(given, dict):
        raise UserError(f'must hold named entries, as {{"y": [1, 2]}}, got a {type(given).__name__}')
    return given


def _read_csv(path: Path) -> Data:
    with path.open(encoding="utf-8-sig", newline="") as file:
        head, *rows = [row for row in csv.reader(file) if row] or [[]]
    if not rows:
        raise UserError("must have a line of names, and lines of data below")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(head):
            raise UserError(f"row {number} must have {len(head)} entries, as the names, got {len(row)}")
    columns = zip(*rows, strict=True)
    return {name.strip(): _column(name.strip(), column) for name, column in zip(head, columns, strict=True)}


def _column(name: str, entries: tuple[str, ...]) -> np.ndarray:
    """Whole numbers if all are, else floats, or text if none is a number."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return np.array([kind(entry) for entry in entries])
    texts = [number for number, entry in enumerate(entries, start=1) if not _is_number(entry)]
    if len(texts) < len(entries):
        row = texts[0]
        raise UserError(f"{name} must have numbers in all rows, got {entries[row - 1]!r} in row {row}")
    return np.array(entries)


def _is_number(entry: str) -> bool:
    try:
        float(entry)
    except ValueError:
        return False
    return True


def _plain(name: str, value: Any) -> Any:
    """An entry as an array, or as one number."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise UserError(f"{name} must be an array, got rows of different lengths") from None
    if array.dtype.kind not in "biufU":
        raise UserError(f"{name} must have numbers or texts, got entries of type {array.dtype}")
    return array.item() if array.ndim == 0 else array


_READERS: dict[str, Callable[[Path], Data]] = {".npz": _read_npz, ".json": _read_json, ".csv": _read_csv}
