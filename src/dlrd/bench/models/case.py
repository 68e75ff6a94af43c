"""What is compared: a model, and how its own library samples it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dlrd.models import Model

SampleFn = Callable[[int], dict[str, np.ndarray]]
"""A seed to draws by NUTS of the model's own library: variables by name, one draw a row."""


class Case(NamedTuple):
    """A model of a library."""

    name: str
    kind: str  # as "regression"
    make: Callable[[], tuple[Model, SampleFn]]  # makes the data, too
