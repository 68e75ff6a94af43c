"""What a log density can come from, one kind a file. Anything that meets `Model` can be fitted.

Adapters are resolved when first used, so that the libraries they are for need not be there.
"""

import importlib
from typing import TYPE_CHECKING, Any

from dlrd.models.flat import FunctionModel
from dlrd.models.functions import as_model, function
from dlrd.models.host import HostModel, host
from dlrd.models.named import NamedModel
from dlrd.models.names import coordinate_names, free_names
from dlrd.models.protocol import (
    Labelled,
    LogDensity,
    Model,
    Observed,
    Predictive,
    Reparameterizable,
    StartsChains,
)
from dlrd.models.second_order import hessian_products
from dlrd.models.supports import (
    Support,
    correlation_cholesky,
    greater_than,
    interval,
    less_than,
    ordered,
    positive,
    real,
    simplex,
)

if TYPE_CHECKING:
    from dlrd.models.from_numpyro import numpyro
    from dlrd.models.from_pymc import pymc

__all__ = [
    "FunctionModel",
    "HostModel",
    "Labelled",
    "LogDensity",
    "Model",
    "NamedModel",
    "Observed",
    "Predictive",
    "Reparameterizable",
    "StartsChains",
    "Support",
    "as_model",
    "coordinate_names",
    "correlation_cholesky",
    "free_names",
    "function",
    "greater_than",
    "hessian_products",
    "host",
    "interval",
    "less_than",
    "numpyro",
    "ordered",
    "positive",
    "pymc",
    "real",
    "simplex",
]

_ADAPTERS = {"numpyro": ("from_numpyro", "NumPyro"), "pymc": ("from_pymc", "PyMC")}
"""Of libraries, by the name of these: the module, and what the library calls itself."""


def __getattr__(name: str) -> Any:
    if name not in _ADAPTERS:
        raise AttributeError(f"module 'dlrd.models' has no attribute {name!r}")
    module, library = _ADAPTERS[name]
    try:
        value = getattr(importlib.import_module(f"dlrd.models.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(
            f"dlrd.models.{name} needs {library}, which is not installed: pip install {name}", name=name
        ) from error
    globals()[name] = value
    return value
