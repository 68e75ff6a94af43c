"""The course of an automatic fit: what it knows, and the steps and looks that it is made of."""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from dlrd.families import Family
from dlrd.fitting.automatic.look import Look, look
from dlrd.fitting.average import TailAverage
from dlrd.fitting.average import value as tail_average
from dlrd.fitting.history import Recorder
from dlrd.fitting.loop import Observer, Rows, run
from dlrd.fitting.step import Method, State, compiled_start
from dlrd.gradients.estimate import split


@dataclass
class Course:
    """All that changes in an automatic fit."""

    family: Family  # what is fitted, with the curvature of a mean-field normal
    state: State  # with a leading axis of one run
    recorder: Recorder
    gradients: dict[str, int]  # spent, by phase
    looks: list[Look] = field(default_factory=list)
    best: tuple[float, Any] = (-np.inf, None)  # the highest bound of the ELBO, and the arrays that had it
    latest: Any = None  # the arrays at the latest look, at first those of the start
    before: Any = None  # the arrays at the look before
    looked_at: int = 0  # the step of the latest look
    judged_at: int = 0  # the step of the latest look from which consequences were drawn
    num_agreed: int = 0  # looks in a row that saw no improvement beyond the tolerance
    num_rollbacks: int = 0
    num_curvatures: int = 1  # Hessians behind the curvature of a mean-field normal
    other_modes: list[float] = field(default_factory=list)  # how much lower their ELBO was
    is_at_mode: bool = True

    @property
    def found(self) -> Family:
        """The family at the average over the tail."""
        return self.with_arrays(self.averaged)

    @property
    def averaged(self) -> Any:
        return _averaged(self.state.average, self.state.trainable)

    def with_arrays(self, trainable: Any) -> Family:
        return eqx.combine(trainable, split(self.family)[1])

    @property
    def num_gradients(self) -> int:
        return sum(self.gradients.values())


@eqx.filter_jit
def _averaged(average: TailAverage | None, trainable: Any) -> Any:
    """The average over the tail, where one is kept, of the one run."""
    if average is not None:
        trainable = jax.vmap(tail_average)(average, trainable)
    return jax.tree.map(lambda leaf: leaf[0], trainable)


def fresh_state(method: Method, family: Family, key: Key[Array, ""], rate: float) -> State:
    """The state before the first step, with the leading axis of one run."""
    return compiled_start(method)(family, jnp.expand_dims(key, 0), jnp.full(1, rate, float))


def take_steps(method: Method, course: Course, num_steps: int, observers: list[Observer]) -> None:
    """Goes on until `num_steps` steps are done in all."""

    def record(state: State, rows: Rows) -> None:
        course.state = state
        course.gradients["steps"] += int(rows.num_done[0]) * method.num_draws
        course.recorder.extend(rows.of_run(0))

    rest = split(course.family)[1]
    course.state = run(method, rest, course.state, num_steps, [record, *observers])


def take_look(
    method: Method, course: Course, key: Key[Array, ""], num_draws: int, is_longer: bool = False
) -> Look:
    """Looks at the average over the tail, or goes on with the latest look."""
    before, step = course.looks[-1] if is_longer else None, int(course.state.step[0])
    came_from = course.with_arrays(course.before if is_longer else course.latest)
    seen = look(method.log_density, course.found, look_key(step, key, 0), num_draws, before, came_from)
    # Only now, so that Ctrl-C during the look leaves the course as it was.
    if not is_longer:
        course.looked_at, course.before, course.latest = step, course.latest, course.averaged
    course.gradients["certificates"] += seen.num_draws - (before.num_draws if before else 0)
    course.looks = [*(course.looks[:-1] if is_longer else course.looks), seen]
    if seen.elbo_bound > course.best[0] and not seen.is_outside:
        course.best = seen.elbo_bound, course.averaged
    return seen


def look_key(step: int, key: Key[Array, ""], use: int) -> Key[Array, ""]:
    """A key for each use of randomness after each step, apart from those of the steps."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, 2**31), step), use)
