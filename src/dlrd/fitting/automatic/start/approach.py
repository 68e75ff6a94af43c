"""The way to a mode of a program's posterior, by its outputs alone: Gauss and Newton's."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.families import Family, split
from dlrd.fitting.automatic.start.candidates import is_near, laplace_evidence
from dlrd.fitting.automatic.start.mode import Mode, find_mode
from dlrd.fitting.automatic.start.objective import Objective, SpentError, host_noise
from dlrd.fitting.program import Program
from dlrd.models import Emulable
from dlrd.models.emulator import Emulator
from dlrd.models.polynomial import Polynomial, tangent

MAX_ROUNDS = 20
"""Of the way, each with differences of the outputs."""
LENGTHS = 1.0, 0.5, 0.25, 0.125
"""Of the step to where linear outputs have their mode: they are tried all at once."""
NEAR = 0.5
"""In nats: with no more to be gained from there, linear outputs are those of the mode."""
START_SHARE = 0.25
"""Of the budget: when ways have taken it, no other is begun."""
NUM_PROBES = 8
"""Points from which to begin, if runs fail at the first ones."""
NUM_KNOWN = 3
"""Ways in a row that led to known modes: then there are no others, as far as one can tell."""

_outputs = Program(lambda model, draws: jax.vmap(model.outputs_at)(draws))
"""By a run each."""
_log_densities = Program(lambda model, outputs, draws: jax.vmap(model.log_density_of)(outputs, draws))
"""That follow from outputs."""


class Runs:
    """Runs of a model, counted.

    Args:
        model: that is run.
        dtype: of the draws.
        max_runs: `SpentError` is raised in place of more.
        deadline: by `time.monotonic`; the same is raised after it.
    """

    def __init__(self, model: Emulable, dtype: jnp.dtype, max_runs: int, deadline: float):
        self.model = model
        self.dtype = dtype
        self.num = 0
        self.max_runs, self._deadline = max_runs, deadline

    @property
    def num_left(self) -> int:
        return self.max_runs - self.num if self.seconds_left > 0 else 0

    @property
    def seconds_left(self) -> float:
        return max(self._deadline - time.monotonic(), 0.0)

    def count(self, num: int) -> None:
        """So many are about to be made."""
        if num > self.num_left:
            raise SpentError
        self.num += num

    def outputs(self, draws: Float[np.ndarray, "draw dim"]) -> Float[np.ndarray, "draw ..."]:
        """At draws; nan where a run failed."""
        self.count(len(draws))
        return np.asarray(_outputs(self.model, np.asarray(draws, self.dtype)), float)

    def log_densities(
        self, outputs: Float[np.ndarray, "draw ..."], draws: Float[np.ndarray, "draw dim"]
    ) -> Float[np.ndarray, " draw"]:
        """Of draws with these outputs; not counted."""
        given = (np.asarray(each, self.dtype) for each in (outputs, draws))
        return np.asarray(_log_densities(self.model, *given), float)


class Landing(NamedTuple):
    """Where a way has ended."""

    mode: Mode  # of the posterior with linear outputs
    tangent: Polynomial  # these outputs
    is_at_rest: bool  # whether they are those of a mode of the posterior itself


def approach(runs: Runs, family: Any, key: Key[Array, ""], num_starts: int) -> list[Landing]:
    """The modes to which ways from several points lead, the most promising first.

    Args:
        runs: of the model.
        family: its mean and draws of it are the points.
        key: of the draws.
        num_starts: how many points, at the most.

    Raises:
        SpentError: if the budget does not allow for a first run that does not fail.
    """
    noise = np.asarray(host_noise(key, (max(num_starts, NUM_PROBES), family.noise_size)), runs.dtype)
    points = [np.asarray(family.mean, float), *np.asarray(family.from_noise(noise), float)]
    found, num_known = list[Landing](), 0
    for number, point in enumerate(points):
        is_enough = number >= num_starts or num_known == NUM_KNOWN
        if found and (is_enough or runs.num > START_SHARE * runs.max_runs):
            break
        try:
            other = _way(runs, point, found)
        except SpentError:
            break
        if other is not None and (other.is_at_rest or not found):
            found.append(other)
            num_known = 0
        else:
            num_known += 1
    if not found:
        raise SpentError
    return sorted(found, key=lambda each: -laplace_evidence(each.mode))


def _way(runs: Runs, point: Float[np.ndarray, " dim"], known: Sequence[Landing]) -> Landing | None:
    """From a point to a mode, or as far as the budget leads.

    None where it comes near a known one, or where it cannot begin, as the run there has failed.
    """
    found, here = None, runs.outputs(point[None])[0]
    if not np.isfinite(here).all():
        return None
    for _ in range(MAX_ROUNDS):
        if found is not None and runs.num_left < runs.model.num_emulated:
            break
        linear = _tangent(runs, point, here)
        value = float(runs.log_densities(here[None], point[None])[0])
        mode = find_mode(Objective(Emulator(runs.model, linear), runs.dtype), point, is_whole=True)
        found = Landing(mode, linear, mode.log_density - value < NEAR)
        if any(is_near(each.mode, mode.point) for each in known):
            return None
        trials = point + np.multiply.outer(LENGTHS, mode.point - point)
        if found.is_at_rest or runs.num_left < len(trials):
            break
        outputs = runs.outputs(trials)
        values = np.nan_to_num(runs.log_densities(outputs, trials), nan=-np.inf)
        best = int(np.argmax(values))
        if not values[best] > value:
            break
        point, here = trials[best], outputs[best]
    return found


def _tangent(runs: Runs, point: Float[np.ndarray, " dim"], here: Float[np.ndarray, "..."]) -> Polynomial:
    """The outputs as a linear function, by differences from those at the point.

    Runs at draws will tell what these miss; one for each parameter is enough to find the way. Along those
    that the budget does not allow for, or whose runs failed, nothing is known.
    """
    num, step = runs.model.num_emulated, runs.model.difference_step
    steps = step * np.eye(num, len(point))[: runs.num_left]
    slopes = np.zeros((num, here.size))
    if len(steps):
        outputs = runs.outputs(point + steps).reshape(len(steps), -1)
        slopes[: len(steps)] = np.nan_to_num((outputs - here.ravel()) / step)
    return tangent(point[:num], here.ravel(), slopes)


def dtype_of(family: Family) -> jnp.dtype:
    """In which a family's draws are."""
    return jnp.result_type(*jax.tree.leaves(split(family)[0]))
