"""The variables of a fit under the model's names, and the labels of their entries, as ArviZ writes them."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from dlrd.models import Labelled, Model, coordinate_names

Shapes = dict[str, tuple[int, ...]]
"""Of named variables, without the axis of draws."""


def flat_shapes(names: tuple[str, ...], shape: tuple[int, ...]) -> Shapes:
    """The variables of a model that has none but its coordinates: each by its name, or all as one array z.

    Args:
        names: of the coordinates.
        shape: of a draw.

    Example:
        >>> flat_shapes(("slope", "offset"), (2,)), flat_shapes(("z[0]", "z[1]"), (2,))
        ({'slope': (), 'offset': ()}, {'z': (2,)})
    """
    return {"z": shape} if names == coordinate_names(shape) else dict.fromkeys(names, ())


def as_variables(draws: Any, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Draws as a dict of variables, whatever the model gave: its own, or one array of coordinates."""
    if isinstance(draws, Mapping):
        return {name: np.asarray(values) for name, values in draws.items()}
    array = np.asarray(draws)
    shapes = flat_shapes(names, array.shape[1:])
    columns = array.reshape(len(array), -1).T
    is_whole = shapes == {"z": array.shape[1:]}
    return {"z": array} if is_whole else dict(zip(shapes, columns, strict=True))


def dims_of(name: str, shape: tuple[int, ...], model: Model | None) -> tuple[str, ...]:
    """The names of a variable's axes: the model's, or ArviZ's for axes without one."""
    dims = model.dims.get(name, ()) if isinstance(model, Labelled) else ()
    # The log likelihood of a vector is one number: it lacks the last axes of the data.
    return (
        tuple(dims[: len(shape)])
        if len(dims) >= len(shape)
        else tuple(f"{name}_dim_{i}" for i in range(len(shape)))
    )


def labels_along(dim: str, size: int, model: Model | None) -> np.ndarray:
    """What stands along an axis: the model's labels, or numbers."""
    labels = np.asarray(model.coords.get(dim, ()) if isinstance(model, Labelled) else ())
    return labels if len(labels) == size else np.arange(size)


def entry_names(name: str, shape: tuple[int, ...], model: Model | None) -> list[str]:
    """One for each entry of a variable, with its labels: alpha[AITKIN]."""
    if not shape:
        return [name]
    axes = [
        labels_along(dim, size, model) for dim, size in zip(dims_of(name, shape, model), shape, strict=True)
    ]
    return [f"{name}[{', '.join(map(str, labels))}]" for labels in itertools.product(*axes)]
