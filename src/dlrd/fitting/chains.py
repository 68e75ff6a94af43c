"""What a fit gives to samplers: where chains may start, and the metric of Hamiltonian ones."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Array, Float

from dlrd.checks import check_count
from dlrd.families import HasCovariance, Moments
from dlrd.models import StartsChains

if TYPE_CHECKING:
    from dlrd.fitting.result import Fit

MAX_DENSE = 2000
"""Dimensions up to which a covariance is given whole."""
NUM_DRAWS = 10_000
"""From which the variances are taken of a family that does not know its own."""


def chain_starts(fit: "Fit", num_chains: int, key: Any) -> Any:
    """Draws, one a chain, in the form that the model's own library takes, or in a row each."""
    check_count("num_chains", num_chains)
    draws = fit.unconstrained_draws(key, num_chains)
    return fit.model.chain_starts(draws) if isinstance(fit.model, StartsChains) else draws


def covariance(fit: "Fit") -> Float[Array, "dim dim"] | None:
    """Of the coordinates, where the family knows it and it is not too large."""
    if len(fit.names) <= MAX_DENSE and isinstance(fit.family, HasCovariance):
        return fit.family.covariance
    return None


def inverse_mass_matrix(fit: "Fit") -> Float[np.ndarray, "dim dim"] | Float[np.ndarray, " dim"]:
    """The covariance of the coordinates, or their variances."""
    whole = covariance(fit)
    if whole is not None:
        return np.asarray(whole)
    if isinstance(fit.family, Moments):
        return np.ravel(np.asarray(fit.family.std)) ** 2
    return np.asarray(fit.unconstrained_draws(0, NUM_DRAWS)).reshape(NUM_DRAWS, -1).var(axis=0)
