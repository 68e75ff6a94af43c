"""What a step of `dlrd.fit` costs beside other ways to do it: the logistic regression, full rank, S = 8."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.linalg
import scipy.special
from jaxtyping import Array

import dlrd
from dlrd.bench.timing import Row, interleaved, paired
from dlrd.models import LogDensity
from dlrd.paper.problems.logistic import PRIOR_VARIANCE, logistic, signed_design

NUM_DRAWS = 8


def against_peers(repeats: int = 5) -> list[Row]:
    """Ours with its progress bar on, against NumPyro with and without one and a loop in plain NumPy."""
    ours = _ours()
    numpyro_loop = _numpyro(progress_bar=False)
    numpyro_bar = _numpyro(progress_bar=True)
    # The difference of a long and a short run has no compilation in it.
    lengths = {"ours": (2_000, 22_000), "numpyro": (2_000, 22_000), "bar": (200, 1_200), "numpy": (50, 550)}
    runs = {"ours": ours, "numpyro": numpyro_loop, "bar": numpyro_bar, "numpy": _plain_numpy}
    times = interleaved(
        {
            f"{name} {steps}": lambda run=run, steps=steps: run(steps)
            for name, run in runs.items()
            for steps in lengths[name]
        },
        repeats,
    )
    micros = {
        name: (times[f"{name} {long}"] - times[f"{name} {short}"]) / (long - short) * 1e6
        for name, (short, long) in lengths.items()
    }
    rows = [
        ("NumPyro svi.run, no bar", "numpyro", 1.1),
        ("NumPyro svi.run, its bar", "bar", 10.0),
        ("a loop in plain NumPy", "numpy", 10.0),
    ]
    return [
        Row(
            "fit, logistic full rank, S=8, bar on, a step",
            label,
            micros["ours"],
            micros[name],
            "µs",
            reach=reach,
            is_speedup=True,
        )
        for label, name, reach in rows
    ]


def guarded(steps: int = 10_000, repeats: int = 40) -> Row:
    """The guard beside the same fit without it; in many runs, since the difference is small."""
    log_density = logistic()
    optimizer = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-2))

    def runner(guard: bool) -> Callable[[], object]:
        return lambda: dlrd.fit(
            log_density,
            dlrd.FullRankNormal.standard(31),
            key=0,
            optimizer=optimizer,
            steps=steps,
            num_draws=NUM_DRAWS,
            progress=False,
            guard=guard,
        )

    ours, theirs = paired(runner(True), runner(False), repeats)
    return Row(
        "guard, logistic full rank, S=8, a step",
        "the same without it",
        ours / steps * 1e6,
        theirs / steps * 1e6,
        "µs",
        reach=1.03,
        is_speedup=False,
    )


def many_runs(num_runs: int = 16, steps: int = 5_000, repeats: int = 5) -> Row:
    """Throughput of `fit_many` on the synthetic problem against one run at a time."""
    from dlrd.paper.problems import synthetic

    problem = synthetic()
    family = dlrd.MeanFieldNormal.standard(100)
    optimizer = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-2))

    def many() -> None:
        dlrd.fit_many(
            problem.log_density,
            family,
            keys=range(num_runs),
            optimizer=optimizer,
            steps=steps,
            num_draws=2,
            progress=False,
        )

    def one() -> None:
        dlrd.fit(
            problem.log_density,
            family,
            key=0,
            optimizer=optimizer,
            steps=steps,
            num_draws=2,
            progress=False,
        )

    times = interleaved({"many": many, "one": one}, repeats)
    return Row(
        f"fit_many, {num_runs} runs, synthetic d=100, S=2, a step of a run",
        "one run alone",
        times["many"] / steps / num_runs * 1e6,
        times["one"] / steps * 1e6,
        "µs",
        reach=1.5,
        is_speedup=True,
    )


def automatic_fits(num_fits: int = 8, repeats: int = 5) -> list[Row]:
    """Automatic fits side by side, by `fit_many`, against one after another; of two models."""

    def small(z: Array) -> Array:
        return -0.5 * jnp.sum(z**2) - jnp.sum(jnp.exp(z - 1.0))

    return [
        _side_by_side(f"{num_fits} automatic fits, {name}", log_density, dim, num_fits, repeats)
        for name, log_density, dim in (("d=4", small, 4), ("logistic full rank", logistic(), 31))
    ]


def _side_by_side(what: str, log_density: LogDensity, dim: int, num_fits: int, repeats: int) -> Row:
    family = dlrd.FullRankNormal.standard(dim)

    def together() -> None:
        dlrd.fit_many(log_density, family, keys=range(num_fits), progress=False)

    def in_turn() -> None:
        for key in range(num_fits):
            dlrd.fit(log_density, family, key=key, progress=False)

    ours, theirs = paired(together, in_turn, repeats)
    milli = 1e3 / num_fits
    return Row(what, "one after another", ours * milli, theirs * milli, "ms", reach=1.2, is_speedup=True)


def _ours() -> Callable[[int], None]:
    log_density = logistic()
    optimizer = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-2))

    def run(steps: int) -> None:
        dlrd.fit(
            log_density,
            dlrd.FullRankNormal.standard(31),
            key=0,
            optimizer=optimizer,
            steps=steps,
            num_draws=NUM_DRAWS,
        )

    return run


def _numpyro(progress_bar: bool) -> Callable[[int], None]:
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoMultivariateNormal

    signed = jnp.asarray(signed_design(), float)

    def model() -> None:
        prior = dist.Normal(0.0, PRIOR_VARIANCE**0.5).expand([signed.shape[1]]).to_event(1)
        coefficients = numpyro.sample("coefficients", prior)
        numpyro.sample("benign", dist.Bernoulli(logits=signed @ coefficients), obs=jnp.ones(len(signed)))

    def run(steps: int) -> None:
        svi = SVI(
            model,
            AutoMultivariateNormal(model, init_scale=1.0),
            optax.adam(1e-2),
            Trace_ELBO(num_particles=NUM_DRAWS),
        )
        svi.run(jax.random.key(0), steps, progress_bar=progress_bar)

    return run


def _plain_numpy(steps: int) -> None:
    """The paper's loop as one would write it with NumPy: one draw at a time, Adam, the rule left out."""
    signed = signed_design()
    dim = signed.shape[1]
    rng = np.random.default_rng(0)
    loc, cholesky = np.zeros(dim), np.eye(dim)
    params = [loc, cholesky]
    first = [np.zeros_like(param) for param in params]
    second = [np.zeros_like(param) for param in params]
    for step in range(1, steps + 1):
        gradient = [np.zeros_like(param) for param in params]
        for _ in range(NUM_DRAWS):
            noise = rng.normal(size=dim)
            draw = loc + cholesky @ noise
            weights = scipy.special.expit(-(signed @ draw))
            direction = signed.T @ weights - draw / PRIOR_VARIANCE
            direction += scipy.linalg.solve_triangular(cholesky, noise, lower=True, trans=1)
            gradient[0] += direction / NUM_DRAWS
            gradient[1] += np.tril(np.outer(direction, noise)) / NUM_DRAWS
        for param, m, v, g in zip(params, first, second, gradient, strict=True):
            m += 0.1 * (g - m)
            v += 0.001 * (g**2 - v)
            param += 1e-2 * m / (1 - 0.9**step) / np.sqrt(v / (1 - 0.999**step) + 1e-8)
