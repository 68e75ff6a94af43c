"""What a fit gives back."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from dlrd.families import LOADABLE, Family, Quantiled, Structured, split
from dlrd.fitting import archive
from dlrd.fitting.checkpoint import from_numpy, to_numpy
from dlrd.fitting.history import History
from dlrd.fitting.inputs import as_key
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.summary import Summary, summarize, summarize_draws
from dlrd.fitting.verdict import Rung, Verdict
from dlrd.models import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMAT = 3
_STRUCTURE = "structure."
_SUMMARY_DRAWS = 10_000


@dataclass(frozen=True)
class Fit:
    """A fitted variational distribution, with how it came about."""

    family: Family  # the fitted distribution
    history: History
    outcome: Outcome  # why the fit ended
    num_steps: int  # steps done
    num_draws: int  # draws a step
    seconds: float  # wall time of the call, compilation included
    names: tuple[str, ...]  # of the coordinates that are fitted
    model: Model | None = None  # what was fitted; not in files
    monitored: dict[str, np.ndarray] | None = None  # what `monitor` gave, after the steps under "step"
    verdict: Verdict | None = None  # how sure an automatic fit is

    def __repr__(self) -> str:
        return (
            f"Fit({type(self.family).__name__}, {self.outcome.name}, steps={self.num_steps}, "
            f"decays={len(self.history.decays)}, elbo={self.elbo:.6g})"
        )

    @property
    def elbo(self) -> float:
        """The ELBO: that of the verdict, or else averaged over the last tenth of the history."""
        if self.verdict is not None and np.isfinite(self.verdict.elbo):
            return self.verdict.elbo
        newest = self._last_tenth(self.history.elbo)
        return float(np.mean(newest)) if len(newest) else float("nan")

    @property
    def elbo_error(self) -> float:
        """The Monte Carlo standard error of `elbo`."""
        if self.verdict is not None and np.isfinite(self.verdict.elbo):
            return self.verdict.elbo_error
        newest = self._last_tenth(self.history.elbo)
        errors = self._last_tenth(self.history.elbo_error)
        if np.isfinite(errors).all() and len(errors):
            return float(np.sqrt(np.sum(errors**2)) / len(errors))
        # A single draw a step has no error of its own; the spread of the steps stands in.
        return float(np.std(newest, ddof=1) / np.sqrt(len(newest))) if len(newest) > 1 else float("nan")

    def sample(self, key: Any, num: int) -> Any:
        """`num` independent draws from the fitted distribution, stacked in the first axis.

        Args:
            key: a whole number or a `jax.random.key`.
            num: how many.

        Returns:
            An array; for a model with variables of its own, a dict of these.
        """
        draws = _sample(self.family, as_key(key), num)
        return draws if self.model is None else self.model.constrained(draws)

    def summary(self) -> Summary:
        """Mean, standard deviation and quantiles of each coordinate; with the verdict of an automatic fit.

        Exact for the normal families; from 10,000 draws with a fixed key for all others.
        """
        verdict = [] if self.verdict is None else self.verdict.sentences
        sentence = "\n".join([self.outcome.sentence, *verdict])
        has_variables = isinstance(jax.eval_shape(lambda: self.sample(0, 1)), dict)
        if isinstance(self.family, Quantiled) and not has_variables:
            return summarize(self.family, self.names, sentence)
        return summarize_draws(self.sample(0, _SUMMARY_DRAWS), self.names, sentence)

    def plot(self, path: str | Path | None = None) -> "Figure":
        """A figure of the fit's course and its result; also written to `path` (png, pdf, svg) if given."""
        from dlrd.plots import plot_fit

        figure = plot_fit(self)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def report(self, path: str | Path) -> None:
        """Writes one self-contained HTML page about the fit."""
        from dlrd.report import fit_page

        Path(path).write_text(fit_page(self), encoding="utf-8")

    def to_arviz(self, key: Any = 0, num: int = 1000) -> Any:
        """Draws from the fitted distribution for ArviZ, as one chain: the model's variables, or "z"."""
        import arviz

        draws = self.sample(key, num)
        variables = draws if isinstance(draws, dict) else {"z": draws}
        posterior = {name: np.asarray(values)[None] for name, values in variables.items()}
        if hasattr(arviz, "InferenceData"):  # before version 1
            return arviz.from_dict(posterior=posterior)
        return arviz.from_dict({"posterior": posterior})

    def save(self, path: str | Path) -> None:
        """Writes the fit to one file that `dlrd.load` reads; no pickle, and no data of the model."""
        leaves = jax.tree.leaves(_parts(self.family)[0])
        arrays = {f"family.{i}": to_numpy(leaf) for i, leaf in enumerate(leaves)}
        if isinstance(self.family, Structured):
            arrays |= {f"{_STRUCTURE}{name}": array for name, array in self.family.structure.items()}
        arrays |= {f"history.{name}": column for name, column in asdict(self.history).items()}
        arrays |= {f"monitored.{name}": values for name, values in (self.monitored or {}).items()}
        data = {
            "format": _FORMAT,
            "family": type(self.family).__name__,
            "dtypes": [str(leaf.dtype) for leaf in leaves],
            "outcome": self.outcome.name,
            "num_steps": self.num_steps,
            "num_draws": self.num_draws,
            "seconds": self.seconds,
            "names": list(self.names),
            "verdict": None if self.verdict is None else asdict(self.verdict),
        }
        archive.write(Path(path), arrays, data)

    def _last_tenth(self, column: np.ndarray) -> np.ndarray:
        return column[-max(1, len(column) // 10) :]


@eqx.filter_jit
def _sample(family: Family, key: Array, num: int) -> Array:
    return family.sample(key, (num,))


def load(path: str | Path, family: Family | None = None, model: Model | None = None) -> Fit:
    """Reads a fit that `Fit.save` wrote.

    Args:
        path: the file.
        family: for families from outside dlrd, a distribution of the same structure; its arrays are replaced.
        model: what was fitted, for draws of its own variables.

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
    saved = [arrays[f"family.{i}"] for i in range(len(data["dtypes"]))]
    if family is None:
        if data["family"] not in LOADABLE:
            raise ValueError(
                f"{path} holds a {data['family']}, which dlrd does not know; "
                "pass one of the same structure as family"
            )
        template = _template(LOADABLE[data["family"]], arrays)
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
    return Fit(
        family=eqx.combine(restored, static),
        history=History(**{name: arrays[f"history.{name}"] for name in History.__annotations__}),
        outcome=Outcome[data["outcome"]],
        num_steps=data["num_steps"],
        num_draws=data["num_draws"],
        seconds=data["seconds"],
        names=tuple(data["names"]),
        model=model,
        monitored={
            name.removeprefix("monitored."): values
            for name, values in arrays.items()
            if name.startswith("monitored.")
        }
        or None,
        verdict=_verdict(data["verdict"]) if data.get("verdict") else None,
    )


def _parts(family: Any) -> tuple[Any, Any]:
    """The arrays that are saved, of a family with a structure beside them what is trained, and the rest."""
    if isinstance(family, Structured):
        return split(cast("Any", family))
    return eqx.partition(family, eqx.is_array)


def _template(kind: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A family of the kind and structure of the saved one."""
    structure = {
        name.removeprefix(_STRUCTURE): array for name, array in arrays.items() if name.startswith(_STRUCTURE)
    }
    return kind.of_structure(structure) if structure else kind.standard(1)


def _verdict(saved: dict[str, Any]) -> Verdict:
    rungs = [Rung(*rung) for rung in saved.pop("rungs")]
    return Verdict(**saved, rungs=rungs)
