"""How the steps of an automatic fit are taken."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import optax

from dlrd.families import Family, FullRankNormal, LowRankNormal, MeanFieldNormal
from dlrd.fitting.step import Draws, Method
from dlrd.gradients import Estimator, LogDensity, natural_gradient, sticking_the_landing
from dlrd.gradients.sobol import MAX_CHEAP
from dlrd.rates import dynamic_decay

NORMALS = (MeanFieldNormal, FullRankNormal, LowRankNormal)
NATURAL_RATE, ADAM_RATE = 0.3, 1e-2
"""First rates: of natural gradients, and of Adam for families that have none."""
FACTOR, MIN_TRAVEL = 0.3, 3.0
"""Of the rule: gentler than the paper's, with a floor for the windows."""


class Plan(NamedTuple):
    """What the automatic mode does, part by part."""

    has_start: bool = True  # searches for modes; else starts from the family as given
    num_starts: int = 16  # points from which it searches
    is_natural: bool = True  # takes natural gradients where the family has them; else Adam
    draws: Draws | None = None  # None: a Sobol sequence where that pays
    is_averaging: bool = True
    is_updating: bool = True  # brings the curvature of mean-field normals up to date
    has_strides: bool = True  # goes far at once along the way that it has come
    min_travel: float = MIN_TRAVEL
    factor: float = FACTOR
    num_draws: int = 8


def method_for(log_density: LogDensity, family: Family, gradient: Estimator | None, plan: Plan) -> Method:
    """How the steps of an automatic fit are taken."""
    is_natural = plan.is_natural and gradient is None and isinstance(family, NORMALS)
    draws = plan.draws
    if draws is None:
        has_sobol = gradient is None and isinstance(family, NORMALS) and family.noise_size <= MAX_CHEAP
        has_pairs = isinstance(family, MeanFieldNormal) and plan.num_draws % 2 == 0
        sobol: Draws = "sobol_pairs" if has_pairs else "sobol"
        draws = sobol if has_sobol else "independent"
    return Method(
        log_density=log_density,
        optimizer=_optimizer_fn(is_natural, plan.factor, plan.min_travel),
        estimator=natural_gradient if is_natural else gradient or sticking_the_landing,
        num_draws=plan.num_draws,
        is_averaging=plan.is_averaging,
        draws=draws,
    )


@functools.lru_cache(maxsize=16)
def _optimizer_fn(
    is_natural: bool, factor: float, min_travel: float
) -> Callable[[Any], optax.GradientTransformation]:
    """Made once, so that a second fit finds its compiled program."""

    def make(rate: Any) -> optax.GradientTransformation:
        rule = dynamic_decay(rate, factor=factor, min_travel=min_travel)
        return rule if is_natural else optax.chain(optax.scale_by_adam(), rule)

    return make


def first_rate(method: Method) -> float:
    """Of the rule."""
    return NATURAL_RATE if method.estimator is natural_gradient else ADAM_RATE
