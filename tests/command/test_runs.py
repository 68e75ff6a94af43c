"""`dlrd runs`: what it prints and draws, from a log that is still being written."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from typer.testing import Result

from dlrd.simulation.log import Log, Record
from dlrd.simulation.run import Answer, Question, Status

Invoke = Callable[..., Result]


def some_log(path: Path) -> Log:
    """Forty runs; those of large x fail."""
    log = Log(path, ["x", "y"], "p")
    for i in range(40):
        is_good = i % 4 != 3
        point = np.array([float(i if is_good else 100 + i), -1.0])
        answer = (
            Answer(Status.OK, 0.25, f"host:{i % 2}", np.ones(1))
            if is_good
            else Answer(Status.EXIT, 0.5, message="exit code 3. buckled")
        )
        log.add(Record(Question(point), answer, 1.7e9 + i))
    return log


def test_counts_the_newest_where_they_failed_and_a_picture(invoke: Invoke, tmp_path: Path) -> None:
    log = some_log(tmp_path / "runs.jsonl")
    done = invoke("runs", "runs.jsonl", "--last", "3")
    log.close()
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("40 runs, 10 failed, by 2 process(es), ")
    assert lines[1] == "Seconds a run: mean 0.25, longest 0.25."
    assert lines[2] == "Failed: exit code 10."
    assert lines[3] == "Where: runs fail where x ≥ 103 (10 of 10), and elsewhere in 0 of 30."
    assert lines[5].split() == ["run", "began", "seconds", "status", "x", "y"]
    assert [line.split()[0] for line in lines[6:9]] == ["38", "39", "40"]
    assert lines[8].endswith("139  -1  exit code 3. buckled")
    assert lines[-1] == "Wrote runs.jsonl.png."
    assert (tmp_path / "runs.jsonl.png").read_bytes().startswith(b"\x89PNG")


def test_says_what_is_wrong(invoke: Invoke, tmp_path: Path) -> None:
    assert invoke("runs", "nowhere.jsonl").stderr == "Error: there is no file nowhere.jsonl\n"
    (tmp_path / "other.jsonl").write_text("something\nelse\n")
    done = invoke("runs", "other.jsonl")
    assert done.exit_code == 2
    assert "line 1 of other.jsonl is damaged" in done.stderr
    Log(tmp_path / "empty.jsonl", ["x"], "p").close()
    assert invoke("runs", "empty.jsonl").stderr == "Error: empty.jsonl has no runs yet\n"
    log = some_log(tmp_path / "runs.jsonl")
    log.close()
    done = invoke("runs", "runs.jsonl", "--out", "picture.nonsense")
    assert "the picture could not be written" in done.stderr
