"""One size of `dlrd bench scaling`, in a process of its own, whose peak memory is then that of this size.

Called as `python -m dlrd.bench.scaling_run` with the fields of a `Size` as JSON; prints a row as JSON.
"""

import dataclasses
import json
import resource
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse
from jaxtyping import Array, Float

from dlrd.families import LowRankNormal, MeanFieldNormal, SparseNormal
from dlrd.families.elimination import eliminate
from dlrd.families.pattern import Pattern
from dlrd.fitting import fit
from dlrd.gradients import natural_gradient
from dlrd.models import LogDensity
from dlrd.rates import dynamic_decay

PERSISTENCE = 0.9
"""Of the chain's states, of which each is seen with noise as large as its innovation."""
FAMILIES = {"mean-field": MeanFieldNormal, "low-rank": LowRankNormal, "sparse": SparseNormal}
NUM_COVARIATES = 20
TIMED_SECONDS = 1.0
"""About how long the steps are timed."""

Normal = MeanFieldNormal | LowRankNormal | SparseNormal


@dataclasses.dataclass(frozen=True)
class Size:
    """What is fitted."""

    axis: str  # "dimension", "draws" or "data"
    family: str  # a name in `FAMILIES`
    size: int  # along the axis
    dim: int
    num_draws: int
    tolerance: float
    max_gradients: int


class Chain:
    """The states of an autoregression of order one, seen with noise: normal, its precision is tridiagonal.

    Args:
        dim: how many states.
    """

    def __init__(self, dim: int):
        rng = np.random.default_rng(0)
        diagonal = np.full(dim, 2 + PERSISTENCE**2)
        diagonal[-1] = 2.0
        self.banded = np.stack([np.append(0.0, np.full(dim - 1, -PERSISTENCE)), diagonal])
        states = scipy.linalg.cholesky_banded(self.banded)
        self.seen = rng.normal(0, 3, size=dim)
        self.mean = scipy.linalg.cho_solve_banded((states, False), self.seen)
        self.log_det = 2 * np.sum(np.log(states[1]))

    def log_density(self) -> LogDensity:
        seen = jnp.asarray(self.seen, float)

        def log_density(z: Float[Array, " dim"]) -> Float[Array, ""]:
            innovations = z[1:] - PERSISTENCE * z[:-1]
            return -0.5 * (z[0] ** 2 + jnp.sum(innovations**2) + jnp.sum((seen - z) ** 2))

        return log_density

    def divergence(self, family: Normal) -> float:
        """KL(family ‖ posterior), exactly."""
        if isinstance(family, SparseNormal):
            variance, off, log_det = _moments_of_sparse(family)
        else:
            variance, off = np.asarray(family.std, float) ** 2, np.zeros(len(self.mean) - 1)
            log_det = np.sum(np.log(variance))
        if isinstance(family, LowRankNormal):
            factor = np.asarray(family.factor, float)
            scale = np.exp(np.asarray(family.log_scale, float))
            scaled = factor / scale[:, None]
            off = np.sum(factor[1:] * factor[:-1], axis=1)
            log_det = (
                2 * np.sum(np.log(scale)) + np.linalg.slogdet(np.eye(factor.shape[1]) + scaled.T @ scaled)[1]
            )
        shift = np.asarray(family.loc, float) - self.mean
        trace = self.banded[1] @ variance + 2 * self.banded[0, 1:] @ off
        square = self.banded[1] @ shift**2 + 2 * self.banded[0, 1:] @ (shift[1:] * shift[:-1])
        return float(0.5 * (trace + square - len(shift) - log_det - self.log_det))

    def least_divergence(self, family: Normal) -> float:
        """That of the best mean-field normal; none where a family has the posterior itself."""
        return 0.0 if isinstance(family, SparseNormal) else self.mean_field_divergence()

    def mean_field_divergence(self) -> float:
        """That of the best mean-field normal, whose precisions are the diagonal."""
        return float(0.5 * (np.sum(np.log(self.banded[1])) - self.log_det))


