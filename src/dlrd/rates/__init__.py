"""Rules for the learning rate, each an optax transformation that ends a chain."""

from dlrd.rates._stationarity import StationarityState
from dlrd.rates.dynamic_decay import DynamicDecayState, dynamic_decay
from dlrd.rates.power_decay import PowerDecayState, power_decay
from dlrd.rates.sasa import sasa
from dlrd.rates.sasa_plus import sasa_plus
from dlrd.rates.stepwise_decay import StepwiseDecayState, stepwise_decay

__all__ = [
    "DynamicDecayState",
    "PowerDecayState",
    "StationarityState",
    "StepwiseDecayState",
    "dynamic_decay",
    "power_decay",
    "sasa",
    "sasa_plus",
    "stepwise_decay",
]
