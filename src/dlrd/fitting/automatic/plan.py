"""What an automatic fit does: its parts, and how its steps are taken."""

import functools
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import optax
from jaxtyping import Array, Key

from dlrd.families import Family, Natural, SecondOrder, started
from dlrd.fitting.automatic.annealing import annealing
from dlrd.fitting.request import Aim
from dlrd.fitting.step import Draws, Method
from dlrd.gradients import Estimator, natural_gradient, score_function, sticking_the_landing
from dlrd.gradients.sobol import MAX_CHEAP
from dlrd.models import Model
from dlrd.rates import dynamic_decay

NATURAL_RATE, ADAM_RATE = 0.3, 1e-2
"""First rates: of natural gradients, and of Adam for families that have them where the model does not."""
ANNEALED_RATE, HIGHER_RATES, LOWER_RATES = 1e-2, (3e-2, 1e-1), (3e-3,)
"""Of Adam for all other families: what is tried first, for a short round, and what may be better."""
FACTOR, MIN_TRAVEL = 0.3, 3.0
"""Of the rule: gentler than the paper's, with a floor for the windows."""
MOMENTUM = 0.85
"""Of steps from Hessians, whose noise is small beside the way that they often have to go."""
FIRST_GRADIENTS = 256
"""Of the steps before the first certificate, and of that; twice as many steps before the next."""
MIN_FIRST_GRADIENTS, FIRST_SHARE = 16, 0.125
"""Likewise where the budget is small: a power of two, not more than this share of it, or so many."""
MAX_SHORT = 2**18
"""Of a whole fit: its steps are then compiled quickly, for they take about as long as that."""
MIN_TOLERANCE, TOLERANCE_PER_DIM = 1e-2, 2e-4
"""In nats: the tolerance where none is given, and what it grows by with each dimension."""


class Plan(NamedTuple):
    """What the automatic mode does, part by part."""

    has_start: bool = True  # searches for a start; else starts from the family as given
    has_modes: bool = True  # also for modes, of which there are few in few dimensions
    num_starts: int = Aim().starts  # points from which it searches
    is_natural: bool = True  # takes natural gradients where the family has them; else Adam
    draws: Draws | None = None  # None: a Sobol sequence where that pays
    is_averaging: bool = True
    is_updating: bool = True  # brings the curvature that a family carries up to date
    has_strides: bool = True  # goes far at once along the way that it has come
    min_travel: float = MIN_TRAVEL
    factor: float = FACTOR
    num_draws: int = 8


class Task(NamedTuple):
    """All that an automatic fit is to do; it never changes."""

    method: Method  # of a step
    is_natural: bool  # whether the method takes natural gradients
    is_annealed: bool  # whether it takes rounds in which the rate falls to zero
    key: Key[Array, ""]
    plan: Plan
    tolerance: float  # in nats
    max_gradients: int
    deadline: float = float("inf")  # by `time.monotonic`

    @property
    def first_gradients(self) -> int:
        """Of the steps before the first certificate, and of each that is as short as can be."""
        affordable = max(FIRST_SHARE * self.max_gradients, MIN_FIRST_GRADIENTS)
        return min(FIRST_GRADIENTS, 2 ** int(math.log2(affordable)))

    @property
    def is_late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.deadline

    @property
    def first_rate(self) -> float | tuple[float, float]:
        """Of the rule; of a round, with its length."""
        if self.is_annealed:
            return ANNEALED_RATE, 1.0
        return NATURAL_RATE if self.is_natural else ADAM_RATE


def task_for(
    model: Model, family: Family, key: Key[Array, ""], gradient: Estimator | None, aim: Aim, plan: Plan
) -> Task:
    """Decides how the steps are taken, by what the model, the family and the estimator can do."""
    if gradient is not None:
        is_natural = eqx.filter_eval_shape(gradient, model, family, key, plan.num_draws).is_natural
        estimator = gradient
    else:
        is_natural = plan.is_natural and model.has_gradient and isinstance(family, Natural)
        plain = sticking_the_landing if model.has_gradient else score_function
        estimator = natural_gradient if is_natural else plain
    is_annealed = not isinstance(family, Natural)
    method = Method(
        model=model,
        optimizer=_annealed_adam if is_annealed else _optimizer_fn(is_natural, plan.factor, plan.min_travel),
        estimator=estimator,
        num_draws=plan.num_draws,
        is_averaging=plan.is_averaging and not is_annealed,
        draws=plan.draws or _draws(model, family, gradient, plan.num_draws),
        is_short=is_natural and aim.max_gradients <= MAX_SHORT,
    )
    tolerance = aim.tolerance or default_tolerance(model.dim)
    deadline = time.monotonic() + aim.max_seconds
    return Task(method, is_natural, is_annealed, key, plan, tolerance, aim.max_gradients, deadline)


def default_tolerance(dim: int) -> float:
    """In nats: with a gap of so much a dimension, means and sds are as good as anyone needs them."""
    return max(MIN_TOLERANCE, TOLERANCE_PER_DIM * dim)


def working_form(model: Model, family: Family) -> Family:
    """What the fit works with: a curvature that a family carries along must be one that can be measured."""
    return started(family) if model.is_exact and model.has_gradient else family


def _draws(model: Model, family: Family, gradient: Estimator | None, num_draws: int) -> Draws:
    """A Sobol sequence where the estimator is known to be the better for it."""
    if gradient is not None or not model.has_gradient:
        return "independent"
    if not isinstance(family, Natural) or family.noise_size > MAX_CHEAP:
        return "independent"
    # In the mean of a draw and its mirror image nothing is left of third derivatives, most of the noise.
    return "sobol_pairs" if num_draws % 2 == 0 else "sobol"


@functools.lru_cache(maxsize=16)
def _optimizer_fn(
    is_natural: bool, factor: float, min_travel: float
) -> Callable[[Any], optax.GradientTransformation]:
    """Made once, so that a second fit finds its compiled program."""

    def make(rate: Any) -> optax.GradientTransformation:
        rule = dynamic_decay(rate, factor=factor, min_travel=min_travel)
        return _with_momentum(rule) if is_natural else optax.chain(optax.scale_by_adam(), rule)

    return make


def _annealed_adam(settings: Any) -> optax.GradientTransformation:
    return optax.chain(optax.scale_by_adam(), annealing(settings))


def _with_momentum(rule: optax.GradientTransformation) -> optax.GradientTransformation:
    """The rule, behind momentum where the steps are from Hessians.

    Where a scale and what it is the scale of can only change together, each step is a small one.
    """
    heavy = optax.chain(optax.trace(MOMENTUM), rule)

    def init(params: optax.Params) -> optax.OptState:
        return (heavy if isinstance(params, SecondOrder) else rule).init(params)

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.OptState]:
        return (heavy if isinstance(params, SecondOrder) else rule).update(updates, state, params)

    return optax.GradientTransformation(init, update)
