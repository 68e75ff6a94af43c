"""What an automatic fit knows at any moment. It is replaced by the next, never written into."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key

from dlrd.families import Family, settled, split
from dlrd.fitting.automatic.judge.certificate import CONFIDENCE, Certificate
from dlrd.fitting.automatic.start.funnel import Funnel
from dlrd.fitting.average import TailAverage
from dlrd.fitting.average import value as tail_average
from dlrd.fitting.history import Recorder
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.step import Method, State, initial_states


class Measured(NamedTuple):
    """A family and its certificate, which stay together: results are made of one such pair."""

    family: Family  # in the form that fits work with
    certificate: Certificate
    came_from: Family  # where the steps to it began
    step: int  # after which it was measured
    is_corrected: bool = False  # whether it was moved by the gradient of a certificate of that step before


class Search(NamedTuple):
    """What the search for a start has found."""

    other_modes: tuple[float, ...] = ()  # how much lower their ELBO was
    funnel: Funnel | None = None  # that was seen at the start
    is_at_mode: bool = True  # whether the start is a mode, or none was looked for


NOT_SEARCHED = Search()


@dataclass(frozen=True)
class AutomaticState:
    """All that changes in an automatic fit."""

    steps: State  # of the compiled steps, with a leading axis of one run
    rest: Family  # what is not trained of the family, as the curvature that it carries
    recorder: Recorder
    gradients: dict[str, int]  # spent, by phase
    origin: Family  # where the steps since the latest certificate began
    latest: Measured | None = None
    best: Measured | None = None  # the one whose ELBO is above the highest bound
    judged_at: int = 0  # the step of the latest certificate from which consequences were drawn
    num_agreed: int = 0  # comparisons in a row that saw no improvement beyond the tolerance
    num_rollbacks: int = 0
    num_curvatures: int = 1  # Hessians behind the curvature that the family carries
    search: Search = NOT_SEARCHED

    @property
    def step(self) -> int:
        """Steps done."""
        return int(np.asarray(self.steps.step)[0])

    @property
    def is_judged(self) -> bool:
        """Whether consequences were drawn from the latest certificate."""
        return self.latest is None or self.judged_at == self.latest.step

    @property
    def num_gradients(self) -> int:
        """Spent in all."""
        return sum(self.gradients.values())

    @property
    def rate(self) -> float:
        """That the rule, or a round, began with."""
        return self.settings[0]

    @property
    def settings(self) -> list[float]:
        """Of the optimiser: the rate, and how long a round is where there are rounds."""
        assert self.steps.learning_rate is not None
        return np.ravel(np.asarray(self.steps.learning_rate)[0]).tolist()

    @property
    def outcome(self) -> Outcome:
        """Of the latest steps."""
        return Outcome(int(np.asarray(self.steps.outcome)[0]))

    @property
    def running(self) -> "AutomaticState":
        """As before the next steps, whatever ended the latest."""
        now = np.full(1, Outcome.RUNNING.value, np.int32)
        return replace(self, steps=self.steps._replace(outcome=jax.device_put(now)))

    @property
    def family(self) -> Family:
        """The family at the average over the tail."""
        return settled(eqx.combine(_averaged(self.steps.average, self.steps.trainable), self.rest))

    @property
    def last_iterate(self) -> Family:
        """The family after the latest step."""
        return settled(eqx.combine(_averaged(None, self.steps.trainable), self.rest))

    def answer(self, outcome: Outcome) -> Measured | None:
        """What a fit with this outcome gives: the latest, or the best if the ELBO was surely higher there.

        That it is certified was said of the latest, whatever few draws have shown before.
        """
        if self.latest is None or self.best is None or outcome is Outcome.CERTIFIED:
            return self.latest
        now = self.latest.certificate
        has_fallen = now.elbo + CONFIDENCE * now.elbo_error < self.best.certificate.elbo_bound
        return self.best if has_fallen or outcome is Outcome.DIVERGED else self.latest

    def spent(self, phase: str, num_gradients: int) -> "AutomaticState":
        """With more gradients counted."""
        return replace(self, gradients=self.gradients | {phase: self.gradients[phase] + num_gradients})

    def restarted(
        self, method: Method, family: Family, key: Key[Array, ""], rate: float | tuple[float, float]
    ) -> "AutomaticState":
        """With fresh moments, averages and windows, from what is trained of `family`."""
        steps = fresh_steps(method, eqx.combine(split(family)[0], self.rest), key, rate)
        return replace(self, steps=steps._replace(step=self.steps.step))


def _averaged(average: TailAverage | None, trainable: Any) -> Any:
    """The average over the tail, where one is kept, of the one run; on the host, without a program for it."""
    average, trainable = jax.tree.map(lambda leaf: np.asarray(leaf)[0], (average, trainable))
    return jax.device_put(trainable if average is None else tail_average(average, trainable))


def fresh_steps(
    method: Method, family: Family, key: Key[Array, ""], rate: float | tuple[float, float]
) -> State:
    """The state before the first step, with the leading axis of one run; of a round, `rate` and length."""
    data = jax.device_put(np.asarray(jax.random.key_data(key))[None])
    keys = jax.random.wrap_key_data(data, impl=jax.random.key_impl(key))
    return initial_states(method, family, keys, jax.device_put(np.asarray([rate], float)))
