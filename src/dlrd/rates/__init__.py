"""Rules for the learning rate, each an optax transformation that ends a chain."""

from dlrd.rates._stationarity import StationarityState
from dlrd.rates.dynamic_decay import DynamicDecayState, dynamic_decay
from dlrd.rates.guard import GuardState, guard
from dlrd.rates.power_decay import PowerDecayState, power_decay
from dlrd.rates.sasa import sasa
from dlrd.rates.sasa_plus import sasa_plus
from dlrd.rates.stepwise_decay import StepwiseDecayState, stepwise_decay

__all__ = [
    "DynamicDecayState",
    "GuardState",
    "PowerDecayState",
    "StationarityState",
    "StepwiseDecayState",
    "dynamic_decay",
    "guard",
    "power_decay",
    "sasa",
    "sasa_plus",
    "stepwise_decay",
]
