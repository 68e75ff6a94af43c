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
    Audit,
    Audited,
    Emulable,
    Labelled,
    LogDensity,
    Model,
    Observed,
    Predictive,
    Reparameterizable,
    Simulated,
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
    from dlrd.models import priors
    from dlrd.models.from_numpyro import numpyro
    from dlrd.models.from_pymc import pymc
    from dlrd.models.simulators import command, simulator, umbridge

__all__ = [
    "Audit",
    "Audited",
    "Emulable",
    "FunctionModel",
    "HostModel",
    "Labelled",
    "LogDensity",
    "Model",
    "NamedModel",
    "Observed",
    "Predictive",
    "Reparameterizable",
    "Simulated",
    "StartsChains",
    "Support",
    "as_model",
    "command",
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
    "priors",
    "pymc",
    "real",
    "simplex",
    "simulator",
    "umbridge",
]

_LATE = {name: f"simulators.{name}" for name in ("command", "simulator", "umbridge")} | {"priors": "priors"}
"""Names of our own that are resolved late: what they need is not needed for other models."""

_ADAPTERS = {"numpyro": ("from_numpyro", "NumPyro"), "pymc": ("from_pymc", "PyMC")}
"""Of libraries, by the name of these: the module, and what the library calls itself."""


def __getattr__(name: str) -> Any:
    if name in _LATE:
        module, _, attribute = _LATE[name].partition(".")
        value = importlib.import_module(f"dlrd.models.{module}")
        globals()[name] = value = getattr(value, attribute) if attribute else value
        return value
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
