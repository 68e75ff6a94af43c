"""What a log density can come from, one kind a file. Anything that meets `Model` can be fitted."""

from dlrd.models.functions import FunctionModel, as_model, function
from dlrd.models.host import HostModel, host
from dlrd.models.names import coordinate_names
from dlrd.models.protocol import LogDensity, Model
from dlrd.models.second_order import hessian_products

__all__ = [
    "FunctionModel",
    "HostModel",
    "LogDensity",
    "Model",
    "as_model",
    "coordinate_names",
    "function",
    "hessian_products",
    "host",
]
