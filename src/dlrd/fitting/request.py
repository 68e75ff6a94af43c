"""What a fit is asked to do: the arguments of `dlrd.fit`, packed by what belongs together, and checked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import optax
from jaxtyping import ArrayLike

from dlrd.checks import check_count, shown
from dlrd.fitting.inputs import check_positive
from dlrd.fitting.monitor import MonitorFn
from dlrd.fitting.progress import ProgressOption
from dlrd.fitting.step import Draws, OptimizerOrFactory
from dlrd.gradients import Estimator

MIN_GRADIENTS = 30
"""Of an automatic fit."""


class Aim(NamedTuple):
    """Where an automatic fit may end, and from how many points it looks for a start."""

    tolerance: float | None = None  # in nats; None: what suits the dimension
    max_gradients: int = 100_000
    max_seconds: float = float("inf")
    starts: int = 16


class Stepping(NamedTuple):
    """How a fit with an optimiser goes on, and what is watched of it."""

    optimizer: OptimizerOrFactory | None = None
    learning_rates: Sequence[float] | ArrayLike | None = None
    steps: int | None = None
    draws: Draws | None = None
    average: Literal["tail"] | None = None
    guard: bool | None = None  # None: on
    monitor: MonitorFn | None = None
    monitor_steps: Sequence[int] | np.ndarray | None = None


class Sampling(NamedTuple):
    """How each gradient is estimated."""

    num_draws: int = 8
    gradient: Estimator | None = None


class Watching(NamedTuple):
    """What a person sees of a fit, and what is kept of it."""

    checkpoint: Path | None = None
    progress: ProgressOption = True


class Request(NamedTuple):
    """All of it, of either kind."""

    aim: Aim | None  # of an automatic fit
    stepping: Stepping
    sampling: Sampling
    watching: Watching

    def in_folder(self, name: str) -> "Request":
        """The same for one of many fits: its checkpoint is in a folder of its own."""
        folder = self.watching.checkpoint
        return (
            self
            if folder is None
            else self._replace(watching=self.watching._replace(checkpoint=folder / name))
        )


def checked_request(
    aim: dict[str, Any],
    stepping: Stepping,
    sampling: Sampling,
    checkpoint: str | Path | None,
    progress: ProgressOption,
) -> Request:
    """The request, once it is sure that nothing in it would be ignored.

    Args:
        aim: the fields of an `Aim`, None for those that are not given.
        stepping: given together with an optimiser alone.
        sampling, checkpoint, progress: of either kind of fit.
    """
    check_count("num_draws", sampling.num_draws)
    watching = Watching(None if checkpoint is None else Path(checkpoint), progress)
    if stepping.optimizer is not None:
        _refuse(aim, "without optimizer", "a fit with optimizer takes steps")
        _check_stepping(stepping)
        return Request(None, stepping, sampling, watching)
    others = stepping._asdict()
    _refuse(others, "together with optimizer", "an automatic fit takes tolerance and max_gradients")
    asked = Aim(**{name: value for name, value in aim.items() if value is not None})
    if asked.tolerance is not None:
        check_positive("tolerance", asked.tolerance)
        asked = asked._replace(tolerance=float(asked.tolerance))
    check_count("max_gradients", asked.max_gradients)
    if asked.max_gradients < MIN_GRADIENTS:
        raise ValueError(
            f"max_gradients must be at least {MIN_GRADIENTS}, with fewer nothing can be told, got "
            f"{asked.max_gradients}"
        )
    if asked.max_seconds != float("inf"):
        check_positive("max_seconds", asked.max_seconds)
    check_count("starts", asked.starts)
    return Request(asked, stepping, sampling, watching)


def _refuse(options: dict[str, Any], where: str, instead: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name} must be given only {where}, got {shown(value)}; {instead}")


def _check_stepping(stepping: Stepping) -> None:
    optimizer = stepping.optimizer
    is_transformation = isinstance(optimizer, optax.GradientTransformation)
    if stepping.learning_rates is None and not is_transformation:
        raise TypeError(
            "optimizer must be an optax transformation, as "
            f"optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-2)); got {shown(optimizer)}"
        )
    if stepping.learning_rates is not None and (is_transformation or not callable(optimizer)):
        raise TypeError(
            "optimizer must be a function of the learning rate where learning_rates are given, as "
            "lambda rate: optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(rate))"
        )
    if stepping.steps is None:
        raise ValueError("steps must be given together with optimizer, got None")
    check_count("steps", stepping.steps)
    if stepping.average not in (None, "tail"):
        raise ValueError(f'average must be None or "tail", got {stepping.average!r}')
    if stepping.guard not in (None, True, False):
        raise ValueError(f"guard must be True or False, got {shown(stepping.guard)}")
