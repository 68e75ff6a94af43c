"""Estimators of the ELBO's gradient: log density, family, key, number of draws -> `Estimate`."""

from dlrd.gradients.estimate import Estimate, Estimator, LogDensity
from dlrd.gradients.reparameterized import reparameterized, sticking_the_landing
from dlrd.gradients.score_function import score_function

__all__ = [
    "Estimate",
    "Estimator",
    "LogDensity",
    "reparameterized",
    "score_function",
    "sticking_the_landing",
]
