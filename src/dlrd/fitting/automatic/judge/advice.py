"""What may be wrong with an automatic fit, and what to do about it."""

from collections.abc import Sequence

import equinox as eqx
import jax
import numpy as np

from dlrd.families import Family, Moments, member_of
from dlrd.fitting.automatic.judge.certificate import Certificate
from dlrd.fitting.automatic.judge.stopping import CERTAIN
from dlrd.fitting.automatic.state import AutomaticState, Search
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.verdict import FAIR_TAIL
from dlrd.models import Model, Reparameterizable

MAX_NAMES = 3
"""Of coordinates that a sentence lists."""
MIN_DRIFT = 0.1
"""In standard deviations, between the two stretches of the tail average."""


def warnings(
    state: AutomaticState,
    family: Family,
    certificate: Certificate | None,
    outcome: Outcome,
    is_far: bool,
    model: Model,
    tolerance: float,
) -> list[str]:
    """Sentences about what a user should know of the family that is returned.

    Args:
        state: of the fit.
        family: what is returned.
        certificate: of it.
        outcome: why the fit ended.
        is_far: whether the tail of the ratios tells that the family is far from the posterior.
        model: what was fitted.
        tolerance: of the fit.
    """
    found = [] if certificate is None else of_draws(certificate)
    found += of_search(state.search, model)
    if is_far:
        found += of_tail(family, model, has_funnel=state.search.funnel is not None)
    if outcome is Outcome.BUDGET:
        found += of_budget(state.num_gradients, certificate, tolerance)
        drift = _drift(state, model.names)
        if drift is not None:
            found.append(f"{drift} until the end.")
    if state.num_rollbacks:
        found.append(
            f"the ELBO collapsed {state.num_rollbacks} time(s); the fit went back and took smaller steps."
        )
    return found


def of_tail(family: Family, model: Model, has_funnel: bool = False) -> list[str]:
    """What a large k̂ means; of a funnel it was said before."""
    way_out = getattr(family, "richer", "a richer family, or another parameterisation")
    if not has_funnel:
        way_out += _in_code("; a centred hierarchy may gain from", model, range(model.dim))
    return [
        f"the posterior has heavier tails or another shape than the family (k̂ > {FAIR_TAIL}): try {way_out}."
    ]


def of_draws(certificate: Certificate) -> list[str]:
    """What a certificate's draws have shown, besides the gap."""
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


def of_budget(num_gradients: int, certificate: Certificate | None, tolerance: float) -> list[str]:
    """What a fit that has not arrived would need; with twice the steps, an average is about twice as near."""
    if certificate is None or not np.isfinite(certificate.gap_bound):
        return ["the budget ended before the fit was sure: raise max_gradients."]
    times = max(certificate.gap_bound / (CERTAIN * tolerance), 2.0)
    needed = float(f"{times * num_gradients:.1g}")
    return [
        f"the budget ended while the ELBO was still up to {certificate.gap_bound:.2g} nats below the best "
        f"nearby, as far as gradients tell: max_gradients={needed:,.0f} would about be enough."
    ]


def of_search(search: Search, model: Model) -> list[str]:
    """What was found besides the start."""
    found, names = [], model.names
    if search.other_modes:
        lower = ", ".join(f"{each:.2g}" for each in search.other_modes)
        found.append(
            f"{len(search.other_modes)} other mode(s) were found, with an ELBO lower by {lower}; the fit "
            "describes the highest one alone, and there may be more (starts= looks further). A mixture could "
            "cover several."
        )
    if search.funnel is not None:
        neck, others = search.funnel
        shown = ", ".join(names[i] for i in others[:MAX_NAMES])
        more = f" and {len(others) - MAX_NAMES} more" if len(others) > MAX_NAMES else ""
        found.append(
            f"how narrow the posterior is along {shown}{more} depends on {names[neck]}, as in a funnel, "
            "which no normal can follow: another parameterisation (non-centred in place of centred, or the "
            f"other way round) would help{_in_code(', as', model, others)}."
        )
    return found


def _in_code(word: str, model: Model, coordinates: Sequence[int]) -> str:
    """How the model's own library parameterises otherwise, if it is known."""
    code = model.reparameterization(coordinates) if isinstance(model, Reparameterizable) else None
    return "" if code is None else f"{word} {code}"


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
