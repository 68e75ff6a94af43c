"""What may be wrong with an automatic fit, and what to do about it."""

from collections.abc import Sequence

import equinox as eqx
import jax
import numpy as np

from dlrd.families import Family, Moments, member_of
from dlrd.fitting.automatic.judge.certificate import Certificate
from dlrd.fitting.automatic.state import AutomaticState, Search
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.verdict import FAIR_TAIL

MIN_DRIFT = 0.1
"""In standard deviations, between the two stretches of the tail average."""


def warnings(
    state: AutomaticState,
    family: Family,
    certificate: Certificate | None,
    outcome: Outcome,
    tail_shape: float,
    names: Sequence[str],
) -> list[str]:
    """Sentences about what a user should know of the family that is returned."""
    found = [] if certificate is None else _of_draws(certificate)
    found += _of_search(state.search)
    if tail_shape > FAIR_TAIL:
        way_out = getattr(family, "richer", "a richer family, or another parameterisation")
        found.append(
            f"the posterior has heavier tails or another shape than the family (k̂ > {FAIR_TAIL}): "
            f"try {way_out}."
        )
    drift = _drift(state, names) if outcome is Outcome.BUDGET else None
    if drift is not None:
        found.append(f"{drift} until the end: raise max_gradients.")
    if state.num_rollbacks:
        found.append(
            f"the ELBO collapsed {state.num_rollbacks} time(s); the fit went back and took smaller steps."
        )
    return found


def _of_draws(certificate: Certificate) -> list[str]:
    found = []
    if certificate.share_bad:
        found.append(
            f"log_density is not finite at {certificate.share_bad:.1%} of the draws, which were left out; "
            "with any such draw the true ELBO is minus infinity. Transform bounded parameters to an "
            "unbounded scale (log, logit)."
        )
    if certificate.share_failed:
        found.append(
            f"{certificate.share_failed:.1%} of the draws failed and were left out; where they always fail, "
            "the fit does not see the density."
        )
    return found


def _of_search(search: Search) -> list[str]:
    found = []
    if search.other_modes:
        lower = ", ".join(f"{each:.2g}" for each in search.other_modes)
        found.append(
            f"{len(search.other_modes)} other mode(s) were found, with an ELBO lower by {lower}; the fit "
            "describes the highest one alone, and there may be more (starts= looks further). A mixture could "
            "cover several."
        )
    if not search.has_mode:
        found.append(
            "no mode was found: the density grows without bound or has a ridge, as a centred hierarchy has. "
            "The start is the best of short runs; a non-centred parameterisation would help."
        )
    return found


def _drift(state: AutomaticState, names: Sequence[str]) -> str | None:
    """The coordinate whose mean moved most between the two stretches of the tail, if that is far."""
    average, family = state.steps.average, member_of(state.family)
    if average is None or not average.num_open[0] or not isinstance(family, Moments):
        return None
    first, second = (
        member_of(eqx.combine(jax.tree.map(lambda leaf: leaf[0], stretch), state.rest)).mean
        for stretch in (average.closed, average.open)
    )
    moved = np.abs(np.asarray((second - first) / family.std))
    worst = int(np.argmax(moved))
    return f"{names[worst]} still drifted, by {moved[worst]:.1f} sd," if moved[worst] > MIN_DRIFT else None
