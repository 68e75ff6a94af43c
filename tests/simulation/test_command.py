"""Programs with files."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlrd.simulation.command import checked_command
from dlrd.simulation.run import RunError, Status

PROGRAM = """
import json, sys
import numpy as np
given = dict(line.split("=") for line in open("deck/in.txt"))
k, first, second = (float(given[name]) for name in ("k", "first", "second"))
u = [k * first, k * second]
open("out.csv", "w").write("t, u\\n" + "".join(f"{i}, {each!r}\\n" for i, each in enumerate(u)))
json.dump({"u": u, "k": k}, open("out.json", "w"))
json.dump(u, open("list.json", "w"))
np.savez("out.npz", u=np.array([u]), k=k)
print(*u, sep=", ")
if len(sys.argv) > 1:
    sys.exit(f"argument {sys.argv[1]}")
"""
DECK = "k=$k\nfirst=$x_0\nsecond=${x_1}\n"
POINT = np.array([0.1, 3.0, 1 / 3])


def run(read: Any, *arguments: str) -> Any:
    made = checked_command([sys.executable, "-c", PROGRAM, *arguments], {"deck/in.txt": DECK}, read)
    return made.with_names(["k", "x[0]", "x[1]"])(POINT)


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        ("stdout", POINT[0] * POINT[1:]),
        ("out.csv:u", POINT[0] * POINT[1:]),
        ("out.csv:u,t", [*(POINT[0] * POINT[1:]), 0, 1]),
        ("out.json:u", POINT[0] * POINT[1:]),
        ("list.json", POINT[0] * POINT[1:]),
        ("out.npz:k,u", [POINT[0], *(POINT[0] * POINT[1:])]),
        (lambda folder: json.loads((folder / "out.json").read_text())["u"], POINT[0] * POINT[1:]),
    ],
    ids=range(7),
)
def test_outputs_are_read_bit_for_bit(read: Any, expected: Any) -> None:
    np.testing.assert_array_equal(run(read), expected)


def test_exit_codes() -> None:
    with pytest.raises(RunError, match=r"exit code 1. argument 3.0") as raised:
        run("stdout", "$x_0")
    assert raised.value.status is Status.EXIT


@pytest.mark.parametrize(
    ("read", "message"),
    [("no.csv:u", "the program has written no no.csv"), ("out.csv:v", "out.csv has no v; it has t, u")],
)
def test_outputs_that_are_not_there(read: str, message: str) -> None:
    with pytest.raises(RunError, match=message):
        run(read)


def test_templates_from_files_and_programs_by_their_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("program").write_text("#!/bin/sh\ncat in.txt\n")
    Path("program").chmod(0o755)
    Path("template").write_text("$a $$5 2")
    made = checked_command(["./program"], {"in.txt": Path("template")}, "stdout").with_names(["a"])
    monkeypatch.chdir("/")
    with pytest.raises(ValueError, match=r"\$5"):
        made(np.array([1.5]))
    made.inputs["in.txt"] = "$a 2"
    np.testing.assert_array_equal(made(np.array([1.5])), [1.5, 2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: checked_command("./beam", {}, "stdout"), r"arguments must be a list, as \["),
        (lambda: checked_command(["./nowhere"], {}, "stdout"), "must be there, got ./nowhere"),
        (lambda: checked_command(["ls"], {"../in": ""}, "stdout"), "in the folder of a run, got ../in"),
        (lambda: checked_command(["ls"], {}, "out.txt"), "read must be a function of the folder"),
        (
            lambda: checked_command(["ls", "$y"], {}, "stdout").with_names(["x"]),
            r"for the parameters x alone, got \$y; a dollar sign of its own is written \$\$",
        ),
    ],
    ids=range(5),
)
def test_says_what_is_wrong(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()
