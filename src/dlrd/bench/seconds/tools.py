"""The tools, each used as its documentation tells a newcomer to, but without a progress bar.

A tool is made ready for a problem without being called; then it is called with a seed, twice. What a user's
script would not do, as turning the answer into draws for the score, is not part of the call.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from dlrd.bench.posteriors.models import Posterior

Draws = Float[np.ndarray, "draw parameter"]
"""Of the parameters on their own scale, in the order of the reference."""
NUM_SCORED = 20_000
"""Draws from an answer that is a normal: their noise is 0.01."""
NUM_WARMUP, NUM_SAMPLES = 500, 1_000
"""Of NumPyro's NUTS, one chain."""
NUM_STEPS = 2_000
"""Of NumPyro's SVI, as in the example of the class."""


class Given(NamedTuple):
    """A problem."""

    posterior: Posterior
    folder: Path  # where a PyMC model finds its data


class Ready(NamedTuple):
    """A tool that waits to be called."""

    solve: Callable[[int], Any]  # a seed to an answer, all of it there
    draws: Callable[[Any], Draws]  # from an answer


class Tool(NamedTuple):
    """Something that one might pick."""

    library: str
    package: str  # without which it is left out
    imports: str  # what a script that uses it begins with
    ready: Callable[[Given], Ready]


def _dlrd(given: Given, family: Any = None) -> Ready:
    """`dlrd.fit` with a kind of family, or none."""
    from dlrd import fit, models

    model = models.function(given.posterior.log_density, given.posterior.dim)
    start = None if family is None else family.standard(given.posterior.dim)

    def solve(seed: int) -> Any:
        return fit(model, start, key=seed, progress=False)

    return Ready(solve, lambda found: _of_normal(given, found.family))


def _dlrd_mean_field(given: Given) -> Ready:
    from dlrd import MeanFieldNormal

    return _dlrd(given, MeanFieldNormal)


def _dlrd_full_rank(given: Given) -> Ready:
    from dlrd import FullRankNormal

    return _dlrd(given, FullRankNormal)


def _numpyro_nuts(given: Given) -> Ready:
    from numpyro.infer import MCMC, NUTS

    kernel = NUTS(potential_fn=lambda z: -given.posterior.log_density(z))
    mcmc = MCMC(kernel, num_warmup=NUM_WARMUP, num_samples=NUM_SAMPLES, progress_bar=False)

    def solve(seed: int) -> Any:
        start_key, key = jax.random.split(jax.random.key(seed))
        start = jax.random.uniform(start_key, (given.posterior.dim,), minval=-2, maxval=2)
        mcmc.run(key, init_params=start)
        return jax.block_until_ready(mcmc.get_samples())

    return Ready(solve, lambda draws: _constrained(given, draws))


def _numpyro_svi(given: Given) -> Ready:
    from dlrd.bench.peers.answer import Task
    from dlrd.bench.peers.others import numpyro_svi

    def solve(seed: int) -> Any:
        task = Task(given.posterior.log_density, given.posterior.dim, "mean-field", seed, NUM_STEPS)
        return jax.block_until_ready(numpyro_svi(task).family)

    return Ready(solve, lambda family: _of_normal(given, family))


def _blackjax_pathfinder(given: Given) -> Ready:
    from dlrd.bench.peers.others import pathfinder_fn, pathfinder_normal

    run = pathfinder_fn(given.posterior.log_density, given.posterior.dim)
    return Ready(run, lambda found: _of_normal(given, pathfinder_normal(found[0])))


def _nutpie(given: Given) -> Ready:
    import nutpie

    model, compiled = _in_pymc(given), []

    def solve(seed: int) -> Any:
        if not compiled:
            compiled.append(nutpie.compile_pymc_model(model))
        return nutpie.sample(compiled[0], seed=seed, progress_bar=False)

    return Ready(solve, lambda found: _named(given, found))


def _pymc_advi(given: Given) -> Ready:
    import pymc

    from dlrd.bench.peers.answer import mean_field

    model = _in_pymc(given)

    def solve(seed: int) -> Any:
        return pymc.fit(method="advi", model=model, random_seed=seed, progressbar=False)

    def draws(found: Any) -> Draws:
        return _of_normal(given, mean_field(found.mean.eval(), found.std.eval()))

    return Ready(solve, draws)


def _pymc_extras(method: str, **options: Any) -> Callable[[Given], Ready]:
    """A function of pymc-extras that fits a model."""

    def ready(given: Given) -> Ready:
        from pymc_extras import inference

        model = _in_pymc(given)

        def solve(seed: int) -> Any:
            return getattr(inference, method)(model=model, random_seed=seed, progressbar=False, **options)

        return Ready(solve, lambda found: _named(given, found))

    return ready


def _in_pymc(given: Given) -> Any:
    from dlrd.bench.posteriors.in_pymc import pymc_model

    return pymc_model(given.folder, given.posterior.name)


def _of_normal(given: Given, family: Any) -> Draws:
    return _constrained(given, family.sample(jax.random.key(7), (NUM_SCORED,)))


def _constrained(given: Given, draws: Any) -> Draws:
    return np.asarray(jax.vmap(given.posterior.constrain)(draws))


def _named(given: Given, found: Any) -> Draws:
    """From ArviZ's format."""
    names = dict.fromkeys(name.partition("[")[0] for name in given.posterior.parameter_names)
    stacked = (np.asarray(found.posterior[name]) for name in names)
    return np.column_stack([values.reshape(values.shape[0] * values.shape[1], -1) for values in stacked])


OURS = "import jax.numpy; from dlrd import fit, models, FullRankNormal, MeanFieldNormal"
TOOLS = {
    "dlrd": Tool("dlrd", "dlrd", OURS, _dlrd),
    "dlrd, mean-field": Tool("dlrd", "dlrd", OURS, _dlrd_mean_field),
    "dlrd, full-rank": Tool("dlrd", "dlrd", OURS, _dlrd_full_rank),
    "NumPyro NUTS": Tool("NumPyro", "numpyro", "import jax.numpy, numpyro.infer", _numpyro_nuts),
    "NumPyro SVI": Tool("NumPyro", "numpyro", "import jax.numpy, numpyro.infer.autoguide", _numpyro_svi),
    "BlackJAX Pathfinder": Tool("BlackJAX", "blackjax", "import jax.numpy, blackjax", _blackjax_pathfinder),
    "nutpie": Tool("nutpie", "nutpie", "import pymc, nutpie", _nutpie),
    "PyMC ADVI": Tool("PyMC", "pymc", "import pymc", _pymc_advi),
    "DADVI": Tool("PyMC", "pymc_extras", "import pymc, pymc_extras.inference", _pymc_extras("fit_dadvi")),
    "Pathfinder of PyMC": Tool(
        "PyMC",
        "pymc_extras",
        "import pymc, pymc_extras.inference",
        _pymc_extras("fit_pathfinder", display_summary=False),
    ),
}
"""By the names that tables have."""
