"""What a fitted model says about data: new ones, and how likely those are that it has seen."""

from typing import TYPE_CHECKING, Any

import jax
from jaxtyping import Array

from dlrd.fitting.inputs import as_key
from dlrd.models import Observed, Predictive

if TYPE_CHECKING:
    from dlrd.fitting.result import Fit

_STREAM = 1
"""Folded into the key of the draws, for the noise of the data."""


def predictions(fit: "Fit", key: Any, num: int) -> dict[str, Array]:
    """Data as the model makes them, one set a draw."""
    _check_model(fit, "fit.predict")
    if not isinstance(fit.model, Predictive):
        raise TypeError(
            "fit.predict needs a model that makes data, as those of dlrd.models.numpyro and dlrd.models.pymc "
            f"do, or one with a method predictions(draws, key); got a {type(fit.model).__name__}"
        )
    typed = as_key(key)
    return fit.model.predictions(fit.unconstrained_draws(typed, num), jax.random.fold_in(typed, _STREAM))


def log_likelihood(fit: "Fit", key: Any, num: int) -> dict[str, Array]:
    """Of each observation, one set a draw."""
    _check_model(fit, "fit.log_likelihood")
    if not isinstance(fit.model, Observed):
        raise TypeError(
            "fit.log_likelihood needs a model that knows its data, as those of dlrd.models.numpyro and "
            f"dlrd.models.pymc do, or one that meets dlrd.models.Observed; got a {type(fit.model).__name__}"
        )
    return fit.model.log_likelihood(fit.unconstrained_draws(key, num))


def _check_model(fit: "Fit", name: str) -> None:
    if fit.model is None:
        raise ValueError(f"{name} needs the model, which files do not keep: dlrd.load(path, model=model)")
