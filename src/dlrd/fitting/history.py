"""The course of a fit, thinned to what a person can look at."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from dlrd.fitting.step import Record

MAX_ROWS = 10_000
"""A history has about this many rows at the most, however long the run."""
_COUNTS, _EVENTS = ("num_decays", "num_resets"), ("decays", "resets")


@dataclass(frozen=True)
class History:
    """The course of a fit; a row stands for one step, or for the same number of steps each in a long run."""

    step: Int[np.ndarray, " row"]  # the row's last step, counted from 1
    elbo: Float[np.ndarray, " row"]  # mean over the row's steps; those with an infinite one are left out
    elbo_error: Float[np.ndarray, " row"]  # standard error of that mean; nan for a single draw a step
    learning_rate: Float[np.ndarray, " row"]  # of the row's last step; nan if the optimiser does not say
    snr: Float[np.ndarray, " row"]  # mean signal-to-noise ratio, likewise
    failed: Int[np.ndarray, " row"]  # draws of the row's steps that were left out, as their runs had failed
    decays: Int[np.ndarray, " decay"]  # the steps whose rate was decayed
    resets: Int[np.ndarray, " reset"] = field(
        default_factory=lambda: np.zeros(0, int)
    )  # the steps that led back to the best parameters


@dataclass(frozen=True)
class Recorder:
    """The records of one run so far, independent of where its chunks end."""

    every: int  # steps a row
    num_steps: int = 0
    num_decays: float = 0.0
    num_resets: float = 0.0
    rows: tuple[Float[np.ndarray, "field row"], ...] = ()
    pending: Float[np.ndarray, "field step"] = field(
        default_factory=lambda: np.zeros((len(Record._fields), 0))
    )  # steps that do not fill a row yet
    decays: tuple[int, ...] = ()
    resets: tuple[int, ...] = ()

    @classmethod
    def for_budget(cls, num_steps: int) -> "Recorder":
        return cls(every=-(-num_steps // MAX_ROWS))

    def extended(self, records: Record) -> "Recorder":
        """With the records of the next steps."""
        steps = np.stack(records).astype(float)
        record = Record(*steps)
        pending = np.concatenate([self.pending, steps], axis=1)
        num_full = pending.shape[1] // self.every * self.every
        return Recorder(
            every=self.every,
            num_steps=self.num_steps + steps.shape[1],
            num_decays=_last(record.num_decays, self.num_decays),
            num_resets=_last(record.num_resets, self.num_resets),
            rows=(*self.rows, self._condensed(pending[:, :num_full])) if num_full else self.rows,
            pending=pending[:, num_full:].copy(),
            decays=(*self.decays, *self._increases(record.num_decays, self.num_decays)),
            resets=(*self.resets, *self._increases(record.num_resets, self.num_resets)),
        )

    def latest(self, num_steps: int) -> Record:
        """The newest records, of about the last `num_steps` steps."""
        num_rows = -(-num_steps // self.every)
        newest = [*self.rows[-num_rows:], self._condensed(self.pending)]
        return Record(*np.concatenate(newest, axis=1)[:, -num_rows:])

    def history(self) -> History:
        """The history so far; its last row may stand for fewer steps than the others."""
        record = Record(*np.concatenate([self._joined_rows(), self._condensed(self.pending)], axis=1))
        ends = np.minimum(self.every * np.arange(1, len(record.elbo) + 1), self.num_steps)
        return History(
            step=ends,
            elbo=record.elbo,
            elbo_error=np.sqrt(record.elbo_variance),
            learning_rate=record.learning_rate,
            snr=record.snr,
            failed=record.num_failed.astype(int),
            decays=np.asarray(self.decays, dtype=int),
            resets=np.asarray(self.resets, dtype=int),
        )

    def arrays(self, prefix: str = "") -> dict[str, np.ndarray]:
        """What of it a checkpoint keeps as arrays."""
        return {f"{prefix}rows": self._joined_rows(), f"{prefix}pending": self.pending}

    def data(self) -> dict[str, Any]:
        """What of it a checkpoint keeps as plain data."""
        return {name: getattr(self, name) for name in ("every", "num_steps", *_COUNTS, *_EVENTS)}

    @classmethod
    def restored(cls, arrays: dict[str, np.ndarray], data: dict[str, Any], prefix: str = "") -> "Recorder":
        """From what `arrays` and `data` gave."""
        numbers: dict[str, Any] = data | {name: tuple(data[name]) for name in _EVENTS}
        return cls(rows=(arrays[f"{prefix}rows"],), pending=arrays[f"{prefix}pending"], **numbers)

    def _increases(self, counts: Float[np.ndarray, " step"], before: float) -> list[int]:
        """The steps at which a count has grown."""
        return (self.num_steps + 1 + np.flatnonzero(np.diff(counts, prepend=before) > 0)).tolist()

    def _joined_rows(self) -> Float[np.ndarray, "field row"]:
        return np.concatenate([np.zeros((len(Record._fields), 0)), *self.rows], axis=1)

    def _condensed(self, steps: Float[np.ndarray, "field step"]) -> Float[np.ndarray, "field row"]:
        """Full rows, or a shorter one, or none."""
        if not steps.shape[1]:
            return steps
        size = min(self.every, steps.shape[1])
        blocks = steps.reshape(len(steps), -1, size)
        record = Record(*blocks)
        last = Record(*blocks[:, :, -1])
        return np.stack(
            last._replace(
                elbo=_finite_mean(record.elbo),
                elbo_variance=_finite_mean(record.elbo_variance) / size,
                num_failed=record.num_failed.sum(axis=1),
            )
        )


def _last(counts: Float[np.ndarray, " step"], before: float) -> float:
    return float(counts[-1]) if len(counts) else before


def _finite_mean(values: Float[np.ndarray, "row step"]) -> Float[np.ndarray, " row"]:
    """Of each row, without what is infinite or nan; nan where nothing else is there."""
    is_finite = np.isfinite(values)
    num = is_finite.sum(axis=1)
    with np.errstate(over="ignore"):
        total = np.where(is_finite, values, 0.0).sum(axis=1)
    return np.where(num > 0, total / np.maximum(num, 1), np.nan)
