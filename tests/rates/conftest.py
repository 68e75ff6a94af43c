"""What the tests of rules share: runs of a rule, and tests of stationarity with plain lists."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats


@pytest.fixture(scope="session")
def rates_of() -> Callable[[optax.GradientTransformation, int], np.ndarray]:
    """The rates of the first steps of a rule that needs no parameters, as the steps show them."""

    def run(rule: optax.GradientTransformation, num_steps: int) -> np.ndarray:
        def step(state: optax.OptState, _: None):
            update, state = rule.update(jnp.ones(()), state)
            return state, -update

        return np.asarray(jax.lax.scan(step, rule.init(jnp.ones(())), length=num_steps)[1])

    return run


class Run(NamedTuple):
    """A run of stochastic gradient descent."""

    iterates: np.ndarray
    directions: np.ndarray
    decays: list[int]  # the steps, counted from 1, at which the rate fell


@pytest.fixture(scope="session")
def descend() -> Callable[..., list[Run]]:
    """Stochastic gradient descent on ‖x‖² / 2 with unit noise, once from each start."""

    def run_all(
        rule: optax.GradientTransformation,
        *starts: float,
        num_steps: int,
        dimension: int = 30,
        direction: optax.GradientTransformation | None = None,
    ) -> list[Run]:
        direction = direction or optax.identity()
        noise = np.random.default_rng(0).normal(size=(num_steps, dimension))

        def step(carry: tuple, noise: jax.Array):
            x, memory, state = carry
            d, memory = direction.update(x + noise, memory, x)
            update, state = rule.update(d, state, x)
            return (x + update, memory, state), (x, d, state.num_decays)

        @jax.jit
        def run(x: jax.Array, noise: jax.Array):
            return jax.lax.scan(step, (x, direction.init(x), rule.init(x)), noise)[1]

        runs = []
        for start in starts:
            iterates, directions, num_decays = jax.device_get(run(np.full(dimension, start), noise))
            decays = np.flatnonzero(np.diff(num_decays, prepend=0)) + 1
            runs.append(Run(iterates, directions, decays.tolist()))
        return runs

    return run_all


@pytest.fixture(scope="session")
def decays_by_hand() -> Callable[..., list[int]]:
    """SASA and SASA+ with plain lists: the steps, counted from 1, at which the rate falls.

    The verdict is told the mean of ⟨x, d⟩ − α ‖d‖² / 2, half of its confidence interval, and the mean of
    α ‖d‖² / 2.
    """

    def run(
        given: Run,
        is_stationary_fn: Callable[[float, float, float], bool],
        *,
        confidence: float,
        learning_rate: float,
        interval: int,
        fraction: int,
        min_samples: int,
        max_samples: int = 10**9,
        factor: float = 0.1,
    ) -> list[int]:
        iterates, directions = given.iterates.astype(float), given.directions.astype(float)
        products, squares = np.sum(iterates * directions, axis=1), np.sum(directions**2, axis=1)
        differences, halves, decays = [], [], []
        for step, (product, square) in enumerate(zip(products, squares, strict=True), 1):
            halves.append(learning_rate / 2 * square)
            differences.append(product - halves[-1])
            num = min(math.ceil(len(halves) / fraction), max_samples)
            if step % interval or num <= min_samples:
                continue
            mean, mean_half = (math.fsum(values[-num:]) / num for values in (differences, halves))
            if is_stationary_fn(mean, half_width(differences[-num:], confidence), mean_half):
                decays.append(step)
                learning_rate *= factor
                differences, halves = [], []
        return decays

    return run


def half_width(values: list[float], confidence: float) -> float:
    """Of the mean's confidence interval: b = ⌊√n⌋ batches of b, the newest."""
    num_batches = math.isqrt(len(values))
    means = np.reshape(values[-(num_batches**2) :], (num_batches, num_batches)).mean(axis=1)
    quantile = scipy.stats.t.ppf((1 + confidence) / 2, num_batches - 1)
    return float(quantile * np.std(means, ddof=1) / math.sqrt(num_batches))
