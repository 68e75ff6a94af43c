"""The problems of the benchmarks, each with a mean-field and a full-rank normal and the best of these."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dlrd.bench.posteriors.models import MODELS, Posterior, posteriors
from dlrd.bench.posteriors.optimum import Normal, factorized, laplace, optimum
from dlrd.families import FullRankNormal, MeanFieldNormal
from dlrd.fitting import archive
from dlrd.gradients import LogDensity
from dlrd.paper.problems import logistic, synthetic

FAMILIES = {"mean-field": MeanFieldNormal, "full-rank": FullRankNormal}
PAPER_PROBLEMS = ("synthetic", "logistic")
PROBLEMS = (*MODELS, *PAPER_PROBLEMS)
"""Names of all problems: the nine posteriors, and two of the paper's."""


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


def check(problems: Sequence[str], folder: Path) -> None:
    """Raises an error with one sentence if a problem has no such name or the folder lacks a file."""
    unknown = [name for name in problems if name not in PROBLEMS]
    if unknown:
        raise ValueError(f"a problem must be one of {', '.join(PROBLEMS)}, got {', '.join(unknown)}")
    _chosen(folder, problems)


def cases(folder: Path, out: Path, problems: Sequence[str] = ()) -> Iterator[Case]:
    """All problems with both families, under double precision.

    The best normals are searched for once and kept in `out`/optima.npz: a part that comes later, or the same
    one called again, finds them there.

    Args:
        folder: of the nine posteriors.
        out: where results go.
        problems: names; all if empty.
    """
    kept = _Kept(out / "optima.npz")
    for posterior in _chosen(folder, problems):
        yield from _with_families(posterior.name, posterior.dim, posterior.log_density, posterior, kept)
    if not problems or "synthetic" in problems:
        yield from _with_families("synthetic", 100, synthetic().log_density, None, kept)
    if not problems or "logistic" in problems:
        yield from _with_families("logistic", 31, logistic(), None, kept)


def _chosen(folder: Path, problems: Sequence[str]) -> list[Posterior]:
    """Those of the nine posteriors that are wanted; files of others need not be there."""
    names = [name for name in MODELS if not problems or name in problems]
    return posteriors(folder, names) if names else []


def _with_families(
    name: str, dim: int, log_density: LogDensity, posterior: Posterior | None, kept: "_Kept"
) -> Iterator[Case]:
    for family in FAMILIES:
        # Data may have changed behind a name; the density at a point tells.
        fingerprint = float(log_density(jnp.full(dim, 0.1)))
        best = kept.get(f"{name}/{family}", fingerprint)
        if best is None:
            near = laplace(log_density, dim)
            start = near if family == "full-rank" else factorized(near)
            best = optimum(log_density, start).family
            kept.put(f"{name}/{family}", fingerprint, best)
        yield Case(name, family, dim, log_density, best, posterior)


class _Kept:
    """Best normals in a file."""

    def __init__(self, path: Path):
        self._path = path
        self._arrays = archive.read(path)[0] if path.exists() else {}

    def get(self, name: str, fingerprint: float) -> Normal | None:
        if self._arrays.get(f"{name}/fingerprint") != fingerprint:
            return None
        loc, scale = (self._arrays[f"{name}/{part}"] for part in ("loc", "scale"))
        if scale.ndim == 1:
            return MeanFieldNormal(jnp.asarray(loc), jnp.asarray(scale))
        return FullRankNormal(jnp.asarray(loc), jnp.asarray(scale))

    def put(self, name: str, fingerprint: float, family: Normal) -> None:
        scale = family.log_scale if isinstance(family, MeanFieldNormal) else family.cholesky
        parts = {"fingerprint": fingerprint, "loc": family.loc, "scale": scale}
        self._arrays |= {f"{name}/{part}": np.asarray(array) for part, array in parts.items()}
        archive.write(self._path, self._arrays, {})
