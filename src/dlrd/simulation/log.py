"""Every run, kept: in memory, and in a file to which lines are added and nothing else.

A line is a JSON object with a checksum. The first says what the runs are of; each other is a run. What a
crash has left of a line is cut off by the next one who writes; readers leave it out. Numbers come back bit
for bit.
"""

import fcntl
import json
import os
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from dlrd.simulation.run import Answer, Question, Status

FORMAT = 1
SYNC_SECONDS = 1.0
"""How long a run may be known to the system alone, and not to the disk."""
_HEAD = '{"check":"'
"""A line begins so, eight digits and '",' follow."""


class Record(NamedTuple):
    """A run, as it is kept."""

    question: Question
    answer: Answer
    began: float  # when, in seconds since 1970

    @property
    def is_good(self) -> bool:
        return self.answer.status is Status.OK


class Log:
    """All runs so far, in order, and a file for them if a path is given.

    Args:
        path: of the file; goes on with it if it is there.
        names: of the parameters.
        problem: what makes gradients of one problem those of another, as a text to compare.
    """

    def __init__(self, path: Path | None = None, names: Sequence[str] = (), problem: str = ""):
        self.records: list[Record] = []
        self.path = path
        self._file: IO[bytes] | None = None
        self._synced = time.monotonic()
        if path is not None:
            header = {"format": FORMAT, "names": list(names), "problem": problem}
            self._file = _opened(path, header)
            self.records = read(path)[1]

    def add(self, record: Record) -> None:
        """Keeps a run; in the file before this returns, on the disk within a second."""
        self.records.append(record)
        if self._file is None:
            return
        self._file.write(_line(_as_data(record)))
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Waits until all is on the disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()

    def close(self) -> None:
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None


def read(path: Path) -> tuple[list[str], list[Record]]:
    """The names of the parameters and the runs so far; also while somebody writes."""
    header, *others = _objects(path)[0] or [{}]
    if header.get("format") != FORMAT:
        raise ValueError(f"{path} is not a log of runs of format {FORMAT}, got {header.get('format')}")
    return header["names"], [_as_record(each) for each in others]


def _opened(path: Path, header: dict[str, Any]) -> IO[bytes]:
    """The file, to be added to: new, or of the same problem and whole, and nobody else's meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("ab", buffering=0)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _made_whole(file, path, header)
    except BlockingIOError as error:
        file.close()
        raise ValueError(
            f"{path} is being written by another process; give this one a log of its own"
        ) from error
    except BaseException:
        file.close()
        raise
    return file


def _made_whole(file: IO[bytes], path: Path, header: dict[str, Any]) -> None:
    """Cuts off what a crash has left, and begins a log that has not begun."""
    objects, size = _objects(path)
    file.truncate(size)
    if not objects:
        file.write(_line(header))
    elif objects[0] != header:
        what = next((key for key in header if header[key] != objects[0].get(key)), "format")
        raise ValueError(
            f"{path} is the log of another problem ({what} was {objects[0].get(what)}, and is "
            f"{header[what]}); give this one a log of its own"
        )


def _objects(path: Path) -> tuple[list[dict[str, Any]], int]:
    """What the whole lines of a file hold, and how many bytes these are."""
    objects: list[dict[str, Any]] = []
    size, lines = 0, path.read_bytes().split(b"\n")[:-1]  # without what has no end yet
    for number, line in enumerate(lines, 1):
        found = _checked(line)
        if found is None:
            if number == len(lines):  # a crash tears the last line alone
                break
            raise ValueError(f"line {number} of {path} is damaged; without that line, its run is repeated")
        objects.append(found)
        size += len(line) + 1
    return objects, size


def _line(data: dict[str, Any]) -> bytes:
    body = json.dumps(data, separators=(",", ":"))
    return f'{_HEAD}{zlib.crc32(body.encode()):08x}",{body[1:]}\n'.encode()


def _checked(line: bytes) -> dict[str, Any] | None:
    """What a line holds; None if it is not whole."""
    head, body = line[: len(_HEAD)], b"{" + line[len(_HEAD) + 10 :]
    check = line[len(_HEAD) : len(_HEAD) + 8]
    if head != _HEAD.encode() or check != f"{zlib.crc32(body):08x}".encode():
        return None
    return json.loads(body)


def _as_data(record: Record) -> dict[str, Any]:
    question, answer = record.question, record.answer
    arrays = {
        "parameters": question.parameters,
        "sensitivity": question.sensitivity,
        "outputs": answer.outputs,
        "gradient": answer.gradient,
    }
    return {
        "began": record.began,
        "seconds": answer.seconds,
        "status": answer.status.value,
        "worker": answer.worker,
        **({"message": answer.message} if answer.message else {}),
        **({"asked": "gradient"} if question.has_gradient else {}),
        **{name: np.asarray(each).tolist() for name, each in arrays.items() if each is not None},
    }


def _as_record(data: dict[str, Any]) -> Record:
    def array(name: str) -> Any:
        return np.array(data[name], float) if name in data else None

    question = Question(array("parameters"), data.get("asked") == "gradient", array("sensitivity"))
    answer = Answer(
        Status(data["status"]),
        data["seconds"],
        data["worker"],
        array("outputs"),
        array("gradient"),
        data.get("message", ""),
    )
    return Record(question, answer, data["began"])
