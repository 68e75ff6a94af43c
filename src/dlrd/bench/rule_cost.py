"""What the rule costs beside a fixed rate: a small problem, and ten million parameters."""

import statistics
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import dlrd
from dlrd.bench.timing import Row, paired, rows_of_rule, seconds
from dlrd.paper.problems import synthetic


def small_problem(steps: int = 20_000, repeats: int = 60) -> Row:
    """The synthetic problem, d = 100, Adam, two draws: `dlrd.fit` with the rule and with a fixed rate.

    In long runs, since what a fit takes before its first step is not what a step takes; in many, since the
    difference is smaller than what the speed of a machine varies by.
    """
    problem = synthetic()
    family = dlrd.MeanFieldNormal.standard(100)

    def runner(rule: optax.GradientTransformation) -> Callable[[], object]:
        optimizer = optax.chain(optax.scale_by_adam(), rule)
        return lambda: dlrd.fit(
            problem.log_density,
            family,
            key=0,
            optimizer=optimizer,
            steps=steps,
            num_draws=2,
            progress=False,
        )

    ours, theirs = paired(
        runner(dlrd.dynamic_decay(1e-2)), runner(optax.scale_by_learning_rate(1e-2)), repeats
    )
    return Row(
        "dynamic_decay, synthetic d=100, S=2, a step",
        "the same with a fixed rate",
        ours / steps * 1e6,
        theirs / steps * 1e6,
        "µs",
        reach=1.05,
        is_speedup=False,
    )


def many_parameters(size: int = 10_000_000, steps: int = 60) -> list[Row]:
    """Adam on `size` float32 parameters that drift and oscillate, buffers donated; mean over the steps.

    The rule looks at the signal-to-noise ratios once a window is long enough, so its steps differ in cost:
    what counts is the mean over a run with several windows.
    """
    rng = np.random.default_rng(0)
    noises = [jnp.asarray(rng.normal(size=size), jnp.float32) for _ in range(3)]
    rules = {
        "fixed": optax.scale_by_learning_rate(1e-2),
        "exact": dlrd.dynamic_decay(1e-2),
        "sampled": dlrd.dynamic_decay(1e-2, max_tracked=10_000),
    }
    runs = {name: _Run(optax.chain(optax.scale_by_adam(), rule), size) for name, rule in rules.items()}
    times: dict[str, list[float]] = {name: [] for name in rules}
    for step in range(steps):
        for name, run in runs.items():
            times[name].append(seconds(lambda run=run, step=step: run.step(noises[step % 3])))
    # The first call compiles. A step disturbed by another process counts as the run's other steps do.
    means = {name: statistics.fmean(_without_outliers(each[1:])) * 1e3 for name, each in times.items()}
    return rows_of_rule("dynamic_decay", "Adam with a fixed rate", size, means)


class _Run:
    """An optimiser at work on a vector that is drawn to zero and pushed by noise."""

    def __init__(self, optimizer: optax.GradientTransformation, size: int):
        self.params = jnp.ones(size, jnp.float32)
        self.opt_state = optimizer.init(self.params)

        def update(params: Any, opt_state: Any, noise: Any) -> tuple[Any, Any]:
            updates, opt_state = optimizer.update(params + noise, opt_state, params)
            return optax.apply_updates(params, updates), opt_state

        self._update = jax.jit(update, donate_argnums=(0, 1))

    def step(self, noise: jax.Array) -> None:
        self.params, self.opt_state = jax.block_until_ready(self._update(self.params, self.opt_state, noise))


def _without_outliers(times: list[float]) -> list[float]:
    """Times with those above three medians cut down to that."""
    limit = 3 * statistics.median(times)
    return [min(time, limit) for time in times]
