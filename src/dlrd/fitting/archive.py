"""Arrays and plain data in one file, written whole or not at all, and read without pickle."""

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

_DATA = "data.json"


def write(path: Path, arrays: dict[str, np.ndarray], data: dict[str, Any]) -> None:
    """Writes an archive; a crash at any moment leaves the file that was there before, or the new one."""
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(data).encode(), dtype=np.uint8)
    np.savez(buffer, allow_pickle=False, **{_DATA: text}, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("wb") as file:
        file.write(buffer.getbuffer())
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the data of an archive."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        data = json.loads(arrays.pop(_DATA).tobytes())
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is not a file that dlrd wrote ({error})") from error
    return arrays, data