def measure(size: Size) -> dict[str, Any]:
    """Fits, twice, so that the second finds compiled programs; and times single steps."""
    chain = None
    if size.axis == "data":
        log_density = _logistic(size.size, size.dim)
    else:
        chain = Chain(size.dim)
        log_density = chain.log_density()
    start = FAMILIES[size.family].standard(size.dim)

    def automatic(key: int):
        return fit(
            log_density,
            start,
            key=key,
            tolerance=size.tolerance,
            max_gradients=size.max_gradients,
            num_draws=size.num_draws,
            progress=False,
        )

    first = automatic(0)
    found = automatic(1)
    assert found.verdict is not None
    assert isinstance(found.family, Normal)
    row = dataclasses.asdict(size) | {
        "seconds_per_step": _seconds_per_step(log_density, found.family, size.num_draws),
        "first_seconds": first.seconds,
        "seconds": found.seconds,
        "gradients": found.verdict.num_gradients,
        "outcome": found.outcome.name,
        "certified_gap": found.verdict.gap,
        "peak_megabytes": _peak_megabytes(),
    }
    if chain is not None:
        row["divergence"] = chain.divergence(found.family)
        row["gap"] = row["divergence"] - chain.least_divergence(found.family)
    return row


def _moments_of_sparse(
    family: SparseNormal,
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, " dim-1"], float]:
    """Variances, covariances of neighbours, and the log determinant of the covariance, in linear time."""
    dim = len(family.loc)
    neighbors = Pattern(dim, np.arange(1, dim), np.arange(dim - 1))
    with jax.enable_x64(True):
        diagonal, lower = (np.asarray(each, float) for each in family.factor)
        loc = np.asarray(family.loc, float)
        precision = SparseNormal(loc, diagonal, lower, family.elimination).precision
        below = scipy.sparse.coo_array(scipy.sparse.tril(precision, -1))
        own = Pattern(dim, below.row.astype(int), below.col.astype(int))
        # The inverse is known at the places of a factor's entries, so neighbours must have one, too.
        keys = np.union1d(*(pattern.rows * dim + pattern.columns for pattern in (own, neighbors)))
        elimination = eliminate(Pattern(dim, *np.divmod(keys, dim)))
        assert elimination is not None  # the family's own entries are few, and so are neighbours
        lower = np.zeros(elimination.num_entries)
        lower[elimination.places(own)] = below.data
        diagonal = precision.diagonal()[elimination.order]
        root = elimination.factorized(jnp.asarray(diagonal), jnp.asarray(lower))
        variances, covariances = map(np.asarray, elimination.inverse(*root))
    log_det = -2 * float(np.sum(np.log(np.asarray(root[0]))))
    return variances[elimination.position], covariances[elimination.places(neighbors)], log_det


def _seconds_per_step(log_density: LogDensity, family: Normal, num_draws: int) -> float:
    """Of natural gradients with the rule, from the result: the difference of a long and a short run."""
    optimizer = dynamic_decay(1e-2)

    def timed(steps: int) -> float:
        started = time.perf_counter()
        fit(
            log_density,
            family,
            key=0,
            optimizer=optimizer,
            gradient=natural_gradient,
            steps=steps,
            num_draws=num_draws,
            progress=False,
        )
        return time.perf_counter() - started

    timed(20)
    short = timed(20)
    steps = 40
    while (long := timed(steps)) < short + TIMED_SECONDS:
        steps *= 4
    return (long - short) / (steps - 20)


def _logistic(num_rows: int, dim: int) -> LogDensity:
    """A logistic regression with normal covariates, coefficients of size 1/√dim, and a N(0, 1) prior."""
    rng = np.random.default_rng(0)
    design = rng.normal(size=(num_rows, dim))
    probability = 1 / (1 + np.exp(-design @ rng.normal(0, dim**-0.5, size=dim)))
    sign = np.where(rng.uniform(size=num_rows) < probability, 1.0, -1.0)
    signed = jnp.asarray(sign[:, None] * design, float)
    return lambda z: -jnp.sum(jax.nn.softplus(-(signed @ z))) - 0.5 * jnp.sum(z**2)


def _peak_megabytes() -> float:
    unit = 1 if sys.platform == "darwin" else 1024  # bytes, or kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


if __name__ == "__main__":
    print(json.dumps(measure(Size(**json.loads(sys.argv[1])))))
