"""`dlrd bench nuts`: seconds until means and sds are right, beside NumPyro's NUTS."""

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from matplotlib.figure import Figure

from dlrd.bench.posteriors.accuracy import errors_of_moments
from dlrd.bench.posteriors.larger import larger_posteriors
from dlrd.bench.posteriors.models import Posterior
from dlrd.bench.table import Column, Row, print_table, save_figure, write
from dlrd.families import FullRankNormal, Moments, SparseNormal
from dlrd.fitting import fit
from dlrd.fitting.outcome import Outcome
from dlrd.models import FunctionModel, function
from dlrd.plots.style import LINE, MARK, house_style

TARGETS = 0.1, 0.15
"""Errors of means and of sds at the most, root mean squares in sds of the reference."""
NUM_CHAINS, NUM_WARMUP = 2, 500
MIN_DRAWS, MAX_DRAWS = 50, 12_800
"""Of each chain: the first run has so few, the next one twice as many, …"""
WARM_SEED = 1_000_000
"""Of the runs that compile."""
RADIUS = 2.0
"""Chains start from uniform numbers of at most this size, NumPyro's default."""
BEST_OF_ALL = {kind.__name__ for kind in (FullRankNormal, SparseNormal)}
"""Families whose best is the best of all normals."""
COLUMNS = [
    Column("problem", "problem"),
    Column("dim", "d", "d"),
    Column("family", "fit"),
    Column("certified", "certified"),
    Column("mean_error", "mean error", ".3f"),
    Column("std_error", "sd error", ".3f"),
    Column("reached", f"≤ {TARGETS[0]:g}, ≤ {TARGETS[1]:g}"),
    Column("gradients", "gradients", ",.0f"),
    Column("seconds", "seconds", ".2f"),
    Column("nuts_draws", "NUTS: draws", ",.0f"),
    Column("nuts_gradients", "gradients", ",.0f"),
    Column("nuts_seconds", "seconds", ".2f"),
    Column("same_seconds", "NUTS to the fit's errors, seconds", ".2f"),
    Column("ratio", "as a multiple of the fit's", ".2f"),
]


class Trial(NamedTuple):
    """A run of NUTS."""

    draws: float  # of each chain, after the warm-up
    seconds: float
    gradients: float  # of all chains, those of the warm-up included
    mean_error: float
    std_error: float

    def is_within(self, targets: tuple[float, float]) -> bool:
        return self.mean_error <= targets[0] and self.std_error <= targets[1]


ChainsFn = Callable[[Key[Array, " chain"]], tuple[Float[Array, "chain draw dim"], Int[Array, " chain"]]]


def read(folder: Path, names: Sequence[str] = ()) -> list[Posterior]:
    """The larger posteriors in double precision, after asking for as many devices as there are chains.

    Args:
        folder: that of the posteriors, with `larger` in it.
        names: of those to read; all six if not given.
    """
    import numpyro

    numpyro.set_host_device_count(NUM_CHAINS)  # no use if jax has been at work before
    with jax.enable_x64(True):
        return larger_posteriors(folder / "larger", names)


def run(posteriors: Sequence[Posterior], out: Path, num_seeds: int) -> list[Row]:
    """Fits and samples every posterior in turn; prints, writes and draws what came out.

    Both are timed when all is compiled, and free to use all cores. NUTS is run with 50 draws, with 100, …,
    until its errors are small enough, and only the last of these runs counts, as if one had known how many
    draws it takes.
    """
    rows, merged = [], []
    for posterior in posteriors:
        with jax.enable_x64(True):
            rows += _rows(posterior, num_seeds)
        merged = summary(rows)
        print(f"{posterior.name}: {merged[-1]['seconds']:.2f} s, NUTS {merged[-1]['nuts_seconds']:.2f} s")
        settings = {"targets": TARGETS, "chains": NUM_CHAINS, "warmup": NUM_WARMUP, "seeds": num_seeds}
        write(out / "nuts", rows, **settings, summary=merged)
        jax.clear_caches()
    title = "Until means and sds are right: all compiled, medians; of NUTS the one run that is long enough"
    print_table(title, COLUMNS, merged)
    save_figure(_figure(rows), out / "nuts")
    return merged


