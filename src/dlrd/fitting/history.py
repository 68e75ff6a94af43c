"""The course of a fit, thinned to what a person can look at."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from dlrd.fitting.step import Record

MAX_ROWS = 10_000
"""A history has about this many rows at the most, however long the run."""


@dataclass(frozen=True)
class History:
    """The course of a fit; a row stands for one step, or for the same number of steps each in a long run."""

    step: Int[np.ndarray, " row"]  # the row's last step, counted from 1
    elbo: Float[np.ndarray, " row"]  # mean over the row's steps
    elbo_error: Float[np.ndarray, " row"]  # standard error of that mean; nan for a single draw a step
    learning_rate: Float[np.ndarray, " row"]  # of the row's last step; nan if the optimiser does not say
    snr: Float[np.ndarray, " row"]  # mean signal-to-noise ratio, likewise
    decays: Int[np.ndarray, " decay"]  # the steps whose rate was decayed


@dataclass
class Recorder:
    """Collects the records of one run, chunk by chunk, independent of where the chunks end."""

    every: int  # steps a row
    num_steps: int = 0
    num_decays: float = 0.0
    rows: list[Float[np.ndarray, "field row"]] = field(default_factory=list)
    pending: Float[np.ndarray, "field step"] = field(
        default_factory=lambda: np.zeros((len(Record._fields), 0))
    )  # steps that do not fill a row yet
    decays: list[int] = field(default_factory=list)

    @classmethod
    def for_budget(cls, num_steps: int) -> "Recorder":
        return cls(every=-(-num_steps // MAX_ROWS))

    def extend(self, records: Record) -> None:
        """Takes the records of the next steps."""
        steps = np.stack(records).astype(float)
        num_decays = Record(*steps).num_decays
        is_decay = np.diff(num_decays, prepend=self.num_decays) > 0
        self.decays.extend((self.num_steps + 1 + np.flatnonzero(is_decay)).tolist())
        self.num_steps += steps.shape[1]
        self.num_decays = float(num_decays[-1]) if len(num_decays) else self.num_decays
        self.pending = np.concatenate([self.pending, steps], axis=1)
        num_full = self.pending.shape[1] // self.every * self.every
        if num_full:
            self.rows.append(self._condensed(self.pending[:, :num_full]))
            self.pending = self.pending[:, num_full:].copy()

    def joined_rows(self) -> Float[np.ndarray, "field row"]:
        """All full rows."""
        return np.concatenate([np.zeros((len(Record._fields), 0)), *self.rows], axis=1)

    def latest(self, num_steps: int = 100) -> Record:
        """The newest records, of about the last `num_steps` steps."""
        newest = self.pending if self.pending.shape[1] or not self.rows else self.rows[-1]
        return Record(*newest[:, -num_steps:])

    def history(self) -> History:
        """The history so far; its last row may stand for fewer steps than the others."""
        rows = self.joined_rows()
        if self.pending.shape[1]:
            rows = np.concatenate([rows, self._condensed(self.pending)], axis=1)
        record = Record(*rows)
        ends = np.minimum(self.every * np.arange(1, len(record.elbo) + 1), self.num_steps)
        return History(
            step=ends,
            elbo=record.elbo,
            elbo_error=np.sqrt(record.elbo_variance),
            learning_rate=record.learning_rate,
            snr=record.snr,
            decays=np.asarray(self.decays, dtype=int),
        )

    def _condensed(self, steps: Float[np.ndarray, "field step"]) -> Float[np.ndarray, "field row"]:
        size = min(self.every, steps.shape[1])
        blocks = steps.reshape(len(steps), -1, size)
        record = Record(*blocks)
        last = Record(*blocks[:, :, -1])
        return np.stack(
            last._replace(
                elbo=record.elbo.mean(axis=1),
                elbo_variance=record.elbo_variance.mean(axis=1) / size,
            )
        )
