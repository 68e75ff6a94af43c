"""`dlrd bench shapes`: flows and mixtures, beside Adam at every rate of a grid and a schedule."""

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.stats import norm
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from dlrd.bench.posteriors.models import posteriors
from dlrd.bench.table import Column, Row, print_table, save_figure, write
from dlrd.families import Family, FullRankNormal, MeanFieldNormal, Mixture
from dlrd.fitting import fit, fit_many
from dlrd.models import LogDensity
from dlrd.plots.style import LINE, MARK, MUTED, house_style

GRID = 1e-1, 1e-2, 1e-3, 1e-4
"""Rates of Adam, of which the best is chosen with knowledge of all answers."""
COSINE_RATE = 1e-2
"""Where the schedule begins: a usual first rate."""
NUM_DRAWS = 8
NUM_POINTS, BATCH = 20_000, 500
"""Draws behind each ELBO, the same noise for all, and how many at once."""
AS_GOOD = 0.01
"""In nats: what the automatic mode may be below another and still be as good."""
POSTERIOR = "garch-garch11"
COLUMNS = [
    Column("target", "target"),
    Column("family", "family"),
    Column("budget", "gradients", ",d"),
    Column("automatic", "automatic", ".4f"),
    Column("spread", "all seeds within", ".4f"),
    Column("agreed", "ended as AGREED"),
    Column("spent", "gradients spent", ",.0f"),
    Column("static", "Adam, best rate in hindsight", ".4f"),
    Column("rate", "that rate", "g"),
    Column("cosine", "cosine schedule", ".4f"),
    Column("is_as_good", "automatic is as good"),
]

OVERALL_COLUMNS = [
    Column("family", "family"),
    Column("budget", "gradients", ",d"),
    Column("static", "as good as Adam at the best rate in hindsight"),
    Column("cosine", "as good as the cosine schedule"),
]


class Settings(NamedTuple):
    """What is to be run."""

    folder: Path  # of the posteriors
    out: Path
    num_seeds: int
    budgets: Sequence[int]  # gradients
    targets: Sequence[str] = ()  # names; all if empty
    families: Sequence[str] = ()  # likewise

    def check(self) -> None:
        """Raises an error with one sentence for a name that is not known, or for a missing posterior."""
        for what, names, known in (
            ("a problem", self.targets, (*TARGETS, POSTERIOR)),
            ("a family", self.families, FAMILIES),
        ):
            unknown = [name for name in names if name not in known]
            if unknown:
                raise ValueError(f"{what} must be one of {', '.join(known)}, got {', '.join(unknown)}")
        if not self.targets or POSTERIOR in self.targets:
            posteriors(self.folder, [POSTERIOR])


def _banana(z: Float[Array, " 2"]) -> Float[Array, ""]:
    return norm.logpdf(z[0], 0, 2) + norm.logpdf(z[1], 0.25 * z[0] ** 2 - 1)


def _funnel(z: Float[Array, " 5"]) -> Float[Array, ""]:
    return norm.logpdf(z[0], 0, 1.5) + jnp.sum(norm.logpdf(z[1:], 0, jnp.exp(z[0] / 2)))


def _two_modes(z: Float[Array, " 2"]) -> Float[Array, ""]:
    left, right = jnp.sum(norm.logpdf(z, -2, 0.7)), jnp.sum(norm.logpdf(z, 1.5, 1))
    return jnp.logaddexp(left + jnp.log(0.4), right + jnp.log(0.6))


def _ring(z: Float[Array, " 2"]) -> Float[Array, ""]:
    return norm.logpdf(jnp.sqrt(jnp.sum(z**2) + 1e-12), 3, 0.5)


def _schools(z: Float[Array, " 10"]) -> Float[Array, ""]:
    """Eight schools, centred; the scale by its logarithm."""
    effects = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    mean, log_scale, own = z[0], z[1], z[2:]
    scale = jnp.exp(log_scale)
    prior = norm.logpdf(mean, 0, 5) + jnp.log(2 / jnp.pi / 5) - jnp.log1p((scale / 5) ** 2) + log_scale
    return prior + jnp.sum(norm.logpdf(own, mean, scale)) + jnp.sum(norm.logpdf(effects, own, errors))