def _rows(posterior: Posterior, num_seeds: int) -> list[Row]:
    """One for each seed: a fit, then NUTS, then the next."""
    model = function(posterior.log_density, posterior.dim)
    compiled: dict[int, ChainsFn] = {}
    return [
        {"problem": posterior.name, "dim": posterior.dim, "seed": seed}
        | _fitted(posterior, model, seed)
        | {"nuts": [trial._asdict() for trial in _trials(posterior, seed, compiled)]}
        for seed in range(num_seeds)
    ]


def _fitted(posterior: Posterior, model: FunctionModel, seed: int) -> dict[str, Any]:
    """`dlrd.fit` with nothing but the model, called twice: the second finds all programs compiled."""
    fit(model, key=seed, progress=False)
    started = time.perf_counter()
    found = fit(model, key=seed, progress=False)
    seconds = time.perf_counter() - started
    assert found.verdict is not None
    assert isinstance(found.family, Moments)
    mean_error, std_error = errors_of_moments(
        posterior, np.asarray(found.family.mean), np.asarray(found.family.std)
    )
    return {
        "family": type(found.family).__name__,
        "outcome": found.outcome.name,
        "seconds": seconds,
        "gradients": found.verdict.num_gradients,
        "mean_error": mean_error,
        "std_error": std_error,
        "tail_shape": found.verdict.tail_shape,
    }


def _trials(posterior: Posterior, seed: int, compiled: dict[int, ChainsFn]) -> list[Trial]:
    """Longer and longer runs of NUTS, the last of which is within the targets, if any is."""
    trials: list[Trial] = []
    num_draws = MIN_DRAWS
    while num_draws <= MAX_DRAWS and not (trials and trials[-1].is_within(TARGETS)):
        if num_draws not in compiled:
            compiled[num_draws] = chains_fn(posterior, num_draws)
            jax.block_until_ready(compiled[num_draws](_keys(WARM_SEED)))
        started = time.perf_counter()
        draws, gradients = jax.block_until_ready(compiled[num_draws](_keys(seed)))
        seconds = time.perf_counter() - started
        flat = np.asarray(draws).reshape(-1, posterior.dim)
        errors = errors_of_moments(posterior, flat.mean(axis=0), flat.std(axis=0))
        trials.append(Trial(num_draws, seconds, int(np.sum(gradients)), *errors))
        num_draws *= 2
    return trials


def _keys(seed: int) -> Key[Array, " chain"]:
    return jax.random.split(jax.random.key(seed), NUM_CHAINS)


def chains_fn(posterior: Posterior, num_draws: int) -> ChainsFn:
    """NUTS with the settings of its documentation, as a compiled function of a key for each chain.

    A chain has a device of its own, where there are enough. `MCMC` could see to that, but would compile anew
    for each run.
    """
    from numpyro.infer import MCMC, NUTS

    def chain(key: Key[Array, ""]) -> tuple[Float[Array, "draw dim"], Int[Array, ""]]:
        start_key, key = jax.random.split(key)
        start = jax.random.uniform(start_key, (posterior.dim,), minval=-RADIUS, maxval=RADIUS)
        kernel = NUTS(potential_fn=lambda z: -posterior.log_density(z))
        mcmc = MCMC(kernel, num_warmup=NUM_WARMUP, num_samples=num_draws, progress_bar=False)
        mcmc.warmup(key, init_params=start, collect_warmup=True, extra_fields=("num_steps",))
        num_gradients = jnp.sum(mcmc.get_extra_fields()["num_steps"])
        assert mcmc.post_warmup_state is not None
        mcmc.run(mcmc.post_warmup_state.rng_key, extra_fields=("num_steps",))
        num_gradients += jnp.sum(mcmc.get_extra_fields()["num_steps"])
        return jnp.asarray(mcmc.get_samples()), num_gradients

    return jax.pmap(chain) if jax.local_device_count() >= NUM_CHAINS else jax.jit(jax.vmap(chain))


