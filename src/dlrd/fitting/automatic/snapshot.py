"""The state of an automatic fit as a snapshot for its checkpoint, and back."""

from typing import Any

import equinox as eqx
import jax
import numpy as np

from dlrd.families import Family, HasCouplings, Refinable, Startable, split
from dlrd.families.couplings import couplings
from dlrd.families.curvature import DenseCurvature
from dlrd.families.pattern import Pattern
from dlrd.families.sparse_curvature import SparseCurvature
from dlrd.fitting.automatic.judge.certificate import Certificate
from dlrd.fitting.automatic.plan import Task, working_form
from dlrd.fitting.automatic.start.funnel import Funnel
from dlrd.fitting.automatic.state import AutomaticState, Measured, Search, fresh_steps
from dlrd.fitting.checkpoint import Snapshot, flattened, restored
from dlrd.fitting.history import Recorder
from dlrd.fitting.outcome import Outcome
from dlrd.models import Model

_NUMBERS = ("num_agreed", "num_rollbacks", "num_curvatures", "judged_at", "gradients")
"""Fields of the state that are plain data."""
_ARRAYS = ("log_ratios", "gradients", "lessons", "flat_ways")
"""Fields of a certificate that are arrays; all others are plain data."""


def snapshot(state: AutomaticState, outcome: Outcome, tolerance: float) -> Snapshot:
    """All of the state; of families what is trained, and once, for the newest, the rest."""
    arrays = flattened("steps", state.steps) | flattened("rest", eqx.filter(state.rest, _is_array))
    arrays |= flattened("origin", split(state.origin)[0]) | state.recorder.arrays()
    found = state.rest.couplings if isinstance(state.rest, HasCouplings) else None
    if found is not None:
        arrays |= {"pattern.rows": found.rows, "pattern.columns": found.columns}
    data: dict[str, Any] = {name: getattr(state, name) for name in _NUMBERS} | {
        "outcome": outcome.name,
        "tolerance": tolerance,
        "is_dense": found is None and isinstance(state.rest, Refinable) and state.rest.curvature.is_whole,
        "search": state.search._asdict(),
        "recorder": state.recorder.data(),
    }
    for name in ("latest", "best"):
        measured = getattr(state, name)
        if measured is not None:
            arrays |= _measured_arrays(name, measured)
            data[name] = _measured_data(measured)
    return Snapshot(arrays, data)


def restore(saved: Snapshot, task: Task, family: Family) -> tuple[AutomaticState, Outcome, float]:
    """The state, how its fit ended, and the tolerance of that.

    Args:
        saved: what `snapshot` gave.
        task: of the fit.
        family: as given.
    """
    arrays, data = saved
    start = _working_form(saved, task.method.model, family)
    trained, rest = split(start)
    arrays_of_rest, static = eqx.partition(rest, _is_array)
    rest = eqx.combine(restored(arrays, "rest", arrays_of_rest), static)
    state = AutomaticState(
        steps=restored(arrays, "steps", fresh_steps(task.method, start, task.key, task.first_rate)),
        rest=rest,
        recorder=Recorder.restored(arrays, data["recorder"]),
        origin=eqx.combine(restored(arrays, "origin", trained), rest),
        search=_search(data["search"]),
        **{name: _measured(saved, name, start, rest) for name in ("latest", "best") if name in data},
        **{name: data[name] for name in _NUMBERS},
    )
    return state, Outcome[data["outcome"]], data["tolerance"]


def _search(saved: dict[str, Any]) -> Search:
    funnel = saved["funnel"]
    found = None if funnel is None else Funnel(funnel[0], tuple(funnel[1]))
    return Search(tuple(saved["other_modes"]), found, saved["is_at_mode"])


def _working_form(saved: Snapshot, model: Model, family: Family) -> Family:
    """Any family of the form that the saved one has."""
    if "pattern.rows" in saved.arrays:
        pattern = Pattern(model.dim, saved.arrays["pattern.rows"], saved.arrays["pattern.columns"])
        found = couplings(pattern)
        assert found is not None, "it was found to be affordable before"
        curvature = SparseCurvature.unit(found)
    elif saved.data["is_dense"]:
        curvature = DenseCurvature(np.eye(model.dim), np.eye(model.dim))
    else:
        return working_form(model, family)
    assert isinstance(family, Startable)
    return family.at_mode(np.zeros(model.dim), curvature)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (np.ndarray, jax.Array))


def _measured_arrays(name: str, measured: Measured) -> dict[str, np.ndarray]:
    arrays = flattened(f"{name}.family", split(measured.family)[0])
    arrays |= flattened(f"{name}.came_from", split(measured.came_from)[0])
    seen = {each: getattr(measured.certificate, each) for each in _ARRAYS}
    return arrays | {f"{name}.{each}": values for each, values in seen.items() if values is not None}


def _measured_data(measured: Measured) -> dict[str, Any]:
    seen = measured.certificate._asdict()
    data = {"step": measured.step, "is_corrected": measured.is_corrected}
    return data | {each: value for each, value in seen.items() if each not in _ARRAYS}


def _measured(saved: Snapshot, name: str, start: Family, rest: Family) -> Measured:
    numbers, trained = dict(saved.data[name]), split(start)[0]
    family, came_from = (
        eqx.combine(restored(saved.arrays, f"{name}.{each}", trained), rest)
        for each in ("family", "came_from")
    )
    step, is_corrected = numbers.pop("step"), numbers.pop("is_corrected")
    arrays: dict[str, Any] = {each: saved.arrays.get(f"{name}.{each}") for each in _ARRAYS}
    return Measured(family, Certificate(**numbers, **arrays), came_from, step, is_corrected)
