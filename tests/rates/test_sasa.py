import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats

import dlrd
from dlrd.rates import _batch_means as batch_means

Verdict = Callable[[list[float], list[float]], bool]  # of the newest ⟨x, d⟩ and α ‖d‖² / 2


def half_width(values: list[float], confidence: float) -> float:
    """Of the mean's confidence interval: b = ⌊√n⌋ batches of b, the newest."""
    num_batches = math.isqrt(len(values))
    means = np.reshape(values[-(num_batches**2) :], (num_batches, num_batches)).mean(axis=1)
    quantile = scipy.stats.t.ppf((1 + confidence) / 2, num_batches - 1)
    return float(quantile * np.std(means, ddof=1) / math.sqrt(num_batches))


def sasa_verdict(tolerance: float = 0.02, significance: float = 0.2) -> Verdict:
    def is_stationary(products: list[float], halves: list[float]) -> bool:
        z = [product - half for product, half in zip(products, halves, strict=True)]
        reach = abs(math.fsum(z) / len(z)) + half_width(z, 1 - significance)
        return reach < tolerance * math.fsum(halves) / len(halves)

    return is_stationary


def sasa_plus_verdict(significance: float = 0.05) -> Verdict:
    def is_stationary(products: list[float], halves: list[float]) -> bool:
        delta = [product - half for product, half in zip(products, halves, strict=True)]
        return abs(math.fsum(delta) / len(delta)) <= half_width(delta, 1 - significance)

    return is_stationary


def decays_by_hand(
    iterates: np.ndarray,
    directions: np.ndarray,
    is_stationary_fn: Verdict,
    *,
    learning_rate: float,
    interval: int,
    fraction: int,
    min_samples: int,
    max_samples: int = 10**9,
    factor: float = 0.1,
) -> list[int]:
    """Both rules with plain lists: the steps, counted from 1, at which the rate falls."""
    products, halves, decays = [], [], []
    for step, (x, d) in enumerate(zip(iterates.astype(float), directions.astype(float), strict=True), 1):
        products.append(float(x @ d))
        halves.append(learning_rate / 2 * float(d @ d))
        num = min(math.ceil(len(products) / fraction), max_samples)
        if step % interval == 0 and num > min_samples and is_stationary_fn(products[-num:], halves[-num:]):
            decays.append(step)
            learning_rate *= factor
            products, halves = [], []
    return decays


class Run(NamedTuple):
    iterates: np.ndarray
    directions: np.ndarray
    decays: list[int]  # the steps, counted from 1, at which the rate fell


def descend(
    rule: optax.GradientTransformation,
    *starts: float,
    num_steps: int,
    dimension: int = 30,
    direction: optax.GradientTransformation | None = None,
) -> list[Run]:
    """Stochastic gradient descent on ‖x‖² / 2 with unit noise, once from each start."""
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


@pytest.mark.parametrize("significance", [0.2, 0.02])
def test_sasa_decays_where_plain_lists_say(precision: jnp.dtype, significance: float):
    """Near the optimum at once, or with a long way to it whose samples dwarf those that count."""
    del precision
    rule = dlrd.sasa(0.5, interval=100, significance=significance, max_samples=10_000)

    for run in descend(rule, 1.0, 1e4, num_steps=10_000):
        expected = decays_by_hand(
            *run[:2],
            sasa_verdict(significance=significance),
            learning_rate=0.5,
            interval=100,
            fraction=2,
            min_samples=3,
        )
        assert run.decays == expected != []


def test_the_interval_of_sasa_counts_from_the_first_step():
    rule = dlrd.sasa(0.5, interval=70, tolerance=1e6, max_samples=1000)

    (run,) = descend(rule, 1.0, num_steps=500)

    assert run.decays == [70, 140, 210, 280, 350, 420, 490]


@pytest.mark.slow
@pytest.mark.parametrize("learning_rate", [0.1, 1e-4])
def test_sasa_plus_decays_where_plain_lists_say(precision: jnp.dtype, learning_rate: float):
    del precision
    rule = dlrd.sasa_plus(learning_rate, max_samples=20_000)

    near, far = descend(rule, 1.0, 1e4, num_steps=20_000)

    for run in near, far:
        assert run.decays == decays_by_hand(
            *run[:2],
            sasa_plus_verdict(),
            learning_rate=learning_rate,
            interval=100,
            fraction=8,
            min_samples=1000,
        )
    if learning_rate == 0.1:
        assert near.decays[0] == far.decays[0] == 8100  # 1013 samples, at the first chance
    else:
        assert far.decays == []  # still on the way


@pytest.mark.parametrize("max_samples", [37, 100])
@pytest.mark.usefixtures("x64")
def test_sasa_with_a_small_ring(max_samples: int):
    """The ring is overwritten many times before and after the decays."""
    rule = dlrd.sasa(0.5, interval=90, tolerance=0.3, max_samples=max_samples)

    (run,) = descend(rule, 100.0, num_steps=3000)

    expected = decays_by_hand(
        *run[:2],
        sasa_verdict(tolerance=0.3),
        learning_rate=0.5,
        interval=90,
        fraction=2,
        min_samples=3,
        max_samples=max_samples,
    )
    assert run.decays == expected != []
    assert len(run.decays) < 3000 // 90  # not at each test, which would show nothing


