"""The small problems of the benchmarks, each with mean-field and full-rank normals and the best of these."""

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dlrd.bench.posteriors.models import MODELS, Posterior, posteriors
from dlrd.bench.posteriors.optimum import Normal, factorized, laplace, optimum
from dlrd.families import Family, FullRankNormal, MeanFieldNormal
from dlrd.fitting import archive
from dlrd.models import LogDensity
from dlrd.paper.problems import best_full_rank, logistic, synthetic
from dlrd.paper.problems.field import field
from dlrd.paper.references.field import field_reference

FAMILIES = {"mean-field": MeanFieldNormal, "full-rank": FullRankNormal}
PROBLEMS = (*MODELS, "synthetic", "logistic", "field")
"""Names of all problems: the nine posteriors, and the paper's three."""
TOLERANCE = 1e-2
"""Of fits of these problems where none is given, in nats."""
NUM_ROUGH = 2**12
"""Draws behind the normal from which the search for the field problem's best begins."""


class Settings(NamedTuple):
    """What a part with these problems is told."""

    folder: Path  # of the nine posteriors; those with more dimensions are in `larger` in it
    out: Path  # results go to a folder in it, named as the part
    num_seeds: int  # fits of each
    max_gradients: int  # of each fit
    tolerance: float | None = None  # of each automatic fit, in nats; None: what suits the problem
    problems: Sequence[str] = ()  # names; all if empty

    @property
    def written(self) -> dict[str, Any]:
        """What results are kept with."""
        return {"seeds": self.num_seeds, "tolerance": self.tolerance, "max_gradients": self.max_gradients}

    def check(self, others: Sequence[str] = ()) -> None:
        """Raises an error with one sentence if a problem has no such name or the folder lacks a file.

        Args:
            others: names that the part knows besides the small problems.
        """
        known = (*PROBLEMS, *others)
        unknown = [name for name in self.problems if name not in known]
        if unknown:
            raise ValueError(f"a problem must be one of {', '.join(known)}, got {', '.join(unknown)}")
        _chosen(self)


class Case(NamedTuple):
    """A problem and a kind of family."""

    problem: str
    family: str  # a name in `FAMILIES`
    dim: int
    log_density: LogDensity
    optimum: Normal
    posterior: Posterior | None  # with the reference, where there is one
    tolerance: float  # of automatic fits, in nats

    @property
    def start(self) -> Normal:
        """The standard normal of the kind."""
        return FAMILIES[self.family].standard(self.dim)

    def best_near(self, found: Family) -> Normal:
        """The best of the kind, which is known whatever a fit has found."""
        return self.optimum


def cases(settings: Settings) -> Iterator[Case]:
    """All small problems with both families; double precision holds while one iterates.

    The best normals are searched for once and kept in `out`/optima.npz: a part that comes later, or the same
    one called again, finds them there.
    """
    kept = Kept(settings.out)
    with_families = functools.partial(_with_families, kept, settings.tolerance or TOLERANCE)
    with jax.enable_x64(True):
        for posterior in _chosen(settings):
            yield from with_families(posterior.name, posterior.dim, posterior.log_density, posterior)
        if _is_wanted("synthetic", settings):
            problem, tolerance = synthetic(), settings.tolerance or TOLERANCE
            for family, best in (("mean-field", problem.optimum), ("full-rank", best_full_rank())):
                yield Case("synthetic", family, 100, problem.log_density, best, None, tolerance)
        if _is_wanted("logistic", settings):
            yield from with_families("logistic", 31, logistic())
        if _is_wanted("field", settings):
            problem = field()

            def near_best() -> FullRankNormal:  # jax cannot differentiate the solver twice
                return field_reference(NUM_ROUGH).family

            yield from with_families("field", len(problem.truth), problem.log_density, near=near_best)


def _is_wanted(name: str, settings: Settings) -> bool:
    return not settings.problems or name in settings.problems


def _chosen(settings: Settings) -> list[Posterior]:
    """Those of the nine posteriors that are wanted; files of others need not be there."""
    names = [name for name in MODELS if _is_wanted(name, settings)]
    return posteriors(settings.folder, names) if names else []


def _with_families(
    kept: "Kept",
    tolerance: float,
    name: str,
    dim: int,
    log_density: LogDensity,
    posterior: Posterior | None = None,
    near: Callable[[], FullRankNormal] | None = None,
) -> Iterator[Case]:
    for family in FAMILIES:

        def search(family: str = family) -> Normal:
            start = laplace(log_density, dim) if near is None else near()
            return optimum(log_density, start if family == "full-rank" else factorized(start)).family

        best = kept.get_or(search, f"{name}/{family}", log_density, dim)
        yield Case(name, family, dim, log_density, best, posterior, tolerance)


def arrays_of(family: Normal) -> dict[str, Array]:
    """The parameters of a normal by name."""
    scale = family.log_scale if isinstance(family, MeanFieldNormal) else family.cholesky
    return {"loc": family.loc, "scale": scale}


def from_arrays(loc: np.ndarray, scale: np.ndarray) -> Normal:
    """The normal with these parameters."""
    kind = MeanFieldNormal if scale.ndim == 1 else FullRankNormal
    return kind(jnp.asarray(loc), jnp.asarray(scale))


class Kept:
    """Best normals in a file.

    Args:
        folder: with the file `optima.npz`.
    """

    def __init__(self, folder: Path):
        self._path = folder / "optima.npz"
        self._arrays = archive.read(self._path)[0] if self._path.exists() else {}

    def get_or(self, search: Callable[[], Normal], name: str, log_density: LogDensity, dim: int) -> Normal:
        """The normal of this name, or what the search gives, which is then kept."""
        # Data may have changed behind a name; the density at a point tells.
        fingerprint = float(log_density(jnp.full(dim, 0.1)))
        if self._arrays.get(f"{name}/fingerprint") == fingerprint:
            return from_arrays(*(self._arrays[f"{name}/{part}"] for part in ("loc", "scale")))
        best = search()
        parts = {"fingerprint": fingerprint, **arrays_of(best)}
        self._arrays |= {f"{name}/{part}": np.asarray(array) for part, array in parts.items()}
        archive.write(self._path, self._arrays, {})
        return best
