"""A program that is started for each run, in a folder of its own, with its inputs and outputs in files."""

import csv
import json
import re
import string
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dlrd.checks import shown
from dlrd.simulation.run import MAX_MESSAGE, RunError, Status

STDOUT = "stdout"
"""What is read, in place of a file: numbers that the program prints."""
Reader = Callable[[Path], Any]
"""The folder of a run to the outputs, or to these and their Jacobian."""


class Command:
    """A function of the parameters that starts a program; made by `dlrd.models.command`.

    Args:
        arguments: the program and its arguments.
        inputs: texts of files by their names.
        read: how the outputs are read.
        names: of the parameters, in texts and arguments.
    """

    def __init__(
        self, arguments: Sequence[str], inputs: Mapping[str, str], read: str | Reader, names: Sequence[str]
    ):
        self.arguments = list(arguments)
        self.inputs = dict(inputs)
        self.read = read
        self.names = list(names)

    def with_names(self, names: Sequence[str]) -> "Command":
        """The same for parameters of these names: x, or x_0, x_1, … for the entries x[0], x[1], …"""
        plain = [re.sub(r"\W+", "_", name).strip("_") for name in names]
        for text in [*self.arguments, *self.inputs.values()]:
            unknown = set(string.Template(text).get_identifiers()) - set(plain)
            if unknown:
                raise ValueError(
                    f"a command may ask for the parameters {', '.join(plain)} alone, got "
                    f"${sorted(unknown)[0]}; a dollar sign of its own is written $$"
                )
        return Command(self.arguments, self.inputs, self.read, plain)

    def __call__(self, parameters: Float[np.ndarray, " dim"]) -> Any:
        # The shortest text from which the same number is read.
        values = dict(zip(self.names, map(repr, parameters.tolist()), strict=True))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for file, text in self.inputs.items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(string.Template(text).substitute(values), encoding="utf-8")
            arguments = [string.Template(each).substitute(values) for each in self.arguments]
            done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, errors="replace")
            if done.returncode:
                said = (done.stderr or done.stdout).strip()[-MAX_MESSAGE:]
                raise RunError(Status.EXIT, f"exit code {done.returncode}. {said}".strip())
            if callable(self.read):
                return self.read(folder)
            if self.read == STDOUT:
                return np.array(done.stdout.replace(",", " ").split(), float)
            return read_file(folder, self.read)


def read_file(folder: Path, text: str) -> Float[np.ndarray, "..."]:
    """Numbers from a file, as `out.csv:u`: the column u; of JSON and npz, the entry; without a name, all.

    Args:
        folder: where the file is.
        text: its name, and after a colon that of what is wanted; several are joined with commas.
    """
    name, _, wanted = text.partition(":")
    path, keys = folder / name, [key for key in wanted.split(",") if key]
    if not path.exists():
        raise RunError(Status.RAISED, f"the program has written no {name}")
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            entries: Any = dict(arrays)
    elif path.suffix == ".json":
        entries = json.loads(path.read_text(encoding="utf-8"))
    else:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, skipinitialspace=True))
        entries = {key: [row[key] for row in rows] for key in (rows[0] if rows else {})}
    if not isinstance(entries, dict):
        return np.array(entries, float)
    missing = [key for key in keys if key not in entries]
    if missing:
        raise RunError(Status.RAISED, f"{name} has no {missing[0]}; it has {', '.join(entries)}")
    return np.concatenate([np.ravel(np.array(entries[key], float)) for key in keys or entries])


def checked_command(arguments: Any, inputs: Mapping[str, Any] | None, read: Any) -> Command:
    """The command, once it is sure that it can be started; a program is found from where this is called."""
    if isinstance(arguments, str) or not arguments:
        raise TypeError(f'arguments must be a list, as ["./beam", "$force"], got {shown(arguments)}')
    program, *others = map(str, arguments)
    if "/" in program:
        if not Path(program).is_file():
            raise ValueError(f"the program of a command must be there, got {program}")
        program = str(Path(program).resolve())
    texts = {}
    for name, given in (inputs or {}).items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"inputs must be files in the folder of a run, got {name}")
        texts[name] = given.read_text(encoding="utf-8") if isinstance(given, Path) else str(given)
    known = (".csv", ".json", ".npz")
    if not callable(read) and read != STDOUT and Path(str(read).partition(":")[0]).suffix not in known:
        raise ValueError(
            'read must be a function of the folder, "stdout", or a csv, json or npz file, as "out.csv:u"; '
            f"got {shown(read)}"
        )
    return Command([program, *others], texts, read, ())
