"""What a fit gives back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from dlrd.checks import check_count
from dlrd.families import Family, Quantiled
from dlrd.fitting import arviz_export, chains, predictions
from dlrd.fitting.history import History
from dlrd.fitting.inputs import as_key
from dlrd.fitting.labels import as_variables
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.summary import Summary, summarize, summarize_draws
from dlrd.fitting.verdict import Verdict
from dlrd.models import Model, Simulated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    saved_summary: Summary | None = None  # of the model's own variables, which a file keeps for it

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
        return float(np.nanmean(newest)) if np.isfinite(newest).any() else float("nan")

    @property
    def elbo_error(self) -> float:
        """The Monte Carlo standard error of `elbo`."""
        if self.verdict is not None and np.isfinite(self.verdict.elbo):
            return self.verdict.elbo_error
        newest = self._last_tenth(self.history.elbo)
        errors = self._last_tenth(self.history.elbo_error)
        newest, errors = newest[np.isfinite(newest)], errors[np.isfinite(newest)]
        with np.errstate(over="ignore", invalid="ignore"):  # of a run that has exploded
            if np.isfinite(errors).all() and len(errors):
                return float(np.sqrt(np.sum(errors**2)) / len(errors))
            # A single draw a step has no error of its own; the spread of the steps stands in.
            return float(np.std(newest, ddof=1) / np.sqrt(len(newest))) if len(newest) > 1 else float("nan")

    @property
    def sentence(self) -> str:
        """How the fit ended, in words, with the verdict of an automatic fit."""
        return "\n".join([self.outcome.sentence, *(self.verdict.sentences if self.verdict else [])])

    @property
    def has_variables(self) -> bool:
        """Whether answers are in variables of the model's own, not in the coordinates that are fitted."""
        if self.model is None:
            return self.saved_summary is not None
        return isinstance(jax.eval_shape(lambda: self.sample(0, 1)), Mapping)

    def sample(self, key: Any, num: int) -> Any:
        """`num` independent draws from the fitted distribution, stacked in the first axis.

        The same key gives the same draws here, in `predict`, `log_likelihood` and `to_arviz`.

        Args:
            key: a whole number or a `jax.random.key`.
            num: how many.

        Returns:
            An array; for a model with variables of its own, a dict of these.
        """
        draws = self.unconstrained_draws(key, num)
        return draws if self.model is None else self.model.constrained(draws)

    def unconstrained_draws(self, key: Any, num: int) -> Float[Array, "num dim"]:
        """The draws behind those of `sample`, in the coordinates that are fitted, as `names` has them."""
        check_count("num", num)
        return _sample(self.family, as_key(key), int(num))

    def predict(self, key: Any, num: int) -> dict[str, Array]:
        """Data as the model makes them, one set for each of the draws that `sample` gives.

        Args:
            key: a whole number or a `jax.random.key`.
            num: how many.

        Returns:
            The posterior predictive distribution: arrays under the names of the data, a draw a row. Of models
            that can make data (`dlrd.models.Predictive`).
        """
        return predictions.predictions(self, key, num)

    def log_likelihood(self, key: Any, num: int) -> dict[str, Array]:
        """The log likelihood of each observation, one set for each of the draws that `sample` gives.

        Args:
            key: a whole number or a `jax.random.key`.
            num: how many.

        Returns:
            Arrays under the names of the data, a draw a row. Of models that know their data
            (`dlrd.models.Observed`).
        """
        return predictions.log_likelihood(self, key, num)

    def summary(self, var_names: str | Sequence[str] | None = None) -> Summary:
        """Mean, standard deviation and quantiles, a row for each scalar, and how the fit ended.

        Of the model's own variables on their natural scale, from 10,000 draws with a fixed key. Of a model
        that has none, of its coordinates: exact for the normal families.

        Args:
            var_names: the variables, or single rows, to show; all if not given.
        """
        whole = self._summary()
        return whole if var_names is None else whole.of(var_names)

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
        """The fit for ArviZ, with `num` draws as one chain: those that `sample` gives for the key.

        Groups: `posterior`, with the model's dims and coords; `unconstrained_posterior`, the coordinates that
        were fitted; `posterior_predictive`, `log_likelihood`, `observed_data` and `constant_data` of models
        that know their data; and `fit`: `location`, `scale` and, up to 2,000 dimensions, `covariance` of the
        fitted distribution; `elbo`, `learning_rate` and `snr` over the steps; the numbers of the verdict,
        `pareto_k` among them; `log_p` and `log_q` of each draw, as `loo_approximate_posterior` takes them.

        Args:
            key: a whole number or a `jax.random.key`.
            num: how many draws.

        Returns:
            An `arviz.InferenceData`; with ArviZ 1 or later, an `xarray.DataTree`.
        """
        return arviz_export.to_arviz(self, key, num)

    def inits(self, num_chains: int, key: Any = 0) -> Any:
        """Draws for a sampler to start its chains from.

        Args:
            num_chains: how many.
            key: a whole number or a `jax.random.key`.

        Returns:
            In the form that the model's own library takes (`dlrd.models.StartsChains`); of any other model,
            an array of unconstrained draws, a chain a row.
        """
        return chains.chain_starts(self, num_chains, key)

    def inverse_mass_matrix(self) -> Float[np.ndarray, "dim dim"] | Float[np.ndarray, " dim"]:
        """The covariance of the fitted coordinates, for the metric of Hamiltonian Monte Carlo.

        Returns:
            The covariance, of families that know it, up to 2,000 dimensions; else the variances, for a
            diagonal metric. In the order of `names`.
        """
        return chains.inverse_mass_matrix(self)

    def save(self, path: str | Path) -> None:
        """Writes the fit to one file that `dlrd.load` reads.

        No pickle, and nothing of the model but a summary of its variables.
        """
        from dlrd.fitting.saved import save

        save(self, Path(path))

    def _summary(self) -> Summary:
        if self.model is None and self.saved_summary is not None:
            return self.saved_summary
        if isinstance(self.family, Quantiled) and not self.has_variables:
            return summarize(self.family, self.names, self.sentence)
        variables = as_variables(self.sample(0, _SUMMARY_DRAWS), self.names)
        return summarize_draws(variables, self.sentence, self.model)

    def _last_tenth(self, column: np.ndarray) -> np.ndarray:
        return column[-max(1, len(column) // 10) :]


def with_runs_told(fit: Fit) -> Fit:
    """The fit whose verdict also tells of the runs, where the model is run outside."""
    if not isinstance(fit.model, Simulated) or fit.verdict is None:
        return fit
    found = [*fit.verdict.warnings, *fit.model.runs_warnings]
    return replace(fit, verdict=replace(fit.verdict, warnings=found, notes=fit.model.runs_notes))


@eqx.filter_jit
def _sample(family: Family, key: Array, num: int) -> Array:
    return family.sample(key, (num,))