TARGETS: dict[str, tuple[LogDensity, int]] = {
    "banana": (_banana, 2),
    "funnel": (_funnel, 5),
    "two modes": (_two_modes, 2),
    "ring": (_ring, 2),
    "eight schools, centred": (_schools, 10),
}
"""Log densities and their dimensions; one posterior with data is added to them."""


def _coupling_flow(dim: int) -> Family:
    from flowjax.flows import coupling_flow

    layers, width = (2, 8) if dim == 2 else (4, 16)
    return coupling_flow(jax.random.key(0), flow_layers=layers, nn_width=width, **_of_flow(dim))


def _autoregressive_flow(dim: int) -> Family:
    from flowjax.flows import masked_autoregressive_flow

    return masked_autoregressive_flow(jax.random.key(0), flow_layers=2, nn_width=16, **_of_flow(dim))


def _of_flow(dim: int) -> dict[str, Any]:
    from flowjax.bijections import RationalQuadraticSpline
    from flowjax.distributions import StandardNormal

    return {
        "base_dist": StandardNormal((dim,)),
        "transformer": RationalQuadraticSpline(knots=5, interval=4),
        "nn_depth": 1,
    }


def _mixture(kind: Callable[..., Family], num_components: int, dim: int) -> Family:
    """Components with means from N(0, I)."""
    means = np.random.default_rng(0).standard_normal((num_components, dim))
    shape = jnp.zeros(dim) if kind is MeanFieldNormal else jnp.eye(dim)
    return Mixture([kind(mean, shape) for mean in means])


FAMILIES: dict[str, Callable[[int], Family]] = {
    "coupling flow": _coupling_flow,
    "masked autoregressive flow": _autoregressive_flow,
    "2 full-rank normals": lambda dim: _mixture(FullRankNormal, 2, dim),
    "8 mean-field normals": lambda dim: _mixture(MeanFieldNormal, 8, dim),
}


def run(settings: Settings) -> list[Row]:
    """Fits each family to each target by each method; prints, writes and draws the median −ELBOs."""
    rows: list[Row] = []
    kept = {"seeds": settings.num_seeds, "budgets": list(settings.budgets), "as_good": AS_GOOD}
    with jax.enable_x64(True):
        for target, family in itertools.product(_targets(settings), settings.families or FAMILIES):
            for row in _rows(target, family, settings):
                rows.append(row)
                write(settings.out / "shapes", rows, **kept, overall=overall(rows))
            print(f"{target[0]}, {family}: done", flush=True)
            jax.clear_caches()
    print_table("−ELBO in nats, medians over seeds: lower is better", COLUMNS, rows)
    print_table("Targets on which the automatic mode is as good", OVERALL_COLUMNS, overall(rows))
    save_figure(_figure(rows), settings.out / "shapes")
    return rows


def overall(rows: Sequence[Row]) -> list[Row]:
    """On how many targets the automatic mode is as good as each of the others, for each family and budget."""
    merged = []
    for family, budget in dict.fromkeys((row["family"], row["budget"]) for row in rows):
        group = [row for row in rows if (row["family"], row["budget"]) == (family, budget)]
        counts = {
            other: f"{sum(row['automatic'] <= row[other] + AS_GOOD for row in group)} of {len(group)}"
            for other in ("static", "cosine")
        }
        merged.append({"family": family, "budget": budget} | counts)
    return merged


def _targets(settings: Settings) -> Iterator[tuple[str, LogDensity, int]]:
    for name, (log_density, dim) in TARGETS.items():
        if not settings.targets or name in settings.targets:
            yield name, log_density, dim
    if not settings.targets or POSTERIOR in settings.targets:
        found = next(each for each in posteriors(settings.folder, [POSTERIOR]))
        yield POSTERIOR, found.log_density, found.dim


