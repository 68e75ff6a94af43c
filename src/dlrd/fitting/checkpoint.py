"""Checkpoints: the whole state of a fit in one file, written between chunks."""

import hashlib
import re
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dlrd.families import Family
from dlrd.fitting import archive
from dlrd.fitting.history import Recorder
from dlrd.fitting.loop import Observer, Rows
from dlrd.fitting.monitor import Monitor
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.step import Method, State, advance

FILE_NAME = "checkpoint.npz"
SECONDS_BETWEEN = 1.0
"""A checkpoint is written when the latest one is older than this, and at the end."""
MAX_SHARE = 0.03
"""Of the time that may go into writing: large states on slow disks are written less often."""


class Checkpoint:
    """The checkpoint of one fit in a folder: what it is a checkpoint of, and how to write and read it."""

    def __init__(
        self, folder: Path, method: Method, rest: Family, initial: State, monitor: Monitor | None = None
    ):
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"checkpoint must name a folder, got the file {folder}")
        self.path = folder / FILE_NAME
        self.initial = initial
        self.monitor = monitor
        self.digest = digest(method, rest, initial)
        self._written_at = time.monotonic()
        self._pause = SECONDS_BETWEEN

    def restore(self) -> tuple[State, list[Recorder]] | None:
        """The state and the records of an earlier call that did not finish, or None if there was none."""
        if not self.path.exists():
            return None
        arrays, data = archive.read(self.path)
        if data["digest"] != self.digest:
            raise ValueError(
                f"{self.path} belongs to another fit: the log density, its data, the family, the optimizer, "
                "a key, num_draws or the version of jax differ; delete it, or name another folder"
            )
        leaves, treedef = jax.tree.flatten(self.initial)
        state = treedef.unflatten([from_numpy(arrays[f"state.{i}"], leaf) for i, leaf in enumerate(leaves)])
        # Interrupted runs, and those that had done all steps of a smaller budget, go on.
        goes_on = (Outcome.INTERRUPTED.value, Outcome.BUDGET.value)
        outcome = jnp.where(
            jnp.isin(state.outcome, jnp.asarray(goes_on)), Outcome.RUNNING.value, state.outcome
        )
        recorders = [
            Recorder(
                rows=[arrays[f"rows.{i}"]],
                pending=arrays[f"pending.{i}"],
                **recorder,
            )
            for i, recorder in enumerate(data["recorders"])
        ]
        if self.monitor is not None:
            prefix = "monitor."
            self.monitor.restore(
                {name.removeprefix(prefix): rows for name, rows in arrays.items() if name.startswith(prefix)}
            )
        return state._replace(outcome=outcome), recorders

    def write(self, state: State, recorders: list[Recorder]) -> None:
        arrays = {f"state.{i}": to_numpy(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        data: dict[str, Any] = {"digest": self.digest, "recorders": []}
        for i, recorder in enumerate(recorders):
            arrays[f"rows.{i}"] = recorder.joined_rows()
            arrays[f"pending.{i}"] = recorder.pending
            data["recorders"].append(
                {
                    "every": recorder.every,
                    "num_steps": recorder.num_steps,
                    "num_decays": recorder.num_decays,
                    "decays": recorder.decays,
                }
            )
        if self.monitor is not None:
            arrays |= {f"monitor.{name}": rows for name, rows in self.monitor.stacked().items()}
        started = time.monotonic()
        archive.write(self.path, arrays, data)
        self._written_at = time.monotonic()
        self._pause = max(SECONDS_BETWEEN, (self._written_at - started) / MAX_SHARE)

    def observer(self, recorders: list[Recorder]) -> Observer:
        def observe(state: State, rows: Rows) -> None:
            if time.monotonic() - self._written_at > self._pause:
                self.write(state, recorders)

        return observe


def to_numpy(leaf: Any) -> np.ndarray:
    """An array of the state as plain numbers; typed keys give their words."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def from_numpy(array: np.ndarray, like: Any) -> Any:
    """The array of the state that `to_numpy` gave, with the type of `like`."""
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(like))
    # Files know no bfloat16: such an array comes back as its bytes.
    return jnp.asarray(array.view(like.dtype) if array.dtype.kind == "V" else array)


def digest(method: Method, rest: Family, initial: State) -> str:
    """A fingerprint of everything that a fit computes: the traced step, its constants and the start."""
    one = jax.tree.map(lambda leaf: leaf[0], initial)
    dynamic, static = eqx.partition((rest, one), eqx.is_array)

    def step(dynamic: Any) -> Any:
        rest, state = eqx.combine(dynamic, static)
        return advance(method, rest, state, state.key)

    traced = jax.make_jaxpr(step)(dynamic)
    text = re.sub(r"0x[0-9a-f]+", "", str(traced.jaxpr))  # addresses differ from process to process
    digest = hashlib.sha256(text.encode())
    for array in [*traced.consts, *jax.tree.leaves((dynamic, initial))]:
        digest.update(to_numpy(array).tobytes())
    return digest.hexdigest()
