"""Timings that are compared with each other: interleaved, repeated, medians."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from dlrd.bench.table import Column

COLUMNS = [
    Column("what", "what"),
    Column("baseline", "against"),
    Column("ours", "ours"),
    Column("theirs", "theirs"),
    Column("ratio", "ratio"),
    Column("reach", "reach"),
    Column("is_reached", ""),
]
"""Of a table of comparisons."""


@dataclass(frozen=True)
class Row:
    """One comparison of a benchmark."""

    what: str
    baseline: str
    ours: float
    theirs: float
    unit: str
    reach: float  # the ratio to reach
    is_speedup: bool  # whether the ratio is theirs/ours, to be at least `reach`; else ours/theirs, at most

    @property
    def ratio(self) -> float:
        return self.theirs / self.ours if self.is_speedup else self.ours / self.theirs

    @property
    def is_reached(self) -> bool:
        return self.ratio >= self.reach if self.is_speedup else self.ratio <= self.reach

    @property
    def ratio_in_words(self) -> str:
        return f"{self.ratio:.2f} ×" + (" as fast" if self.is_speedup else "")

    @property
    def reach_in_words(self) -> str:
        return f"{'≥' if self.is_speedup else '≤'} {self.reach:g}"


def in_words(row: Row) -> dict[str, str | bool]:
    """A comparison as a row of the table."""
    return {
        "what": row.what,
        "baseline": row.baseline,
        "ours": f"{row.ours:.3g} {row.unit}",
        "theirs": f"{row.theirs:.3g} {row.unit}",
        "ratio": row.ratio_in_words,
        "reach": row.reach_in_words,
        "is_reached": row.is_reached,
    }


def rows_of_rule(rule: str, baseline: str, size: int, milliseconds: dict[str, float]) -> list[Row]:
    """A step with the rule for many parameters, exact and with a sample of them, beside a fixed rate."""
    kinds = [("exact rule", "exact", 3.0), ("10,000 of them tracked", "sampled", 1.1)]
    return [
        Row(
            f"{rule}, {size:.0e} parameters, {label}, a step",
            baseline,
            milliseconds[name],
            milliseconds["fixed"],
            "ms",
            reach=reach,
            is_speedup=False,
        )
        for label, name, reach in kinds
    ]


def seconds(fn: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    fn()
    return time.perf_counter() - started


def interleaved(
    functions: dict[str, Callable[[], object]], repeats: int, pause: float = 0.0
) -> dict[str, float]:
    """The median seconds of each function, called in turn `repeats` times after one call to warm up.

    A pause before each call lets the threads of the one before, which may wait in a busy loop, go to sleep.
    """
    for fn in functions.values():
        fn()
    times = []
    for _ in range(repeats):
        row = {}
        for name, fn in functions.items():
            time.sleep(pause)
            row[name] = seconds(fn)
        times.append(row)
    return {name: statistics.median(each[name] for each in times) for name in functions}


def paired(ours: Callable[[], object], theirs: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Seconds of two functions that take about the same, after one call of each to warm up.

    Called in turn, either one first every other time. A machine that changes its speed changes it for both
    calls of a pair: the first number is the second, a median, times the median of the pairs' ratios.
    """
    ours()
    theirs()
    pairs = []
    for index in range(repeats):
        order = (ours, theirs) if index % 2 else (theirs, ours)
        times = {fn: seconds(fn) for fn in order}
        pairs.append((times[ours], times[theirs]))
    baseline = statistics.median(other for _, other in pairs)
    return baseline * statistics.median(one / other for one, other in pairs), baseline