@pytest.mark.usefixtures("x64")
def test_sasa_plus_with_a_small_ring():
    rule = dlrd.sasa_plus(1e-3, max_samples=1100)

    (run,) = descend(rule, 100.0, num_steps=30_000)

    expected = decays_by_hand(
        *run[:2],
        sasa_plus_verdict(),
        learning_rate=1e-3,
        interval=100,
        fraction=8,
        min_samples=1000,
        max_samples=1100,
    )
    assert run.decays == expected != []
    assert run.decays[0] > 8100  # by then the ring is full


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_sasa_with_momentum_finds_stationary_iterates(momentum: float):
    """At the optimum from the start, and with a tolerance far wider than the interval.

    The direction holds the momentum: ⟨x, d⟩ and α ‖d‖² / 2 agree in the mean for any direction.
    """
    rule = dlrd.sasa(0.1, interval=1000, tolerance=0.2, max_samples=10_000)

    (run,) = descend(rule, 0.0, num_steps=10_000, dimension=200, direction=optax.ema(momentum, debias=False))

    assert run.decays != []


def filled(capacity: int, rows: np.ndarray) -> batch_means.Samples:
    """A ring of this capacity after all rows."""
    samples = batch_means.empty(capacity, rows.shape[1])
    append_fn = jax.jit(lambda samples, row: batch_means.append(samples, list(row)))
    for row in rows:
        samples = append_fn(samples, row)
    return samples


@pytest.mark.usefixtures("x64")
class TestBatchMeans:
    @pytest.mark.parametrize("confidence", [0.8, 0.95, 0.98])
    def test_quantiles_are_students(self, confidence: float):
        quantiles = batch_means.t_quantiles(confidence, 10_000)

        expected = scipy.stats.t.ppf((1 + confidence) / 2, np.arange(1, 101))
        np.testing.assert_allclose(quantiles, expected, rtol=1e-10)  # of two algorithms for the same function

    @pytest.mark.parametrize("num", [4, 10, 16, 99, 100])
    @pytest.mark.parametrize("confidence", [0.8, 0.95])
    def test_interval_is_that_of_a_t_test_of_the_batch_means(self, num: int, confidence: float):
        values = np.random.default_rng(num).normal(loc=3, size=130)
        samples = filled(101, values[:, None])

        width = batch_means.half_width(samples, jnp.asarray(num), batch_means.t_quantiles(confidence, 100))

        num_batches = math.isqrt(num)
        means = values[-(num_batches**2) :].reshape(num_batches, num_batches).mean(axis=1)
        interval = scipy.stats.ttest_1samp(means, 0.0).confidence_interval(confidence)
        # Running sums up to 400 are good to 400 eps, and become a spread of the means of about 0.1.
        np.testing.assert_allclose(width, (interval.high - interval.low) / 2, rtol=1e-10)

    def test_mean_of_the_newest(self):
        values = np.random.default_rng(0).normal(size=(50, 2))
        samples = filled(21, values)
        for num in [1, 7, 20]:
            # Sums of 50 terms of size 1: 50 eps, times a few.
            np.testing.assert_allclose(
                batch_means.newest_mean(samples, jnp.asarray(num)), values[-num:].mean(axis=0), atol=1e-13
            )
        assert samples.num == 50

    @pytest.mark.parametrize("num_before", [3, 10, 11, 25])
    def test_a_reset_forgets_all(self, num_before: int):
        """Wherever in the ring it happens."""
        samples = batch_means.empty(11, 1)
        for value in range(num_before):
            samples = batch_means.append(samples, [jnp.asarray(1e6 + value)])
        samples = batch_means.reset_if(False, samples)
        assert samples.num == num_before
        samples = batch_means.reset_if(True, samples)
        assert samples.num == 0
        for value in [1.0, 2.0, 6.0]:
            samples = batch_means.append(samples, [jnp.asarray(value)])

        assert samples.num == 3
        assert batch_means.newest_mean(samples, jnp.asarray(3)) == 3
        assert batch_means.newest_mean(samples, jnp.asarray(2)) == 4


def test_small_samples_after_large_ones_keep_their_digits():
    """In float32: what comes late must not drown in what came first."""
    late = np.random.default_rng(0).normal(size=100).astype(np.float32)
    samples = filled(201, np.concatenate([np.full(100, 2**20, np.float32), late])[:, None])

    # Numbers near 100 · 2²⁰ are 8 apart, so that rounding takes at most 4 from a running sum, 400 from all.
    # Each time these are added up, float32 is off by at most 400 · 2⁻²⁴: a hundred times, in the mean once.
    np.testing.assert_allclose(
        batch_means.newest_mean(samples, jnp.asarray(100)),
        [late.mean(dtype=float)],
        rtol=0,
        atol=400 * 2**-24,
    )
