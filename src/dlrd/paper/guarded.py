"""What the guard did: false alarms in the paper's experiments, and the runs that it saved."""

from dataclasses import dataclass

import numpy as np

from dlrd.paper.experiments.batch import Results
from dlrd.paper.experiments.spec import EXTREME_RATES

NEAR = 2.0
"""A run is near the best if it ends within this factor of it."""


@dataclass(frozen=True)
class Share:
    """Of the runs of one problem and optimiser, how many end near the best of them all."""

    problem: str
    optimizer: str
    num_runs: int
    alone: int
    guarded: int
    num_lost_alone: int  # runs that end a thousand times as far off, or nowhere
    num_lost_guarded: int


def false_alarms(found: dict[str, Results]) -> tuple[int, dict[str, int]]:
    """Guarded runs of all experiments but those that are to diverge; and where and how often it went back."""
    num_runs, resets = 0, dict[str, int]()
    for name, results in found.items():
        if not results.batch.has_guard or "guarded" in name:
            continue
        for setting, of_setting in zip(results.batch.settings, results.resets, strict=True):
            num_runs += len(of_setting)
            where = f"{name}, {setting.rule}, rate {setting.rate:g}"
            resets |= {where: sum(map(len, of_setting))} if any(map(len, of_setting)) else {}
    return num_runs, resets


def in_words(resets: dict[str, int]) -> str:
    """Where the guard went back: "never", or in which experiments and how often."""
    return "; ".join(f"{num} × in {where}" for where, num in resets.items()) or "never"


def shares(found: dict[str, Results]) -> list[Share]:
    """A row for each problem and optimiser of the experiment on divergence."""
    rows = []
    for name, guarded in found.items():
        alone = found.get(name.replace("guarded", "alone"))
        if alone is None or alone is guarded or len(guarded.batch.settings) != len(EXTREME_RATES):
            continue
        ends = [np.nan_to_num(each.error[:, :, -1], nan=np.inf) for each in (alone, guarded)]
        # The best rate by its median over the seeds: a single lucky run is no measure.
        best = min(float(np.median(end, axis=1).min()) for end in ends)
        near = [int(np.sum(end <= NEAR * best)) for end in ends]
        lost = [int(np.sum(end > 1000 * best)) for end in ends]
        batch = guarded.batch
        rows.append(Share(batch.problem, batch.optimizer, ends[0].size, *near, *lost))
    return rows
