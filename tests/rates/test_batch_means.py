"""The ring of samples and the confidence interval of their mean, against NumPy and scipy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from dlrd.rates import _batch_means as batch_means


def filled(capacity: int, rows: np.ndarray) -> batch_means.Samples:
    """A ring of this capacity after all rows."""
    samples = batch_means.empty(capacity, rows.shape[1])
    append_fn = jax.jit(lambda samples, row: batch_means.append(samples, list(row)))
    for row in rows:
        samples = append_fn(samples, row)
    return samples


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.98])
def test_quantiles_are_students(confidence: float):
    quantiles = batch_means.t_quantiles(confidence, 10_000)

    expected = scipy.stats.t.ppf((1 + confidence) / 2, np.arange(1, 101))
    np.testing.assert_allclose(quantiles, expected, rtol=1e-10)  # of two algorithms for the same function


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("num", [4, 10, 16, 99, 100])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_interval_is_that_of_a_t_test_of_the_batch_means(num: int, confidence: float):
    values = np.random.default_rng(num).normal(loc=3, size=130)
    samples = filled(101, values[:, None])

    width = batch_means.half_width(samples, jnp.asarray(num), batch_means.t_quantiles(confidence, 100))

    num_batches = math.isqrt(num)
    means = values[-(num_batches**2) :].reshape(num_batches, num_batches).mean(axis=1)
    interval = scipy.stats.ttest_1samp(means, 0.0).confidence_interval(confidence)
    # Running sums up to 400 are good to 400 eps, and become a spread of the means of about 0.1.
    np.testing.assert_allclose(width, (interval.high - interval.low) / 2, rtol=1e-10)


@pytest.mark.usefixtures("x64")
def test_mean_of_the_newest():
    values = np.random.default_rng(0).normal(size=(50, 2))
    samples = filled(21, values)
    for num in [1, 7, 20]:
        # Sums of 50 terms of size 1: 50 eps, times a few.
        np.testing.assert_allclose(
            batch_means.newest_mean(samples, jnp.asarray(num)), values[-num:].mean(axis=0), atol=1e-13
        )
    assert samples.num == 50


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("num_before", [3, 10, 11, 25])
def test_a_reset_forgets_all(num_before: int):
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
