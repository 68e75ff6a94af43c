"""`dlrd bench seconds`: seconds until an answer, and how good it is, by the tools that one might pick."""

import importlib.util
import itertools
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from dlrd.bench.nuts import TARGETS
from dlrd.bench.posteriors.accuracy import errors_of_moments
from dlrd.bench.posteriors.models import Posterior
from dlrd.bench.seconds.figure import figure_of
from dlrd.bench.seconds.problems import PROBLEMS, problem, with_reference
from dlrd.bench.seconds.tools import TOOLS
from dlrd.bench.table import Column, Row, print_table, save_figure, write

BASELINE = "NumPyro NUTS"
MAX_SECONDS = 900
"""Of a process; one that takes longer counts as failed."""
TIMES = "process", "call", "again"
TIME_COLUMNS = [
    Column("process", "new process, seconds", ".2f"),
    Column("call", "of these, the call", ".2f"),
    Column("again", "second call", ".2f"),
]
COLUMNS = [
    Column("problem", "problem"),
    Column("dim", "d", "d"),
    Column("tool", "tool"),
    Column("mean_error", "mean error", ".3f"),
    Column("std_error", "sd error", ".3f"),
    Column("is_within", f"≤ {TARGETS[0]:g}, ≤ {TARGETS[1]:g}"),
    *TIME_COLUMNS,
]
OVERALL_COLUMNS = [
    Column("tool", "tool"),
    Column("within", f"mean error ≤ {TARGETS[0]:g}, sd error ≤ {TARGETS[1]:g}"),
    *TIME_COLUMNS,
    Column("call_ratio", "call, as a multiple of NUTS's", ".2f"),
    Column("again_ratio", "second call, as a multiple", ".3f"),
]


class Settings(NamedTuple):
    """What the part is told."""

    folder: Path  # of the nine posteriors
    out: Path  # results go to `seconds` in it
    num_repeats: int  # processes of each tool and problem
    tools: Sequence[str]  # names in `TOOLS`
    posteriors: Sequence[Posterior]  # without a reference where there is none in the folder


def settings(
    folder: Path, out: Path, num_repeats: int, tools: Sequence[str], problems: Sequence[str]
) -> Settings:
    """Reads what is wanted, all that is installed if nothing is named; raises an error with one sentence."""
    for what, names, known in (("tool", tools, TOOLS), ("problem", problems, PROBLEMS)):
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(f"a {what} must be one of: {'; '.join(known)}, got {'; '.join(unknown)}")
    missing = [name for name, tool in TOOLS.items() if importlib.util.find_spec(tool.package) is None]
    for name in set(tools) & set(missing):
        raise ValueError(f"a tool must be installed, {name} needs the package {TOOLS[name].package}")
    if missing and not tools:
        print(f"Left out, for they are not installed: {'; '.join(missing)}")
    with jax.enable_x64(True):
        posteriors = [problem(folder, name) for name in problems or PROBLEMS]
    return Settings(
        folder, out, num_repeats, tools or [name for name in TOOLS if name not in missing], posteriors
    )


def run(given: Settings) -> list[Row]:
    """Measures every tool on every problem, in turn, as often as told; prints, writes and draws it."""
    with jax.enable_x64(True):
        posteriors = [with_reference(posterior) for posterior in given.posteriors]
    rows, medians, together = [], [], []
    for repeat, posterior, tool in itertools.product(range(given.num_repeats), posteriors, given.tools):
        rows.append(_measured(given.folder, posterior, tool, repeat))
        print(_in_words(rows[-1]), flush=True)
        medians = summary(rows)
        together = overall(medians)
        kept = {"targets": TARGETS, "repeats": given.num_repeats, "summary": medians, "overall": together}
        write(given.out / "seconds", rows, **kept)
    print_table(f"Medians of {given.num_repeats}", COLUMNS, medians)
    print_table("All problems together, medians", OVERALL_COLUMNS, together)
    save_figure(figure_of(medians, TARGETS), given.out / "seconds")
    return medians


def _measured(folder: Path, posterior: Posterior, tool: str, repeat: int) -> dict[str, Any]:
    """One new process; of one that fails, what it said last."""
    row = {"problem": posterior.name, "dim": posterior.dim, "tool": tool, "repeat": repeat}
    unknown = dict.fromkeys((*TIMES, "mean_error", "std_error"), math.nan)
    with tempfile.TemporaryDirectory() as temporary:
        result = Path(temporary) / "result.json"
        told = {"tool": tool, "problem": posterior.name, "folder": str(folder), "seed": 2 * repeat}
        script = (
            f"import time; {TOOLS[tool].imports}; imported = time.monotonic(); "
            "from dlrd.bench.seconds import measured; measured.main(imported)"
        )
        command = [sys.executable, "-W", "ignore", "-c", script, json.dumps(told | {"result": str(result)})]
        started = time.monotonic()
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=MAX_SECONDS)
        except subprocess.CalledProcessError as error:
            return row | unknown | {"error": error.stderr.strip().rpartition("\n")[2]}
        except subprocess.TimeoutExpired:
            return row | unknown | {"error": f"not done after {MAX_SECONDS} seconds"}
        found = json.loads(result.read_text(encoding="utf-8"))
    mean_error, std_error = errors_of_moments(posterior, np.array(found["mean"]), np.array(found["std"]))
    # What lies between, reading data and writing the model down, is no tool's own.
    process = found["imported"] - started + found["call"]
    times = {"process": process, "call": found["call"], "again": found["again"]}
    return row | times | {"mean_error": mean_error, "std_error": std_error, "error": None}


def _in_words(row: Row) -> str:
    name = f"{row['problem']}, {row['tool']}"
    if row["error"] is not None:
        return f"{name}: {row['error']}"
    return f"{name}: {row['process']:.2f} s, again {row['again']:.2f} s"


def summary(rows: Sequence[Row]) -> list[Row]:
    """One row for the repeats of each problem and tool: medians of those that did not fail."""
    merged = []
    for names in dict.fromkeys((row["problem"], row["tool"]) for row in rows):
        group = [row for row in rows if (row["problem"], row["tool"]) == names]
        median = {key: _median(group, key) for key in (*TIMES, "mean_error", "std_error")}
        is_within = median["mean_error"] <= TARGETS[0] and median["std_error"] <= TARGETS[1]
        merged.append(
            {"problem": names[0], "dim": group[0]["dim"], "tool": names[1]}
            | median
            | {"is_within": is_within, "failed": sum(row["error"] is not None for row in group)}
        )
    return merged


def overall(medians: Sequence[Row]) -> list[Row]:
    """One row for each tool, over the problems."""
    baseline = {row["problem"]: row for row in medians if row["tool"] == BASELINE}
    merged = []
    for tool in dict.fromkeys(row["tool"] for row in medians):
        group = [row for row in medians if row["tool"] == tool]
        ratios = [
            {key: row[key] / baseline[row["problem"]][key] for key in TIMES}
            for row in group
            if row["problem"] in baseline
        ]
        merged.append(
            {"tool": tool, "within": f"{sum(row['is_within'] for row in group)} of {len(group)}"}
            | {key: _median(group, key) for key in TIMES}
            | {f"{key}_ratio": _median(ratios, key) for key in TIMES}
        )
    return merged


def _median(rows: Sequence[Row], key: str) -> float:
    known = [row[key] for row in rows if not math.isnan(row[key])]
    return statistics.median(known) if known else math.nan
