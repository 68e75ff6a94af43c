"""Fits in files: arrays and plain data, no pickle, and nothing of the model but its variables in summary."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import equinox as eqx
import jax
import numpy as np

from dlrd.families import LOADABLE, Family, Structured, split
from dlrd.fitting import archive
from dlrd.fitting.checkpoint import from_numpy, to_numpy
from dlrd.fitting.history import History
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.result import Fit
from dlrd.fitting.summary import Summary
from dlrd.fitting.verdict import Rung, Verdict
from dlrd.models import Model

_FORMAT = 4
_STRUCTURE = "structure."
_MONITORED = "monitored."
_COLUMNS = ("mean", "std", "quantiles")


def save(fit: Fit, path: Path) -> None:
    """Writes what `load` reads."""
    leaves = jax.tree.leaves(_parts(fit.family)[0])
    arrays = {f"family.{i}": to_numpy(leaf) for i, leaf in enumerate(leaves)}
    if isinstance(fit.family, Structured):
        arrays |= {f"{_STRUCTURE}{name}": array for name, array in fit.family.structure.items()}
    arrays |= {f"history.{name}": column for name, column in asdict(fit.history).items()}
    arrays |= {f"{_MONITORED}{name}": values for name, values in (fit.monitored or {}).items()}
    variables = fit.summary() if fit.has_variables else None
    if variables is not None:
        arrays |= {f"variables.{name}": getattr(variables, name) for name in _COLUMNS}
    data = {
        "format": _FORMAT,
        "family": type(fit.family).__name__,
        "dtypes": [str(leaf.dtype) for leaf in leaves],
        "outcome": fit.outcome.name,
        "num_steps": fit.num_steps,
        "num_draws": fit.num_draws,
        "seconds": fit.seconds,
        "names": list(fit.names),
        "verdict": None if fit.verdict is None else asdict(fit.verdict),
        "variables": None if variables is None else {"names": variables.names, "shapes": variables.shapes},
    }
    archive.write(path, arrays, data)


def load(path: str | Path, family: Family | None = None, model: Model | None = None) -> Fit:
    """Reads a fit that `Fit.save` wrote.

    Args:
        path: the file.
        family: for families from outside dlrd, a distribution of the same structure; its arrays are replaced.
        model: what was fitted, for draws of its own variables; their summary is in the file.

    Returns:
        The fit, as it was.

    Example:
        >>> import dlrd, optax, tempfile
        >>> optimizer = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-1))
        >>> fit = dlrd.fit(lambda z: -0.5 * (z @ z), dlrd.MeanFieldNormal.standard(2), key=0,
        ...                optimizer=optimizer, steps=100, progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fit.save(f"{folder}/fit.dlrd")
        ...     loaded = dlrd.load(f"{folder}/fit.dlrd")
        >>> loaded
        Fit(MeanFieldNormal, BUDGET, steps=100, decays=0, elbo=1.83...)
    """
    arrays, data = archive.read(Path(path))
    if data.get("format") != _FORMAT:
        raise ValueError(f"{path} is not a saved fit of format {_FORMAT}, got {data.get('format')}")
    fit = Fit(
        family=_family(path, family, arrays, data),
        history=History(**_under("history.", arrays)),
        outcome=Outcome[data["outcome"]],
        num_steps=data["num_steps"],
        num_draws=data["num_draws"],
        seconds=data["seconds"],
        names=tuple(data["names"]),
        model=model,
        monitored=_under(_MONITORED, arrays) or None,
        verdict=_verdict(data["verdict"]) if data.get("verdict") else None,
    )
    if not data.get("variables"):
        return fit
    columns = _under("variables.", arrays)
    shapes = {name: tuple(shape) for name, shape in data["variables"]["shapes"].items()}
    summary = Summary(data["variables"]["names"], **columns, sentence=fit.sentence, shapes=shapes)
    return replace(fit, saved_summary=summary)


def _family(path: Any, family: Family | None, arrays: dict[str, np.ndarray], data: dict[str, Any]) -> Family:
    saved = [arrays[f"family.{i}"] for i in range(len(data["dtypes"]))]
    if family is None:
        if data["family"] not in LOADABLE:
            raise ValueError(
                f"{path} holds a {data['family']}, which dlrd does not know; "
                "pass one of the same structure as family"
            )
        structure = _under(_STRUCTURE, arrays)
        kind: Any = LOADABLE[data["family"]]
        template = kind.of_structure(structure) if structure else kind.standard(1)
        shapes_differ = False
    else:
        template = family
        shapes_differ = [a.shape for a in saved] != [
            leaf.shape for leaf in jax.tree.leaves(family) if eqx.is_array(leaf)
        ]
    dynamic, static = _parts(template)
    leaves, treedef = jax.tree.flatten(dynamic)
    if shapes_differ or len(leaves) != len(saved):
        raise ValueError(f"family must have the structure of the {data['family']} saved in {path}")
    dtypes = [jax.ShapeDtypeStruct((), dtype) for dtype in data["dtypes"]]
    restored = treedef.unflatten(list(map(from_numpy, saved, dtypes)))
    return eqx.combine(restored, static)


def _parts(family: Any) -> tuple[Any, Any]:
    """The arrays that are saved, of a family with a structure beside them what is trained, and the rest."""
    if isinstance(family, Structured):
        return split(cast("Any", family))
    return eqx.partition(family, eqx.is_array)


def _under(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): each for name, each in arrays.items() if name.startswith(prefix)}


def _verdict(saved: dict[str, Any]) -> Verdict:
    rungs = [Rung(*rung) for rung in saved.pop("rungs")]
    return Verdict(**saved, rungs=rungs)
