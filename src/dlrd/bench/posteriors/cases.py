"""The problems of the benchmarks, each with a mean-field and a full-rank normal and the best of these."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dlrd.bench.posteriors.models import MODELS, Posterior, posteriors
from dlrd.bench.posteriors.optimum import Normal, factorized, laplace, optimum
from dlrd.families import FullRankNormal, MeanFieldNormal
from dlrd.fitting import archive
from dlrd.models import LogDensity
from dlrd.paper.problems import logistic, synthetic
from dlrd.paper.problems.field import field
from dlrd.paper.references.field import field_reference

FAMILIES = {"mean-field": MeanFieldNormal, "full-rank": FullRankNormal}
PROBLEMS = (*MODELS, "synthetic", "logistic", "field")
"""Names of all problems: the nine posteriors, and the paper's three."""
NUM_ROUGH = 2**12
"""Draws behind the normal from which the search for the field problem's best begins."""


class Settings(NamedTuple):
    """What a part with these problems is told."""

    folder: Path  # of the nine posteriors
    out: Path  # results go to a folder in it, named as the part
    num_seeds: int  # fits of each
    max_gradients: int  # of each fit
    tolerance: float  # of each automatic fit, in nats
    problems: Sequence[str] = ()  # names; all if empty

    @property
    def written(self) -> dict[str, Any]:
        """What results are kept with."""
        return {"seeds": self.num_seeds, "tolerance": self.tolerance, "max_gradients": self.max_gradients}

    def check(self) -> None:
        """Raises an error with one sentence if a problem has no such name or the folder lacks a file."""
        unknown = [name for name in self.problems if name not in PROBLEMS]
        if unknown:
            raise ValueError(f"a problem must be one of {', '.join(PROBLEMS)}, got {', '.join(unknown)}")
        _chosen(self)


class Case(NamedTuple):
    """A problem and a kind of family."""

    problem: str
    family: str  # a name in `FAMILIES`
    dim: int
    log_density: LogDensity
    optimum: Normal
    posterior: Posterior | None  # with the reference, where there is one

    @property
    def start(self) -> Normal:
        """The standard normal of the kind."""
        return FAMILIES[self.family].standard(self.dim)


def cases(settings: Settings) -> Iterator[Case]:
    """All problems with both families; double precision holds while one iterates.

    The best normals are searched for once and kept in `out`/optima.npz: a part that comes later, or the same
    one called again, finds them there.
    """
    kept = _Kept(settings.out / "optima.npz")
    with jax.enable_x64(True):
        for posterior in _chosen(settings):
            yield from _with_families(posterior.name, posterior.dim, posterior.log_density, kept, posterior)
        if _is_wanted("synthetic", settings):
            yield from _with_families("synthetic", 100, synthetic().log_density, kept)
        if _is_wanted("logistic", settings):
            yield from _with_families("logistic", 31, logistic(), kept)
        if _is_wanted("field", settings):
            problem = field()

            def near_best() -> FullRankNormal:  # jax cannot differentiate the solver twice
                return field_reference(NUM_ROUGH).family

            yield from _with_families("field", len(problem.truth), problem.log_density, kept, near=near_best)


def _is_wanted(name: str, settings: Settings) -> bool:
    return not settings.problems or name in settings.problems


def _chosen(settings: Settings) -> list[Posterior]:
    """Those of the nine posteriors that are wanted; files of others need not be there."""
    names = [name for name in MODELS if _is_wanted(name, settings)]
    return posteriors(settings.folder, names) if names else []


def _with_families(
    name: str,
    dim: int,
    log_density: LogDensity,
    kept: "_Kept",
    posterior: Posterior | None = None,
    near: Callable[[], FullRankNormal] | None = None,
) -> Iterator[Case]:
    for family in FAMILIES:
        # Data may have changed behind a name; the density at a point tells.
        fingerprint = float(log_density(jnp.full(dim, 0.1)))
        best = kept.get(f"{name}/{family}", fingerprint)
        if best is None:
            start = laplace(log_density, dim) if near is None else near()
            best = optimum(log_density, start if family == "full-rank" else factorized(start)).family
            kept.put(f"{name}/{family}", fingerprint, best)
        yield Case(name, family, dim, log_density, best, posterior)


def arrays_of(family: Normal) -> dict[str, Array]:
    """The parameters of a normal by name."""
    scale = family.log_scale if isinstance(family, MeanFieldNormal) else family.cholesky
    return {"loc": family.loc, "scale": scale}


def from_arrays(loc: np.ndarray, scale: np.ndarray) -> Normal:
    """The normal with these parameters."""
    kind = MeanFieldNormal if scale.ndim == 1 else FullRankNormal
    return kind(jnp.asarray(loc), jnp.asarray(scale))


class _Kept:
    """Best normals in a file."""

    def __init__(self, path: Path):
        self._path = path
        self._arrays = archive.read(path)[0] if path.exists() else {}

    def get(self, name: str, fingerprint: float) -> Normal | None:
        if self._arrays.get(f"{name}/fingerprint") != fingerprint:
            return None
        return from_arrays(*(self._arrays[f"{name}/{part}"] for part in ("loc", "scale")))

    def put(self, name: str, fingerprint: float, family: Normal) -> None:
        parts = {"fingerprint": fingerprint, **arrays_of(family)}
        self._arrays |= {f"{name}/{part}": np.asarray(array) for part, array in parts.items()}
        archive.write(self._path, self._arrays, {})
