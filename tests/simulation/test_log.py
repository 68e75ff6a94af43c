"""The log of runs: what comes back, what a crash leaves, whose it is."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrd.simulation.log import Log, Record, _as_data, _as_record, read
from dlrd.simulation.run import Answer, Question, Status

NAMES = ["a", "b"]
GOOD = Record(
    Question(np.array([0.1, 1e-300]), True, np.array([[1 / 3]])),
    Answer(Status.OK, 0.25, "host:7", np.array([[math.pi]]), np.array([5e-324, -0.0])),
    1e9 + 0.1,
)
BAD = Record(Question(np.array([1.0, 2.0])), Answer(Status.TIME, 3.0, message="took too long"), 1e9)


def same(one: Record, other: Record) -> bool:
    return json.dumps(_as_data(one)) == json.dumps(_as_data(other))


def test_comes_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "runs.jsonl"
    log = Log(path, NAMES, "p")
    for record in (GOOD, BAD):
        log.add(record)
        names, records = read(path)  # while it is open
    assert names == NAMES
    assert same(records[0], GOOD)
    assert same(records[1], BAD)
    assert records[0].answer.gradient is not None
    assert records[0].answer.gradient.tobytes() == np.array([5e-324, -0.0]).tobytes()
    log.close()
    again = Log(path, NAMES, "p")
    assert len(again.records) == 2
    again.add(GOOD)
    again.close()
    assert len(read(path)[1]) == 3


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_all_numbers_round_trip(numbers: list[float]) -> None:
    record = Record(Question(np.array(numbers)), Answer(Status.OK, 1.0, outputs=np.array(numbers)), 0.0)
    found = _as_record(json.loads(json.dumps(_as_data(record))))
    assert found.question.parameters.tobytes() == np.array(numbers).tobytes()


def test_wherever_a_crash_tears_it_the_rest_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    log = Log(path, NAMES, "p")
    for _ in range(2):
        log.add(GOOD)
    log.close()
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(ends[1], len(whole)):
        path.write_bytes(whole[:size])
        assert len(read(path)[1]) == 1
    log = Log(path, NAMES, "p")  # cuts the torn line off
    assert len(log.records) == 1
    log.add(BAD)
    log.close()
    assert [each.is_good for each in read(path)[1]] == [True, False]


@pytest.mark.parametrize("size", [0, 5])
def test_torn_before_the_first_run(tmp_path: Path, size: int) -> None:
    path = tmp_path / "runs.jsonl"
    Log(path, NAMES, "p").close()
    path.write_bytes(path.read_bytes()[:size])
    log = Log(path, NAMES, "p")
    log.add(GOOD)
    log.close()
    assert len(read(path)[1]) == 1


def test_damage_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    log = Log(path, NAMES, "p")
    for _ in range(3):
        log.add(GOOD)
    log.close()
    path.write_bytes(path.read_bytes().replace(b"0.25", b"0.52", 1))
    with pytest.raises(ValueError, match=r"line 2 of .* is damaged; without that line, its run is repeated"):
        read(path)


def test_another_problem_is_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    Log(path, NAMES, "p").close()
    with pytest.raises(ValueError, match=r"log of another problem \(problem was p, and is q\)"):
        Log(path, NAMES, "q")
    with pytest.raises(ValueError, match=r"names was \['a', 'b'\], and is \['a'\]"):
        Log(path, ["a"], "p")
    other = tmp_path / "other.jsonl"
    other.write_text("{}\n{}\n")
    with pytest.raises(ValueError, match="damaged"):
        Log(other, NAMES, "p")


def test_one_writes_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    log = Log(path, NAMES, "p")
    with pytest.raises(ValueError, match="is being written by another process"):
        Log(path, NAMES, "p")
    log.close()
    Log(path, NAMES, "p").close()
