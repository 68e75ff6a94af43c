"""What a new process does: it calls a tool twice, and writes down how long that took and what came out.

It is begun by `compare`, after the imports of the tool and nothing else.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np


def main(imported: float) -> None:
    """Measures what the process was told in its first argument.

    Args:
        imported: the time, by `time.monotonic`, at which the tool was imported.
    """
    told = json.loads(sys.argv[1])
    result = measure(told["tool"], told["problem"], Path(told["folder"]), told["seed"])
    Path(told["result"]).write_text(json.dumps({"imported": imported, **result}), encoding="utf-8")


def measure(tool: str, name: str, folder: Path, seed: int) -> dict[str, Any]:
    """Seconds of a first and of a second call, and the means and sds that the first gave."""
    from dlrd.bench.seconds.problems import problem
    from dlrd.bench.seconds.tools import TOOLS, Given

    with jax.enable_x64(True):
        solve, draws = TOOLS[tool].ready(Given(problem(folder, name), folder))
        times = [time.perf_counter()]
        answer = solve(seed)
        times.append(time.perf_counter())
        solve(seed + 1)
        times.append(time.perf_counter())
        found = draws(answer)
    return {
        "call": times[1] - times[0],
        "again": times[2] - times[1],
        "mean": np.mean(found, axis=0).tolist(),
        "std": np.std(found, axis=0).tolist(),
    }
