"""The larger problems of the benchmarks, each with four kinds of normals.

They have no mode at which a search for the best normals could start: it starts from what a fit has found.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax

from dlrd.bench.peers.answer import is_finite
from dlrd.bench.posteriors.cases import Kept, Settings
from dlrd.bench.posteriors.larger import LARGER, larger_posteriors
from dlrd.bench.posteriors.made import MADE
from dlrd.bench.posteriors.models import Posterior
from dlrd.bench.posteriors.optimum import Normal, optimum
from dlrd.families import FullRankNormal, LowRankNormal, MeanFieldNormal, SparseNormal
from dlrd.families.curvature import MAX_WHOLE
from dlrd.fitting.automatic.plan import default_tolerance
from dlrd.models import LogDensity

FAMILIES = {
    "mean-field": MeanFieldNormal,
    "full-rank": FullRankNormal,
    "low-rank": LowRankNormal,
    "sparse": SparseNormal,
}
ALL_MADE = "made"
"""Stands for all the problems of made data, which no run has unless they are named."""
NAMES = (*LARGER, *MADE, ALL_MADE)
"""What a larger problem may be called."""
NUM_POINTS = 2**14
"""Draws behind each of two answers to what the best normal is."""
MAX_DIM_OF_ALL_POINTS, FEWER_POINTS = 300, 2**12
"""In more dimensions so many make do: the search then takes less than a minute."""


class LargerCase(NamedTuple):
    """A problem and a kind of family."""

    posterior: Posterior  # its reference is not a number where the data are made
    family: str  # a name in `FAMILIES`
    tolerance: float  # of automatic fits, in nats
    kept: Kept

    @property
    def problem(self) -> str:
        return self.posterior.name

    @property
    def dim(self) -> int:
        return self.posterior.dim

    @property
    def log_density(self) -> LogDensity:
        return self.posterior.log_density

    @property
    def start(self) -> Any:
        """The standard normal of the kind."""
        return FAMILIES[self.family].standard(self.dim)

    def best_near(self, found: Any) -> Normal | None:
        """The best of the kind, searched for from a member if it is not kept; None where that is not known.

        The best normal of all has a precision with the posterior's sparsity, so it is the best sparse one.
        """
        kind = "full-rank" if self.family == "sparse" else self.family
        if kind == "low-rank" or (kind == "full-rank" and self.dim > MAX_WHOLE) or not is_finite(found):
            return None

        def search() -> Normal:
            num_points = FEWER_POINTS if self.dim > MAX_DIM_OF_ALL_POINTS else NUM_POINTS
            return optimum(self.log_density, as_normal(found), num_points).family

        try:
            return self.kept.get_or(search, f"{self.problem}/{kind}", self.log_density, self.dim)
        except RuntimeError:  # it has not ended; whatever else a long run measures is worth having
            return None


def as_normal(family: Any) -> Normal:
    """A mean-field normal as it is, any other with the whole root of its covariance."""
    if isinstance(family, MeanFieldNormal):
        return family
    return FullRankNormal(family.loc, family.scale_tril)


def check(settings: Settings) -> None:
    """Raises an error with one sentence if a problem has no such name, small or larger, or a file lacks."""
    settings.check(NAMES)
    _from_files(settings)


def larger_cases(settings: Settings) -> Iterator[LargerCase]:
    """All larger problems that are wanted, with their families; double precision while one iterates."""
    kept = Kept(settings.out)
    with jax.enable_x64(True):
        made = [make() for name, make in MADE.items() if {name, ALL_MADE} & set(settings.problems)]
        for posterior in (*_from_files(settings), *made):
            tolerance = settings.tolerance or default_tolerance(posterior.dim)
            for family in FAMILIES:
                if family != "full-rank" or posterior.dim <= MAX_WHOLE:
                    yield LargerCase(posterior, family, tolerance, kept)


def _from_files(settings: Settings) -> list[Posterior]:
    """Those that are named; if no problem is, all, where there is a folder of them."""
    folder = settings.folder / "larger"
    names = [name for name in LARGER if name in settings.problems]
    if not settings.problems and folder.is_dir():
        names = list(LARGER)
    return larger_posteriors(folder, names) if names else []