def _rows(target: tuple[str, LogDensity, int], family: str, settings: Settings) -> Iterator[Row]:
    name, log_density, dim = target
    start = FAMILIES[family](dim)
    keys = range(settings.num_seeds)
    loss = _loss_of(log_density)

    def static(budget: int) -> dict[float, float]:
        """The median for each rate: an average over the tail of the steps."""
        fits = fit_many(
            log_density,
            start,
            keys=keys,
            learning_rates=GRID,
            optimizer=lambda rate: optax.chain(optax.scale_by_adam(), optax.scale_by_learning_rate(rate)),
            steps=budget // NUM_DRAWS,
            num_draws=NUM_DRAWS,
            average="tail",
            progress=False,
        )
        losses = [loss(each.family) for each in fits]
        num = settings.num_seeds
        return {rate: statistics.median(losses[i * num : (i + 1) * num]) for i, rate in enumerate(GRID)}

    def cosine(budget: int) -> float:
        schedule = optax.cosine_decay_schedule(COSINE_RATE, budget // NUM_DRAWS)
        fits = fit_many(
            log_density,
            start,
            keys=keys,
            optimizer=optax.adam(schedule),
            steps=budget // NUM_DRAWS,
            num_draws=NUM_DRAWS,
            progress=False,
        )
        return statistics.median(loss(each.family) for each in fits)

    for budget in settings.budgets:
        automatic = [fit(log_density, start, key=key, max_gradients=budget, progress=False) for key in keys]
        losses = [loss(each.family) for each in automatic]
        by_rate = static(budget)
        rate = min(GRID, key=lambda each: by_rate[each])
        found = {"automatic": statistics.median(losses), "static": by_rate[rate], "cosine": cosine(budget)}
        num_agreed = sum(each.outcome.name == "AGREED" for each in automatic)
        spent = [each.verdict.num_gradients for each in automatic if each.verdict is not None]
        yield {
            "target": name,
            "family": family,
            "budget": budget,
            **found,
            "spread": max(losses) - min(losses),
            "agreed": f"{num_agreed} of {settings.num_seeds}",
            "spent": statistics.median(spent),
            "rate": rate,
            "by_rate": {f"{each:g}": value for each, value in by_rate.items()},
            "is_as_good": found["automatic"] <= min(found["static"], found["cosine"]) + AS_GOOD,
        }


def _loss_of(log_density: LogDensity) -> Callable[[Family], float]:
    """−ELBO of a family, infinite where a draw has no density."""

    @eqx.filter_jit
    def terms(family: Family) -> Float[Array, "batch draw"]:
        def of_batch(key: Array) -> Float[Array, " draw"]:
            draws = family.sample(key, (BATCH,))
            return family.log_prob(draws) - jax.vmap(log_density)(draws)

        return jax.lax.map(of_batch, jax.random.split(jax.random.key(2**31), NUM_POINTS // BATCH))

    def loss(family: Family) -> float:
        found = float(jnp.mean(terms(family)))
        return found if np.isfinite(found) else float("inf")

    return loss


def _figure(rows: Sequence[Row]) -> Figure:
    """How far the others are above the automatic mode, in nats, a row each."""
    budgets = list(dict.fromkeys(row["budget"] for row in rows))
    labels = list(dict.fromkeys((row["target"], row["family"]) for row in rows))[::-1]
    with house_style():
        figure = Figure(figsize=(4.2 * len(budgets) + 3, 1.6 + 0.24 * len(labels)), layout="constrained")
        panels = figure.subplots(1, len(budgets), sharey=True, squeeze=False)[0]
        for axes, budget in zip(panels, budgets, strict=True):
            group = {(row["target"], row["family"]): row for row in rows if row["budget"] == budget}
            for other, color, marker, label in (
                ("static", LINE, "o", "Adam, best rate in hindsight"),
                ("cosine", MARK, "s", "cosine schedule"),
            ):
                at = [i for i, each in enumerate(labels) if each in group]
                above = [group[labels[i]][other] - group[labels[i]]["automatic"] for i in at]
                axes.scatter(above, at, color=color, marker=marker, s=26, alpha=0.8, linewidth=0, label=label)
            axes.axvline(0, color=MUTED, linewidth=0.8)
            axes.set_xscale("symlog", linthresh=AS_GOOD)
            axes.margins(x=0.05)
            axes.set(title=f"{budget:,} gradients", ylim=(-0.7, len(labels) - 0.3), xlabel="more −ELBO, nats")
        panels[0].set_yticks(range(len(labels)), [f"{target} · {family}" for target, family in labels])
        panels[0].tick_params(axis="y", labelsize=8)
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=2)
        figure.suptitle("Right of 0 the automatic mode is better", x=0.01, horizontalalignment="left")
    return figure
