"""The problems: nine small posteriors, and the paper's logistic regression with a reference of its own."""

from pathlib import Path

import jax
import numpy as np

from dlrd.bench.posteriors.models import MODELS, Posterior, indexed, posteriors
from dlrd.paper.problems.logistic import logistic

PROBLEMS = (*MODELS, "logistic")
DIM_OF_LOGISTIC = 31
NUM_DRAWS = 5_000
"""Of each of two chains, behind the reference of the logistic regression: their noise is about 0.01."""


def problem(folder: Path, name: str) -> Posterior:
    """One of them; the logistic regression with a reference of which nothing is known."""
    if name != "logistic":
        return posteriors(folder, [name])[0]
    names, unknown = indexed("beta", DIM_OF_LOGISTIC), np.full(DIM_OF_LOGISTIC, np.nan)
    return Posterior(name, DIM_OF_LOGISTIC, logistic(), lambda z: z, names, unknown, unknown)


def with_reference(posterior: Posterior) -> Posterior:
    """The same; where it has no reference, one by long chains."""
    if not np.isnan(posterior.reference_mean).any():
        return posterior
    from dlrd.bench.nuts import chains_fn

    draws, _ = chains_fn(posterior, NUM_DRAWS)(jax.random.split(jax.random.key(0), 2))
    flat = np.asarray(draws).reshape(-1, posterior.dim)
    return posterior._replace(reference_mean=flat.mean(axis=0), reference_std=flat.std(axis=0))
