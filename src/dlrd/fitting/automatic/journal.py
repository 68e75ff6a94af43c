"""The checkpoint of an automatic fit: its whole course in one file."""

import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dlrd.families import Family, MeanFieldNormal
from dlrd.fitting import archive
from dlrd.fitting.automatic.course import Course, fresh_state
from dlrd.fitting.automatic.look import Look
from dlrd.fitting.checkpoint import FILE_NAME, MAX_SHARE, SECONDS_BETWEEN, digest, from_numpy, to_numpy
from dlrd.fitting.history import Recorder
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.step import Method, State
from dlrd.gradients.curvature import Curved, DenseCurvature, LowRankCurvature
from dlrd.gradients.estimate import split

_CURVATURES = {cls.__name__: cls for cls in (DenseCurvature, LowRankCurvature)}
_NUMBERS = (
    "num_agreed",
    "num_rollbacks",
    "num_curvatures",
    "looked_at",
    "judged_at",
    "is_at_mode",
    "other_modes",
    "gradients",
)
"""Fields of a course that are plain data."""


class Journal:
    """Writes and reads the course of one fit in a folder."""

    def __init__(self, folder: Path, method: Method, family: Family, initial: State):
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"checkpoint must name a folder, got the file {folder}")
        self.path = folder / FILE_NAME
        self.method, self.family, self.initial = method, family, initial
        self.digest = digest(method, split(family)[1], initial)
        self._written_at = time.monotonic()
        self._pause = SECONDS_BETWEEN

    def restore(self) -> tuple[Course, Outcome, float] | None:
        """The course of an earlier call, how that ended and its tolerance, or None if there was none."""
        if not self.path.exists():
            return None
        arrays, data = archive.read(self.path)
        if data["digest"] != self.digest:
            raise ValueError(
                f"{self.path} belongs to another fit: the log density, its data, the family, the key or the "
                "version of jax differ; delete it, or name another folder"
            )
        family = self.family
        if data["curvature"] is not None:
            assert isinstance(family, MeanFieldNormal)
            kind = _CURVATURES[data["curvature"]]
            family = Curved(
                family, kind(**{name: arrays[f"curvature.{name}"] for name in kind.__annotations__})
            )
        template = fresh_state(self.method, family, self.initial.key[0], 1.0)
        trainable = split(family)[0]
        course = Course(
            family=family,
            state=_read(arrays, "state", template),
            recorder=Recorder(rows=[arrays["rows"]], pending=arrays["pending"], **data["recorder"]),
            looks=[Look(**data["look"], log_ratios=arrays["log_ratios"], gradients=arrays.get("gradients"))]
            if data["look"]
            else [],
            best=(data["best"], _read(arrays, "best", trainable) if "best.0" in arrays else None),
            latest=_read(arrays, "latest", trainable),
            before=_read(arrays, "before", trainable) if "before.0" in arrays else None,
            **{name: data[name] for name in _NUMBERS},
        )
        return course, Outcome[data["outcome"]], data["tolerance"]

    def write(self, course: Course, outcome: Outcome, tolerance: float) -> None:
        arrays = _written("state", course.state) | _written("best", course.best[1])
        arrays |= _written("latest", course.latest) | _written("before", course.before)
        curvature = course.family.curvature if isinstance(course.family, Curved) else None
        if curvature is not None:
            arrays |= {f"curvature.{name}": np.asarray(value) for name, value in vars(curvature).items()}
        recorder, seen = course.recorder, course.looks[-1] if course.looks else None
        arrays |= {"rows": recorder.joined_rows(), "pending": recorder.pending}
        if seen is not None:
            arrays["log_ratios"] = seen.log_ratios
            if seen.gradients is not None:
                arrays["gradients"] = seen.gradients
        data: dict[str, Any] = {name: getattr(course, name) for name in _NUMBERS} | {
            "digest": self.digest,
            "outcome": outcome.name,
            "tolerance": tolerance,
            "best": course.best[0],
            "curvature": None if curvature is None else type(curvature).__name__,
            "recorder": {
                "every": recorder.every,
                "num_steps": recorder.num_steps,
                "num_decays": recorder.num_decays,
                "decays": recorder.decays,
            },
            "look": None
            if seen is None
            else {
                name: value
                for name, value in seen._asdict().items()
                if name not in ("log_ratios", "gradients")
            },
        }
        started = time.monotonic()
        archive.write(self.path, arrays, data)
        self._written_at = time.monotonic()
        self._pause = max(SECONDS_BETWEEN, (self._written_at - started) / MAX_SHARE)

    def write_now_and_then(self, course: Course, tolerance: float) -> None:
        """Writes unless the last time was a moment ago."""
        if time.monotonic() - self._written_at > self._pause:
            self.write(course, Outcome.RUNNING, tolerance)


def _written(name: str, tree: Any) -> dict[str, np.ndarray]:
    return {f"{name}.{i}": to_numpy(jnp.asarray(leaf)) for i, leaf in enumerate(jax.tree.leaves(tree))}


def _read(arrays: dict[str, np.ndarray], name: str, like: Any) -> Any:
    leaves, treedef = jax.tree.flatten(like)
    return treedef.unflatten([from_numpy(arrays[f"{name}.{i}"], leaf) for i, leaf in enumerate(leaves)])
