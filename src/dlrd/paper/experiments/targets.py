"""The problems of the experiments: a log density, where to start, and how accurate a family is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dlrd import FullRankNormal, MeanFieldNormal, Mixture, jeffreys
from dlrd.families import Family
from dlrd.fitting import archive
from dlrd.models import LogDensity
from dlrd.paper.problems import logistic, synthetic
from dlrd.paper.problems.field import field


class Target(NamedTuple):
    """A problem as the experiments need it."""

    log_density: LogDensity
    start: Family
    monitor: Callable[
        [Any], dict[str, Array]
    ]  # "error": the divergence to the optimum, and what else is shown


def synthetic_target(folder: Path) -> Target:
    """Section 3.1 with d = 100. Of the parameters, the first mean and log σ are shown (figure 2)."""
    problem = synthetic()

    def monitor(q: MeanFieldNormal) -> dict[str, Array]:
        return {"error": jeffreys(q, problem.optimum), "shown": jnp.stack([q.loc[:3], q.log_scale[:3]])}

    return Target(problem.log_density, MeanFieldNormal.standard(100), monitor)


def toy_target(folder: Path) -> Target:
    """Section 3.1 with d = 1: both parameters are shown (figure 1)."""
    problem = synthetic(dim=1)

    def monitor(q: MeanFieldNormal) -> dict[str, Array]:
        return {"error": jeffreys(q, problem.optimum), "shown": jnp.concatenate([q.loc, q.log_scale])}

    return Target(problem.log_density, MeanFieldNormal.standard(1), monitor)


def logistic_target(folder: Path) -> Target:
    """Section 3.2, measured against the exact optimum."""

    def make() -> FullRankNormal:
        from dlrd.paper.references import logistic_reference

        return logistic_reference()

    optimum = stored_reference(folder / "logistic.npz", make)
    return Target(logistic(), FullRankNormal.standard(31), lambda q: {"error": jeffreys(q, optimum)})


def field_target(folder: Path) -> Target:
    """Section 3.3, measured against a reference with an error of its own, far below what is shown."""

    def make() -> FullRankNormal:
        from dlrd.paper.references import field_reference

        return field_reference().family

    optimum = stored_reference(folder / "field.npz", make)
    return Target(field().log_density, FullRankNormal.standard(29), lambda q: {"error": jeffreys(q, optimum)})


def mixture_target(folder: Path) -> Target:
    """Beyond the paper: two normals in five dimensions, fitted by two, so that KL(q‖p) can reach 0."""
    dim = 5
    target = Mixture(
        [
            MeanFieldNormal(jnp.full(dim, -2.0), jnp.zeros(dim)),
            MeanFieldNormal(jnp.full(dim, 1.0), jnp.full(dim, -0.5)),
        ],
        jnp.log(jnp.asarray([0.3, 0.7])),
    )
    start = Mixture(
        [MeanFieldNormal(jnp.full(dim, center), jnp.zeros(dim)) for center in (-1.0, 1.0)], jnp.zeros(2)
    )
    return Target(target.log_prob, start, _sampled_divergence(target.log_prob))


def flow_target(folder: Path) -> Target:
    """Beyond the paper: a banana in two dimensions, fitted by a coupling flow."""
    from flowjax.bijections import RationalQuadraticSpline
    from flowjax.distributions import StandardNormal
    from flowjax.flows import coupling_flow

    def log_density(z: Float[Array, " 2"]) -> Float[Array, ""]:
        bent = jnp.stack([z[0] / 2, z[1] - 0.25 * z[0] ** 2 + 1])
        return jnp.sum(jax.scipy.stats.norm.logpdf(bent)) - jnp.log(2.0)

    start = coupling_flow(
        jax.random.key(0),
        base_dist=StandardNormal((2,)),
        transformer=RationalQuadraticSpline(knots=5, interval=4),
        flow_layers=2,
        nn_width=8,
        nn_depth=1,
    )
    return Target(log_density, start, _sampled_divergence(log_density))


def _sampled_divergence(log_prob: LogDensity, num_draws: int = 1000) -> Callable[[Family], dict[str, Array]]:
    """KL(q‖p) to a normalised density, from draws of its own; "error_noise" is its standard error."""

    def monitor(q: Family) -> dict[str, Array]:
        draws = q.sample(jax.random.key(2**31), (num_draws,))
        terms = q.log_prob(draws) - jax.vmap(log_prob)(draws)
        # At the optimum the plain mean is all noise and may be negative; this form of the same divergence,
        # E[e^−t − 1 + t], is a mean of terms that are never negative.
        terms = jnp.expm1(-terms) + terms
        return {"error": jnp.mean(terms), "error_noise": jnp.std(terms) / jnp.sqrt(num_draws)}

    return monitor


def stored_reference(path: Path, make: Callable[[], FullRankNormal]) -> FullRankNormal:
    """The reference in `path`, or else made and written there."""
    if not path.exists():
        made = make()
        archive.write(path, {"loc": jax.device_get(made.loc), "cholesky": jax.device_get(made.cholesky)}, {})
    arrays, _ = archive.read(path)
    return FullRankNormal(arrays["loc"], arrays["cholesky"])


TARGETS: dict[str, Callable[[Path], Target]] = {
    "synthetic-1d": toy_target,
    "synthetic": synthetic_target,
    "logistic": logistic_target,
    "field": field_target,
    "mixture": mixture_target,
    "flow": flow_target,
}
