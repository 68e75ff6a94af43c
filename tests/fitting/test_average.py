"""The average over the tail of a run."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dlrd
from dlrd.fitting.average import extended, start, value

OPTIMIZER = optax.adam(1e-1)


def averages_of(iterates):
    """After each iterate, the average so far."""
    average = start(jnp.zeros(()))
    for iterate in iterates:
        average = extended(average, jnp.asarray(iterate), jnp.asarray(True))
        yield average, float(value(average, jnp.nan))


def test_it_is_the_mean_over_half_to_three_quarters_of_the_run():
    iterates = np.random.default_rng(0).normal(size=200)
    for count, (average, mean) in enumerate(averages_of(iterates), start=1):
        size = int(average.num_closed + average.num_open)
        assert count / 2 <= size <= 0.75 * count + 1
        np.testing.assert_allclose(mean, iterates[count - size : count].mean(), rtol=1e-4, atol=1e-6)


def test_iterates_that_do_not_count_are_left_out():
    average = extended(start(jnp.zeros(2)), jnp.ones(2), jnp.asarray(True))
    same = extended(average, jnp.full(2, jnp.nan), jnp.asarray(False))
    np.testing.assert_array_equal(value(same, jnp.zeros(2)), 1)


def test_an_average_over_nothing_is_the_latest():
    np.testing.assert_array_equal(value(start(jnp.zeros(2)), jnp.full(2, 3.0)), 3)


def log_density(z):
    return -0.5 * jnp.sum((z - 2.0) ** 2) - 0.5 * jnp.sum(z**4)


def fitted(steps=200, **options):
    return dlrd.fit(
        log_density,
        dlrd.MeanFieldNormal.standard(3),
        key=0,
        optimizer=OPTIMIZER,
        steps=steps,
        num_draws=2,
        progress=False,
        **options,
    )


@pytest.mark.usefixtures("x64")
def test_a_fit_gives_the_average_of_its_iterates():
    steps = 100
    fit = fitted(steps, average="tail", monitor=lambda q: {"loc": q.loc}, monitor_steps=range(1, steps + 1))
    # Stretches of 1, 2, 4, …, 32 are closed after 63 steps; 37 more make the open one.
    np.testing.assert_allclose(fit.family.loc, fit.monitored["loc"][31:].mean(axis=0), rtol=1e-12)


def test_the_run_itself_is_the_same():
    ours, plain = (
        fitted(50, average=average, monitor=lambda q: {"loc": q.loc}).monitored["loc"]
        for average in ("tail", None)
    )
    np.testing.assert_array_equal(ours, plain)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_it_takes_most_of_the_noise_away():
    optimum = fitted(20_000, average="tail").family
    errors = {"tail": [], None: []}
    for average, found in errors.items():
        fits = dlrd.fit_many(
            log_density,
            dlrd.MeanFieldNormal.standard(3),
            keys=range(8),
            optimizer=OPTIMIZER,
            steps=2_000,
            num_draws=2,
            average=average,
            progress=False,
        )
        found.extend(float(dlrd.jeffreys(fit.family, optimum)) for fit in fits)
    # The tail has about 1000 iterates, correlated over some tens: an order of magnitude in the mean square.
    assert np.median(errors["tail"]) < np.median(errors[None]) / 10


def test_a_resumed_fit_ends_with_the_same_average(tmp_path):
    fitted(70, average="tail", checkpoint=tmp_path)
    resumed, whole = fitted(150, average="tail", checkpoint=tmp_path), fitted(150, average="tail")
    for ours, theirs in zip(jax.tree.leaves(resumed.family), jax.tree.leaves(whole.family), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_other_averages_are_refused():
    with pytest.raises(ValueError, match="average must be None or \"tail\", got 'mean'"):
        fitted(5, average="mean")
