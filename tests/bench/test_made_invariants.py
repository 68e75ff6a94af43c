"""What must hold of automatic fits whatever the model: none ends below what is simpler, each on made data."""

from typing import Any

import jax
import numpy as np
import optax
import pytest

import dlrd
from dlrd.bench.posteriors.accuracy import independent_elbo
from dlrd.bench.posteriors.made import MADE
from dlrd.bench.posteriors.models import Posterior
from dlrd.families import Family
from dlrd.fitting.automatic.fit import fit_automatically
from dlrd.fitting.automatic.plan import Plan, default_tolerance
from dlrd.fitting.request import Aim, Request, Sampling, Stepping, Watching

NUM_ERRORS = 4.0
"""Standard errors of a difference of two ELBOs, which have draws of their own."""
RICHER: tuple[Any, ...] = dlrd.LowRankNormal, dlrd.SparseNormal
ADAM_RATES = 1e-2, 1e-3


def check_not_below(posterior: Posterior, found: Family, simpler: Family) -> None:
    """The ELBO of what was found is not below that of something simpler, by more than the tolerance."""
    (elbo, error), (other, other_error) = (
        independent_elbo(posterior.log_density, family, seed) for seed, family in enumerate((found, simpler))
    )
    if np.isfinite(other):
        allowed = default_tolerance(posterior.dim) + NUM_ERRORS * np.hypot(error, other_error)
        assert elbo > other - allowed


def without_search(posterior: Posterior, kind: Any) -> dlrd.Fit:
    """The same fit from N(0, I) as it is."""
    model = dlrd.models.function(posterior.log_density, posterior.dim)
    request = Request(Aim(), Stepping(), Sampling(), Watching(progress=False))
    start = kind.standard(posterior.dim)
    return fit_automatically(model, start, jax.random.key(0), request, Plan(has_start=False))


def with_adam(posterior: Posterior, kind: Any, rate: float, num_gradients: int) -> dlrd.Fit:
    """From N(0, I), with as many gradients."""
    settings: dict[str, Any] = {"key": 0, "num_draws": 8, "steps": num_gradients // 8, "progress": False}
    start = kind.standard(posterior.dim)
    return dlrd.fit(posterior.log_density, start, optimizer=optax.adam(rate), **settings)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", MADE)
def test_no_fit_ends_below_what_is_simpler(name: str) -> None:
    """A family that it contains, itself from N(0, I) without a search, Adam with as many gradients."""
    posterior = MADE[name]()
    fits = {
        kind: dlrd.fit(posterior.log_density, kind.standard(posterior.dim), key=0, progress=False)
        for kind in (dlrd.MeanFieldNormal, *RICHER)
    }
    for kind in RICHER:
        check_not_below(posterior, fits[kind].family, fits[dlrd.MeanFieldNormal].family)
    for kind, fit in fits.items():
        check_not_below(posterior, fit.family, without_search(posterior, kind).family)
        assert fit.verdict is not None
        if kind is not dlrd.SparseNormal:  # N(0, I) has no pattern, and Adam would find none
            for rate in ADAM_RATES:
                adam = with_adam(posterior, kind, rate, fit.verdict.num_gradients)
                check_not_below(posterior, fit.family, adam.family)
