"""For those who think in PyMC: from its model to what its other functions and ArviZ take."""

import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from pymc import Model
from pytensor.configdefaults import config

from dlrd import models
from dlrd.families import Family
from dlrd.fitting import arviz_export
from dlrd.fitting import fit as fit_model


def fit(
    model: Model | None = None,
    family: Family | type[Any] | None = None,
    *,
    draws: int = 1000,
    random_seed: Any = 0,
    tolerance: float | None = None,
    max_gradients: int | None = None,
    checkpoint: str | Path | None = None,
    progressbar: bool = True,
) -> Any:
    """Fits a PyMC model, in the manner of `pm.fit`; there is neither a number of steps nor a rate to choose.

    It works in PyMC's precision, `pytensor.config.floatX`, whatever that of jax is. What may be wrong with
    the result is said in a warning. For the `Fit` itself: `dlrd.fit(dlrd.models.pymc(model))`.

    Args:
        model: the PyMC model; inside of `with pm.Model():` that one, if not given.
        family: a class, as `dlrd.MeanFieldNormal`, or a distribution to start from. If not given, richer and
            richer normals are tried.
        draws: how many to take from the fitted distribution.
        random_seed: a whole number or a `jax.random.key`.
        tolerance, max_gradients, checkpoint: as for `dlrd.fit`.
        progressbar: whether to show one.

    Returns:
        An `arviz.InferenceData`; with ArviZ 1 or later, an `xarray.DataTree`. Its groups are those of
        `Fit.to_arviz` without `posterior_predictive`, which `pm.sample_posterior_predictive` makes: the
        `posterior` and its `log_likelihood`, the data, and `fit`, how the fit ended and how good it is.

    Example:
        >>> import dlrd.pymc, pymc as pm
        >>> with pm.Model() as model:
        ...     mean = pm.Normal("mean", 0, 10)
        ...     length = pm.Normal("length", mean, 0.5, observed=[4.8, 5.1, 5.6])
        ...     idata = dlrd.pymc.fit(progressbar=False)
        >>> idata["posterior"]["mean"].shape, idata["fit"].attrs["outcome"]
        ((1, 1000), 'CERTIFIED')
    """
    with jax.enable_x64(config.floatX == "float64"):
        adapted = models.pymc(model)
        start: Any = family.standard(adapted.dim) if isinstance(family, type) else _in_precision(family)
        found = fit_model(
            adapted,
            start,
            key=random_seed,
            tolerance=tolerance,
            max_gradients=max_gradients,
            checkpoint=checkpoint,
            progress=progressbar,
        )
        for warning in found.verdict.warnings if found.verdict else []:
            warnings.warn(warning, stacklevel=2)
        return arviz_export.to_arviz(found, random_seed, draws, has_predictions=False)


def _in_precision(family: Any) -> Any:
    """The family with numbers of the current precision; it may have been made in another."""

    def cast(leaf: Any) -> Any:
        return (
            leaf.astype(float)
            if isinstance(leaf, jax.Array) and jnp.isdtype(leaf.dtype, "real floating")
            else leaf
        )

    return jax.tree.map(cast, family)
