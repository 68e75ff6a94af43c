"""A function of the family, watched while it is fitted."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Int

from dlrd.families import Family
from dlrd.fitting.loop import Rows
from dlrd.fitting.step import State

MonitorFn = Callable[[Any], dict[str, Array]]
"""The family at some step to named arrays; written with jax."""


def log_spaced(num_steps: int, num_points: int = 1000) -> Int[np.ndarray, " point"]:
    """About `num_points` whole numbers from 1 to `num_steps`, evenly spaced on a logarithmic axis.

    Example:
        >>> log_spaced(1000, num_points=7)
        array([   1,    3,   10,   32,  100,  316, 1000])
    """
    return np.unique(np.rint(np.geomspace(1, num_steps, num_points)).astype(int))


class Monitor:
    """Evaluates the function after the chosen steps and keeps what it gives.

    Args:
        monitor_fn: what to watch.
        rest: the family without its trainable arrays.
        steps: after which of them; the loop's chunks must end there.
    """

    def __init__(self, monitor_fn: MonitorFn, rest: Family, steps: Sequence[int] | np.ndarray):
        self.steps = np.unique(np.asarray(steps))
        self.rows: dict[str, list[np.ndarray]] = {}  # "step" and the function's names; run axis first
        self._evaluate = eqx.filter_jit(
            lambda trainable: jax.vmap(lambda one: monitor_fn(eqx.combine(one, rest)))(trainable)
        )

    def __call__(self, state: State, rows: Rows) -> None:
        step = int(np.max(state.step))
        if step in self.steps and rows.num_done.any():
            self.rows.setdefault("step", []).append(np.full(len(state.step), step))
            for name, value in self._evaluate(state.trainable).items():
                self.rows.setdefault(name, []).append(np.asarray(value))

    def stacked(self) -> dict[str, np.ndarray]:
        """All that was seen, arrays of shape (run, point, …)."""
        return {name: np.stack(values, axis=1) for name, values in self.rows.items()}

    def restore(self, stacked: dict[str, np.ndarray]) -> None:
        self.rows = {name: list(np.moveaxis(values, 1, 0)) for name, values in stacked.items()}
