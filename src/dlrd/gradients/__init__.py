"""Estimators of the ELBO's gradient: model, family, key, number of draws -> `Estimate`."""

from dlrd.gradients.estimate import Estimate, Estimator
from dlrd.gradients.natural import natural_gradient
from dlrd.gradients.reparameterized import reparameterized, sticking_the_landing
from dlrd.gradients.score_function import score_function

__all__ = [
    "Estimate",
    "Estimator",
    "natural_gradient",
    "reparameterized",
    "score_function",
    "sticking_the_landing",
]
