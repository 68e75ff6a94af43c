"""What may be wrong with an automatic fit, and what to do about it."""

import jax
import numpy as np

from dlrd.families import FullRankNormal, MeanFieldNormal
from dlrd.fitting.automatic.course import Course
from dlrd.fitting.automatic.plan import NORMALS
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.verdict import FAIR_TAIL
from dlrd.gradients.curvature import Curved

MIN_DRIFT = 0.1
"""In standard deviations, between the two stretches of the tail average."""


def warnings(course: Course, outcome: Outcome, tail_shape: float) -> list[str]:
    """Sentences about what a user should know."""
    found = []
    seen = course.looks[-1] if course.looks else None
    if seen is not None and seen.share_bad:
        found.append(
            f"log_density is not finite at {seen.share_bad:.1%} of the draws, which were left out; with any "
            "such draw the true ELBO is minus infinity. Transform bounded parameters to an unbounded scale "
            "(log, logit)."
        )
    if course.other_modes:
        lower = ", ".join(f"{each:.2g}" for each in course.other_modes)
        found.append(
            f"{len(course.other_modes)} other mode(s) were found, with an ELBO lower by {lower}; the fit "
            "describes the highest one alone, and there may be more (starts= looks further). A mixture could "
            "cover several."
        )
    if not course.is_at_mode:
        found.append(
            "no mode was found: the density grows without bound or has a ridge, as a centred hierarchy has. "
            "The start is the best of short runs; a non-centred parameterisation would help."
        )
    if tail_shape > FAIR_TAIL:
        family = course.family.family if isinstance(course.family, Curved) else course.family
        if isinstance(family, MeanFieldNormal):
            way_out = "try dlrd.FullRankNormal, or a flow"
        elif isinstance(family, FullRankNormal):
            way_out = "try a flow, a mixture, or another parameterisation"
        else:
            way_out = "try a richer family, or another parameterisation"
        found.append(
            f"the posterior has heavier tails or another shape than the family (k̂ > {FAIR_TAIL}): {way_out}."
        )
    drift = _drift(course)
    if outcome is Outcome.BUDGET and drift is not None:
        found.append(f"{drift} until the end: raise max_gradients.")
    if course.num_rollbacks:
        found.append(
            f"the ELBO collapsed {course.num_rollbacks} time(s); the fit went back and took smaller steps."
        )
    return found


def _drift(course: Course) -> str | None:
    """The coordinate whose mean moved most between the two stretches of the tail, if that is far."""
    average = course.state.average
    family = course.found
    family = family.family if isinstance(family, Curved) else family
    if average is None or not average.num_open[0] or not isinstance(family, NORMALS):
        return None
    first = jax.tree.map(lambda leaf: leaf[0], average.closed)
    second = jax.tree.map(lambda leaf: leaf[0], average.open)
    first, second = (each.family if isinstance(each, Curved) else each for each in (first, second))
    moved = np.abs(np.asarray((second.loc - first.loc) / family.std))
    worst = int(np.argmax(moved))
    return f"z[{worst}] still drifted, by {moved[worst]:.1f} sd," if moved[worst] > MIN_DRIFT else None