def summary(rows: Sequence[Row]) -> list[Row]:
    """One row for the seeds of each problem."""
    merged = []
    for name in dict.fromkeys(row["problem"] for row in rows):
        group = [row for row in rows if row["problem"] == name]
        keys = ("mean_error", "std_error", "gradients", "seconds")
        median: dict[str, Any] = {key: statistics.median(row[key] for row in group) for key in keys}
        last = [_shortest(row, TARGETS) for row in group]
        same = [_shortest(row, _with_slack(row)).seconds for row in group]
        num_certified = sum(row["outcome"] == Outcome.CERTIFIED.name for row in group)
        merged.append(
            {"problem": name, "dim": group[0]["dim"]}
            | {"family": Counter(row["family"] for row in group).most_common(1)[0][0]}
            | median
            | {
                "certified": f"{num_certified} of {len(group)}",
                "reached": _reached(group, median),
                "nuts_draws": statistics.median(trial.draws for trial in last),
                "nuts_gradients": statistics.median(trial.gradients for trial in last),
                "nuts_seconds": statistics.median(trial.seconds for trial in last),
                "same_seconds": statistics.median(same),
                "ratio": statistics.median(same) / median["seconds"],
            }
        )
    return merged


def _shortest(row: Row, targets: tuple[float, float]) -> Trial:
    """The shortest run of NUTS with errors as small as that; infinitely long where there is none."""
    trials = (Trial(**each) for each in row["nuts"])
    return next((trial for trial in trials if trial.is_within(targets)), Trial(*5 * [math.inf]))


def _with_slack(row: Row) -> tuple[float, float]:
    """The targets, or where the fit has larger errors, those."""
    return max(row["mean_error"], TARGETS[0]), max(row["std_error"], TARGETS[1])


def _reached(group: Sequence[Row], median: Row) -> str:
    """Whether fits have reached the targets, and if not, whether any normal could."""
    if all(_with_slack(row) == TARGETS for row in group):
        return "yes"
    is_best = all(row["outcome"] == Outcome.CERTIFIED.name and row["family"] in BEST_OF_ALL for row in group)
    name = "the best normal" if is_best else "no"
    return f"{name}: {median['mean_error']:.3f}, {median['std_error']:.3f}"


def _figure(rows: Sequence[Row]) -> Figure:
    """Seconds and gradients of both, a line for each problem, a point for each seed."""
    names = list(dict.fromkeys(row["problem"] for row in rows))[::-1]
    with house_style():
        figure = Figure(figsize=(10, 1.6 + 0.42 * len(names)), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, key in zip(panels, ("seconds", "gradients"), strict=True):
            for label, color, marker, shift in (
                ("dlrd.fit", LINE, "o", 0.14),
                ("NUTS, to the same errors or the targets", MARK, "s", -0.14),
            ):
                values = [
                    row[key] if marker == "o" else getattr(_shortest(row, _with_slack(row)), key)
                    for row in rows
                ]
                heights = [names.index(row["problem"]) + shift for row in rows]
                style: dict[str, Any] = {"color": color, "marker": marker, "s": 26, "alpha": 0.75}
                axes.scatter(
                    values, heights, linewidth=0, label=label if axes is panels[0] else None, **style
                )
            axes.set(xscale="log", xlabel=key, ylim=(-0.5, len(names) - 0.5))
        panels[0].set_yticks(range(len(names)), names)
        figure.legend(loc="outside upper right", ncols=2)
        figure.suptitle("Until means and sds are right", x=0.01, horizontalalignment="left")
    return figure
