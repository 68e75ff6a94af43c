"""What is asked of PyMC, versions 5 and 6, beyond its public names; no setting of the user's changes."""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import pymc
from pymc.data import MinibatchOp
from pymc.model.transform.optimization import freeze_dims_and_data
from pymc.pytensorf import constant_fold
from pytensor.graph.traversal import ancestors


def jaxified(inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[..., Sequence[Any]]:
    """The graph from inputs to outputs as a jax function, its constants in the current precision."""
    name = "dlrd.models._pytensor"
    if name in sys.modules:
        return sys.modules[name].jaxified(inputs, outputs)
    # PyTensor's jax functions turn double precision on when imported, PyMC's ask XLA for 100 devices. A new
    # thread has the setting itself, where this one may be inside of `with jax.enable_x64(…)`.
    with ThreadPoolExecutor(1) as thread:
        has_x64 = thread.submit(is_double_precision).result()
    flags = os.environ.get("XLA_FLAGS")
    try:
        module = importlib.import_module(name)
    finally:
        jax.config.update("jax_enable_x64", has_x64)
        os.environ.pop("XLA_FLAGS", None)
        if flags is not None:
            os.environ["XLA_FLAGS"] = flags
    return module.jaxified(inputs, outputs)


def is_double_precision() -> bool:
    """Whether jax has numbers of 64 bits, here and now."""
    return bool(jax.config.values["jax_enable_x64"])


def frozen(model: pymc.Model) -> pymc.Model:
    """A copy of the model whose data and lengths are constants, as they are now."""
    # PyMC copies no model with starting values, of which the copy has no need.
    given = dict(model.rvs_to_initial_values)
    try:
        model.rvs_to_initial_values.update(dict.fromkeys(given))
        return freeze_dims_and_data(model)
    finally:
        model.rvs_to_initial_values.update(given)


def has_minibatches(model: pymc.Model) -> bool:
    """Whether the density takes a random part of the data."""
    owners = (each.owner for each in ancestors([*model.basic_RVs, *model.rvs_to_values.values()]))
    return any(owner is not None and isinstance(owner.op, MinibatchOp) for owner in owners)


def shape_of(variable: Any) -> tuple[int, ...] | None:
    """The shape, if it is the same whatever the values of random variables are."""
    if None not in variable.type.shape:
        return variable.type.shape
    (folded,) = constant_fold([variable.shape], raise_not_constant=False)
    return tuple(map(int, folded)) if isinstance(folded, np.ndarray) else None


def predicted(model: pymc.Model, points: list[dict[str, np.ndarray]], seed: int) -> dict[str, np.ndarray]:
    """Data as the model makes them at each point, by PyMC."""
    made: Any = pymc.sample_posterior_predictive(
        points, model=model, random_seed=seed, progressbar=False, return_inferencedata=False
    )
    return {name: values[0] for name, values in made.items()}
