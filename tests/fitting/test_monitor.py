"""What a monitor sees is what the family was."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dlrd
from dlrd.fitting.monitor import log_spaced

OPTIMIZER = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-1))


def log_density(z):
    return -0.5 * jnp.sum((z - 2.0) ** 2)


def fitted(steps, **options):
    start = dlrd.MeanFieldNormal.standard(3)
    return dlrd.fit(
        log_density, start, key=0, optimizer=OPTIMIZER, steps=steps, num_draws=2, progress=False, **options
    )


def watch(family):
    return {"loc": family.loc, "spread": jnp.sum(family.std)}


def test_values_are_those_of_shorter_fits():
    fit = fitted(60, monitor=watch, monitor_steps=[7, 1, 40])
    np.testing.assert_array_equal(fit.monitored["step"], [1, 7, 40])
    for row, steps in enumerate([1, 7, 40]):
        shorter = fitted(steps).family
        np.testing.assert_array_equal(fit.monitored["loc"][row], shorter.loc)
        np.testing.assert_array_equal(fit.monitored["spread"][row], jnp.sum(shorter.std))


def test_watching_changes_nothing():
    np.testing.assert_array_equal(fitted(50).family.loc, fitted(50, monitor=watch).family.loc)


def test_steps_are_spaced_evenly_on_a_logarithmic_axis_by_default():
    np.testing.assert_array_equal(fitted(50, monitor=watch).monitored["step"], log_spaced(50))


def test_each_of_many_runs_has_its_own():
    fits = dlrd.fit_many(
        log_density,
        dlrd.MeanFieldNormal.standard(3),
        keys=[0, 1],
        learning_rates=[1e-1, 1e-2, 1e-3],
        optimizer=lambda rate: optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(rate)),
        steps=20,
        monitor=watch,
        monitor_steps=[20],
        progress=False,
    )
    for fit in fits:
        np.testing.assert_array_equal(fit.monitored["loc"][-1], fit.family.loc)
    assert len({float(fit.family.loc[0]) for fit in fits}) == 6


def test_a_resumed_fit_keeps_what_was_seen_before(tmp_path):
    whole = fitted(50, monitor=watch, monitor_steps=range(1, 51, 7))
    fitted(20, monitor=watch, monitor_steps=range(1, 51, 7), checkpoint=tmp_path)
    resumed = fitted(50, monitor=watch, monitor_steps=range(1, 51, 7), checkpoint=tmp_path)
    for name, values in whole.monitored.items():
        np.testing.assert_array_equal(resumed.monitored[name], values)


def test_is_saved_with_the_fit(tmp_path):
    fit = fitted(20, monitor=watch)
    fit.save(tmp_path / "fit.dlrd")
    loaded = dlrd.load(tmp_path / "fit.dlrd")
    np.testing.assert_array_equal(loaded.monitored["loc"], fit.monitored["loc"])
    assert fitted(5).monitored is None


@pytest.mark.parametrize("monitor", [3, lambda q: q.mean, lambda q: {"step": q.mean}])
def test_refuses_what_gives_no_named_arrays(monitor):
    with pytest.raises(TypeError, match="monitor must"):
        fitted(5, monitor=monitor)


def test_progress_can_be_a_function():
    told = []
    start = dlrd.MeanFieldNormal.standard(3)
    dlrd.fit(log_density, start, key=0, optimizer=OPTIMIZER, steps=30, num_draws=2, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 30


def test_rows_of_settings_reach_the_optimizer():
    fits = dlrd.fit_many(
        log_density,
        dlrd.MeanFieldNormal.standard(3),
        keys=[0],
        learning_rates=[[1e-1, 0.5], [1e-1, 0.1]],
        optimizer=lambda row: optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(row[0], factor=row[1])),
        steps=300,
        progress=False,
    )
    ratios = [fit.history.learning_rate[fit.history.decays[0] - 1] / 0.1 for fit in fits]
    np.testing.assert_allclose(ratios, [0.5, 0.1], rtol=1e-6)
