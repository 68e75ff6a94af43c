"""Runs one batch and keeps its results in one plain file."""

import functools
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import Array, Float

from dlrd import Outcome, dynamic_decay, fit_many, power_decay, sasa, sasa_plus
from dlrd.fitting import archive
from dlrd.fitting.monitor import log_spaced
from dlrd.paper.experiments.spec import Batch, Setting
from dlrd.paper.experiments.targets import TARGETS

DIRECTIONS: dict[str, Callable[[], optax.GradientTransformation]] = {
    "sgd": optax.identity,
    "adam": functools.partial(optax.scale_by_adam, eps=0.0, eps_root=1e-8),
    "rmsprop": functools.partial(optax.scale_by_rms, decay=0.999, eps=1e-8, bias_correction=True),
    "adamax": optax.scale_by_adamax,
}
"""The paper's optimisers, before their learning rate."""


@dataclass(frozen=True)
class Results:
    """The results of a batch; arrays have the axes (setting, seed, point)."""

    batch: Batch
    step: np.ndarray  # (point,)
    error: np.ndarray  # divergence to the optimum
    learning_rate: np.ndarray
    snr: np.ndarray  # nan where the rule has none
    shown: np.ndarray | None  # parameters to be drawn, further axes behind
    decays: list[list[list[int]]]  # by setting and seed, the steps at which the rate fell
    resets: list[list[list[int]]]  # likewise, at which the guard went back
    seconds: float  # over all sessions

    def of(self, **wanted: Any) -> int:
        """The index of the one setting with these values."""
        (index,) = [
            i for i, setting in enumerate(self.batch.settings) if wanted.items() <= asdict(setting).items()
        ]
        return index

    def final(self, **wanted: Any) -> float:
        """The median over seeds of the accuracy at the end: of the last twentieth of the points."""
        tail = self.error[self.of(**wanted), :, -max(1, len(self.step) // 20) :]
        return float(np.median(np.median(tail, axis=-1)))


def run_batch(batch: Batch, folder: Path, progress: Callable[[int], None]) -> Results:
    """The results of the batch: read if they are there, else run, from where an earlier call was stopped.

    Args:
        batch: what to run.
        folder: where results, checkpoints and references are kept.
        progress: told the steps done.
    """
    path = folder / f"{batch.name}.npz"
    unfinished = folder / "unfinished" / batch.name
    stored = read_results(path, batch)
    if stored is not None:
        return stored
    started = time.perf_counter()
    with jax.enable_x64(True):
        target = TARGETS[batch.problem](folder / "references")
        is_short = batch.steps <= batch.num_points
        steps = np.arange(1, batch.steps + 1) if is_short else log_spaced(batch.steps, batch.num_points)
        fits = fit_many(
            target.log_density,
            target.start,
            keys=range(batch.num_seeds),
            optimizer=functools.partial(_optimizer, batch),
            learning_rates=np.array([_row(setting) for setting in batch.settings]),
            steps=batch.steps,
            num_draws=batch.num_draws,
            guard=batch.has_guard,
            checkpoint=_for(batch, unfinished),
            monitor=target.monitor,
            monitor_steps=steps,
            progress=progress,
        )
    if any(fit.outcome is Outcome.INTERRUPTED for fit in fits):
        raise KeyboardInterrupt  # the checkpoint is written; nothing is finished
    shape = (len(batch.settings), batch.num_seeds)
    monitored = [_padded(fit.monitored or {}, len(steps)) for fit in fits]
    columns = {name: np.stack([each[name] for each in monitored]) for name in monitored[0]}
    rows = [np.searchsorted(fit.history.step, steps).clip(max=len(fit.history.step) - 1) for fit in fits]
    columns["learning_rate"] = np.stack(
        [fit.history.learning_rate[row] for fit, row in zip(fits, rows, strict=True)]
    )
    columns["snr"] = np.stack([fit.history.snr[row] for fit, row in zip(fits, rows, strict=True)])
    arrays = {name: values.reshape(*shape, *values.shape[1:]) for name, values in columns.items()}
    arrays["step"] = steps
    events = {name: [getattr(fit.history, name).tolist() for fit in fits] for name in ("decays", "resets")}
    data = {
        "batch": asdict(batch),
        **{
            name: [each[i * shape[1] : (i + 1) * shape[1]] for i in range(shape[0])]
            for name, each in events.items()
        },
        "seconds": time.perf_counter() - started,
    }
    archive.write(path, arrays, data)
    shutil.rmtree(unfinished)
    results = read_results(path, batch)
    assert results is not None
    return results


def read_results(path: Path, batch: Batch) -> Results | None:
    """What an earlier call found for the same batch, if it finished it."""
    if not path.exists():
        return None
    arrays, data = archive.read(path)
    if data["batch"] != json.loads(json.dumps(asdict(batch))):
        return None
    return Results(
        batch,
        arrays["step"],
        arrays["error"],
        arrays["learning_rate"],
        arrays["snr"],
        arrays.get("shown"),
        data["decays"],
        data["resets"],
        data["seconds"],
    )


def _row(setting: Setting) -> tuple[float, float, float]:
    """The numbers of a setting that its optimiser gets."""
    if setting.rule == "power":
        return setting.rate, setting.exponent, 0.0
    # A mean signal-to-noise ratio is never below zero: with that limit the rate is static, the ratio watched.
    return setting.rate, setting.factor, setting.min_snr if setting.rule == "dlrd" else 0.0


def _optimizer(batch: Batch, row: Float[Array, " 3"]) -> optax.GradientTransformation:
    rules = {
        "static": lambda: dynamic_decay(row[0], row[1], row[2]),
        "dlrd": lambda: dynamic_decay(row[0], row[1], row[2]),
        "power": lambda: power_decay(row[0], row[1]),
        "sasa": lambda: sasa(row[0]),
        "sasa+": lambda: sasa_plus(row[0]),
    }
    return optax.chain(DIRECTIONS[batch.optimizer](), rules[batch.settings[0].rule]())


def _for(batch: Batch, folder: Path) -> Path:
    """The folder of the batch's checkpoint, emptied if it holds that of other settings."""
    note = folder / "batch.json"
    text = json.dumps([asdict(batch), jax.__version__])
    if not note.exists() or note.read_text(encoding="utf-8") != text:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        note.write_text(text, encoding="utf-8")
    return folder


def _padded(monitored: dict[str, np.ndarray], num_points: int) -> dict[str, np.ndarray]:
    """Of a run that ended early, its last values up to the end."""
    return {
        name: np.concatenate([values, np.repeat(values[-1:], num_points - len(values), axis=0)])
        for name, values in monitored.items()
        if name != "step"
    }
