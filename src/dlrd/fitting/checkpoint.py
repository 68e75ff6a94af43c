"""Checkpoints: the newest snapshot of a fit in one file, written between chunks."""

import hashlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dlrd.families import Family
from dlrd.fitting import archive
from dlrd.fitting.step import Method, State, advance

FILE_NAME = "checkpoint.npz"
SECONDS_BETWEEN = 1.0
"""A checkpoint is written when the latest one is older than this, and at the end."""
MAX_SHARE = 0.03
"""Of the time that may go into writing: large states on slow disks are written less often."""


class Snapshot(NamedTuple):
    """All that a fit needs to go on: arrays, and plain data."""

    arrays: dict[str, np.ndarray]
    data: dict[str, Any]


class AnotherFitError(ValueError):
    """A folder has the checkpoint of another fit than the one that is asked for."""


class Checkpoint:
    """The checkpoint of one fit in a folder.

    Args:
        folder: where it is.
        method: of the fit's steps.
        rest: its family without the trainable arrays.
        initial: its state before the first step.
    """

    def __init__(self, folder: Path, method: Method, rest: Family, initial: State):
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"checkpoint must name a folder, got the file {folder}")
        self.path = folder / FILE_NAME
        self.digest = digest(method, rest, initial)
        self._written_at = time.monotonic()
        self._pause = SECONDS_BETWEEN

    def read(self) -> Snapshot | None:
        """The snapshot of an earlier call, or None if there was none."""
        if not self.path.exists():
            return None
        arrays, data = archive.read(self.path)
        if data["digest"] != self.digest:
            raise AnotherFitError(
                f"{self.path} belongs to another fit: the log density, its data, the family, the optimizer, "
                "a key, num_draws or the version of jax differ; delete it, or name another folder"
            )
        return Snapshot(arrays, data)

    def write(self, snapshot: Snapshot) -> None:
        started = time.monotonic()
        archive.write(self.path, snapshot.arrays, snapshot.data | {"digest": self.digest})
        self._written_at = time.monotonic()
        self._pause = max(SECONDS_BETWEEN, (self._written_at - started) / MAX_SHARE)

    def write_now_and_then(self, take_snapshot: Callable[[], Snapshot]) -> None:
        """Writes unless the last time was a moment ago."""
        if time.monotonic() - self._written_at > self._pause:
            self.write(take_snapshot())


def flattened(name: str, tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree, to be read by `restored`."""
    return {f"{name}.{i}": to_numpy(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def restored(arrays: dict[str, np.ndarray], name: str, like: Any) -> Any:
    """The tree that `flattened` wrote, with the structure of `like`."""
    leaves, treedef = jax.tree.flatten(like)
    return treedef.unflatten([from_numpy(arrays[f"{name}.{i}"], leaf) for i, leaf in enumerate(leaves)])


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
    array = array.view(like.dtype) if array.dtype.kind == "V" else array
    return array if isinstance(like, np.ndarray) else jnp.asarray(array)


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
