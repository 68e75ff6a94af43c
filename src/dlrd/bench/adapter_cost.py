"""What a step costs with a model from another library, beside the same density written by hand."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

import dlrd
from dlrd.bench.timing import Row, paired
from dlrd.models import LogDensity, Model

NUM_DRAWS, STEPS = 8, 5_000
NUM_GROUPS, NUM_ROWS = 40, 1_000


def numpyro_hierarchy(repeats: int = 9) -> Row:
    """A regression with a level for each group, through the adapter and by hand."""
    data = made_data()
    return row("NumPyro", dlrd.models.numpyro(hierarchy(*data)), by_hand(*data), reach=1.1, repeats=repeats)


def pymc_hierarchy(repeats: int = 9) -> Row:
    """The same of a PyMC model."""
    data = made_data()
    model = dlrd.models.pymc(hierarchy_in_pymc(*data))
    return row("PyMC", model, by_hand(*data, in_order=pymc_order), reach=1.3, repeats=repeats)


def hierarchy(group: np.ndarray, x: np.ndarray, y: np.ndarray) -> Callable[[], None]:
    """As a NumPyro model."""
    import numpyro
    import numpyro.distributions as dist

    def model() -> None:
        mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        spread = numpyro.sample("spread", dist.HalfNormal(1.0))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        with numpyro.plate("group", NUM_GROUPS):
            level = jnp.asarray(numpyro.sample("level", dist.Normal(mean, spread)))
        with numpyro.plate("row", NUM_ROWS):
            numpyro.sample("y", dist.Normal(level[group] + slope * x, noise), obs=y)

    return model


def hierarchy_in_pymc(group: np.ndarray, x: np.ndarray, y: np.ndarray) -> Any:
    """As a PyMC model."""
    import pymc as pm

    with pm.Model() as model:
        mean, slope = pm.Normal("mean", 0, 5), pm.Normal("slope", 0, 1)
        spread, noise = pm.HalfNormal("spread", 1), pm.HalfNormal("noise", 1)
        level = pm.Normal("level", mean, spread, shape=NUM_GROUPS)
        pm.Normal("y", level[group] + slope * x, noise, observed=y)
    return model


def numpyro_order(z: Array) -> tuple[Array, ...]:
    """The levels, the mean, the log noise, the slope and the log spread of a draw, as NumPyro orders them."""
    return z[:NUM_GROUPS], *z[NUM_GROUPS:]


def pymc_order(z: Array) -> tuple[Array, ...]:
    """The same of a draw in PyMC's order."""
    mean, slope, log_spread, log_noise = z[:4]
    return z[4:], mean, log_noise, slope, log_spread


def made_data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Groups, a covariate, what is observed."""
    rng = np.random.default_rng(0)
    group, x = np.arange(NUM_ROWS) % NUM_GROUPS, rng.normal(size=NUM_ROWS)
    return group, x, 0.3 * x + rng.normal(size=NUM_GROUPS)[group] + rng.normal(size=NUM_ROWS)


def by_hand(
    group: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    in_order: Callable[[Array], tuple[Array, ...]] = numpyro_order,
) -> LogDensity:
    """The density of the levels, the mean, the log noise, the slope and the log spread."""

    def normal(value: Any, mean: Any, scale: Any) -> Array:
        # Other formulas of the same cost up to a fifth less or more: this is the one of NumPyro.
        return -0.5 * ((value - mean) / scale) ** 2 - jnp.log(jnp.sqrt(2 * jnp.pi) * scale)

    def log_density(z: Float[Array, " dim"]) -> Float[Array, ""]:
        level, mean, log_noise, slope, log_spread = in_order(z)
        noise, spread = jnp.exp(log_noise), jnp.exp(log_spread)
        priors = normal(mean, 0.0, 5.0) + normal(slope, 0.0, 1.0)
        priors += normal(noise, 0.0, 1.0) + normal(spread, 0.0, 1.0) + 2 * jnp.log(2.0)
        levels = jnp.sum(normal(level, mean, spread))
        likelihood = jnp.sum(normal(y, level[group] + slope * x, noise))
        return priors + log_noise + log_spread + levels + likelihood

    return log_density


def row(library: str, model: Model, log_density: LogDensity, reach: float, repeats: int) -> Row:
    """The comparison of both for the same steps."""
    plain = dlrd.models.function(log_density, model.dim)
    optimizer = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-2))

    def steps(fitted: Model) -> None:
        family = dlrd.MeanFieldNormal.standard(fitted.dim)
        dlrd.fit(fitted, family, key=0, optimizer=optimizer, steps=STEPS, num_draws=NUM_DRAWS, progress=False)

    ours, theirs = paired(lambda: steps(model), lambda: steps(plain), repeats)
    what = f"a {library} model, regression in {NUM_GROUPS} groups, S={NUM_DRAWS}, a step"
    micros = 1e6 / STEPS
    return Row(
        what, "the density by hand", ours * micros, theirs * micros, "µs", reach=reach, is_speedup=False
    )
