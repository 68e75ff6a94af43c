"""Variational inference without a learning rate to tune.

Names are resolved when first used, so that `import dlrd` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlrd import models
    from dlrd.compilation import compilation_cache
    from dlrd.divergence import jeffreys, kl
    from dlrd.families import FullRankNormal, LowRankNormal, MeanFieldNormal, Mixture, SparseNormal
    from dlrd.fitting import Fit, Outcome, fit, fit_many, load
    from dlrd.gradients import natural_gradient, reparameterized, score_function, sticking_the_landing
    from dlrd.models import (
        correlation_cholesky,
        greater_than,
        interval,
        less_than,
        ordered,
        positive,
        real,
        simplex,
    )
    from dlrd.rates import dynamic_decay, guard, power_decay, sasa, sasa_plus, stepwise_decay

__version__ = "0.1.0"

__all__ = [
    "Fit",
    "FullRankNormal",
    "LowRankNormal",
    "MeanFieldNormal",
    "Mixture",
    "Outcome",
    "SparseNormal",
    "compilation_cache",
    "correlation_cholesky",
    "dynamic_decay",
    "fit",
    "fit_many",
    "greater_than",
    "guard",
    "interval",
    "jeffreys",
    "kl",
    "less_than",
    "load",
    "models",
    "natural_gradient",
    "ordered",
    "positive",
    "power_decay",
    "real",
    "reparameterized",
    "sasa",
    "sasa_plus",
    "score_function",
    "simplex",
    "stepwise_decay",
    "sticking_the_landing",
]

_ROOMS = {
    "compilation": ["compilation_cache"],
    "divergence": ["jeffreys", "kl"],
    "families": ["FullRankNormal", "LowRankNormal", "MeanFieldNormal", "Mixture", "SparseNormal"],
    "fitting": ["Fit", "Outcome", "fit", "fit_many", "load"],
    "gradients": ["natural_gradient", "reparameterized", "score_function", "sticking_the_landing"],
    "models": [
        "correlation_cholesky",
        "greater_than",
        "interval",
        "less_than",
        "ordered",
        "positive",
        "real",
        "simplex",
    ],
    "rates": ["dynamic_decay", "guard", "power_decay", "sasa", "sasa_plus", "stepwise_decay"],
}
_OTHER_ROOMS = ("bench", "numpyro", "paper", "plots", "pymc", "report", "torch")
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _ROOM_OF:
        value = getattr(importlib.import_module(f"dlrd.{_ROOM_OF[name]}"), name)
    elif name in _ROOMS or name in _OTHER_ROOMS:
        value = importlib.import_module(f"dlrd.{name}")
    else:
        raise AttributeError(f"module 'dlrd' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
