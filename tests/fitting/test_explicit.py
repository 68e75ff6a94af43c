"""Fits with an optimiser: how their parts are put together, and how they end."""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dlrd
from dlrd.fitting import explicit
from dlrd.fitting.explicit import fit_explicitly
from dlrd.fitting.history import Recorder
from dlrd.fitting.request import Request, Sampling, Stepping, Watching
from dlrd.fitting.step import Method, Record, initial_states
from dlrd.models import FunctionModel, Model

FAMILY = dlrd.MeanFieldNormal.standard(2)
MIXTURE = dlrd.Mixture([FAMILY, FAMILY])
KEYS = jax.random.split(jax.random.key(0), 3)
OUTCOMES = [outcome.value for outcome in dlrd.Outcome]


def normal(z: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(z**2)


MODEL = FunctionModel(normal, (2,), names=("slope", "offset"))
VALUES_ONLY = dlrd.models.host(lambda z: -0.5 * (z**2).sum(axis=1), 2, has_gradient=False)


def request(
    sampling: Sampling | None = None, checkpoint: pathlib.Path | None = None, **stepping: Any
) -> Request:
    how = {"optimizer": optax.sgd(0.1), "steps": 5} | stepping
    return Request(None, Stepping(**how), sampling or Sampling(), Watching(checkpoint, False))


def method(model: Model = MODEL, family: Any = FAMILY, gradient: Any = None, **changed: Any) -> Method:
    num_draws = changed.pop("num_draws", 8)
    return explicit._checked_method(model, family, request(Sampling(num_draws, gradient), **changed))


def test_each_rate_is_run_with_each_key() -> None:
    keys, rates, num_rates = explicit._grid(KEYS, Stepping(learning_rates=[0.5, 0.25]))
    np.testing.assert_array_equal(rates, [0.5, 0.5, 0.5, 0.25, 0.25, 0.25])
    assert num_rates == 2
    expected = jax.random.key_data(KEYS)
    np.testing.assert_array_equal(jax.random.key_data(keys), [*expected, *expected])


def test_rows_of_settings_stay_together() -> None:
    _, rates, num_rates = explicit._grid(KEYS[:2], Stepping(learning_rates=[[0.5, 3.0], [0.25, 4.0]]))
    np.testing.assert_array_equal(rates, [[0.5, 3.0], [0.5, 3.0], [0.25, 4.0], [0.25, 4.0]])
    assert num_rates == 2


def test_without_rates_there_are_the_keys() -> None:
    assert explicit._grid(KEYS, Stepping()) == (KEYS, None, 1)


def test_the_method_is_what_was_asked_for() -> None:
    asked = method(gradient=dlrd.natural_gradient, num_draws=4, average="tail", draws="sobol_pairs")
    assert asked.model is MODEL
    assert asked.estimator is dlrd.natural_gradient
    assert (asked.num_draws, asked.is_averaging, asked.draws) == (4, True, "sobol_pairs")


def test_the_model_decides_where_no_estimator_is_given() -> None:
    plain = method()
    assert plain.estimator is dlrd.sticking_the_landing
    assert (plain.is_averaging, plain.draws) == (False, "independent")
    assert method(VALUES_ONLY).estimator is dlrd.score_function


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"gradient": dlrd.score_function, "draws": "sobol"},
            'draws="sobol" needs a reparameterised gradient, not dlrd.score_function',
        ),
        ({"model": VALUES_ONLY, "draws": "sobol"}, 'draws="sobol" needs a reparameterised gradient'),
        ({"family": MIXTURE, "draws": "sobol"}, 'draws="sobol" needs a family that is made from noise'),
        ({"draws": "sobol_pairs", "num_draws": 3}, "num_draws must be even for"),
        ({"draws": "random"}, 'draws must be "independent", "sobol" or "sobol_pairs", got str'),
        (
            {"gradient": dlrd.natural_gradient, "family": MIXTURE},
            "natural_gradient needs a family that knows",
        ),
        (
            {"gradient": dlrd.reparameterized, "model": VALUES_ONLY},
            "reparameterized needs the gradient of the log density",
        ),
        (
            {"gradient": dlrd.score_function, "num_draws": 1},
            "num_draws must be at least 2 for score_function",
        ),
    ],
)
def test_parts_that_do_not_go_together_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        method(**arguments)


def test_wrapped_score_function_is_known_by_its_estimate() -> None:
    with pytest.raises(ValueError, match="needs a reparameterised gradient"):
        method(gradient=lambda *args: dlrd.score_function(*args), draws="sobol")


def test_monitor_steps_are_evenly_spaced_on_a_logarithmic_axis_unless_given() -> None:
    def steps(**changed: Any) -> list[int]:
        asked = Stepping(steps=4, monitor=lambda q: {"mean": q.mean}, **changed)
        watched = explicit._monitor(asked, FAMILY)
        assert watched is not None
        return watched.steps.tolist()

    assert steps() == [1, 2, 3, 4]
    assert steps(monitor_steps=[4, 2]) == [2, 4]
    assert explicit._monitor(Stepping(steps=4), FAMILY) is None


def test_what_was_interrupted_or_had_a_smaller_budget_goes_on() -> None:
    """All else has ended for good."""
    fresh = initial_states(method(), FAMILY, jnp.repeat(KEYS[:1], len(OUTCOMES)), None)
    state = fresh._replace(outcome=jnp.asarray(OUTCOMES), step=jnp.arange(len(OUTCOMES)))
    record = Record(*np.arange(2.0 * len(Record._fields)).reshape(-1, 2))
    recorders = [Recorder(every=1).extended(record), *(Recorder(every=1) for _ in OUTCOMES[1:])]
    saved = explicit._snapshot(state, recorders, None)
    restored, records = explicit._restore(saved, fresh, [], None)
    names = [dlrd.Outcome(int(each)).name for each in restored.outcome]
    assert names == ["RUNNING", "CERTIFIED", "AGREED", "RUNNING", "DIVERGED", "RUNNING"]
    np.testing.assert_array_equal(restored.step, state.step)
    assert [recorder.num_steps for recorder in records] == [2, 0, 0, 0, 0, 0]
    np.testing.assert_array_equal(records[0].history().elbo, record.elbo)


def test_without_a_checkpoint_it_starts_anew() -> None:
    state, recorders = object(), [Recorder(every=1)]
    assert explicit._restore(None, state, recorders, None) == (state, recorders)


def test_results_are_in_the_order_of_the_runs() -> None:
    asked = request(optimizer=optax.sgd, learning_rates=[0.5, 0.25], monitor=lambda q: {"mean": q.mean})
    fits = fit_explicitly(MODEL, FAMILY, KEYS[:2], asked)
    assert len(fits) == 4
    for fit in fits:
        assert (fit.outcome, fit.num_steps, fit.num_draws) == (dlrd.Outcome.BUDGET, 5, 8)
        assert fit.names == ("slope", "offset")
        assert fit.model is MODEL
        assert fit.verdict is None
        assert fit.monitored is not None
        np.testing.assert_array_equal(fit.monitored["mean"][-1], fit.family.mean)
    # The first step is the rate times a gradient that depends on the key alone.
    first = np.array([fit.monitored["mean"][0] for fit in fits if fit.monitored is not None])
    np.testing.assert_allclose(first[:2], 2 * first[2:], rtol=1e-6)


def steep(z: jax.Array) -> jax.Array:
    return -jnp.sum(z**4)


def holed(z: jax.Array) -> jax.Array:
    return jnp.where(jnp.all(z < 2), 5 * jnp.sum(z), jnp.nan)


@pytest.mark.parametrize(
    ("log_density", "start"),
    [(steep, 3.0), (holed, -3.0)],
    ids=["a rate far above 2/curvature", "a density that turns nan"],
)
def test_diverging_run_returns_the_last_good_state(log_density: Any, start: float) -> None:
    family = dlrd.MeanFieldNormal(jnp.full(2, start), jnp.full(2, -3.0))
    asked = request(optimizer=dlrd.dynamic_decay(0.1), steps=1000, guard=False)
    (fit,) = fit_explicitly(FunctionModel(log_density, (2,)), family, KEYS[:1], asked)
    assert fit.outcome is dlrd.Outcome.DIVERGED
    assert 0 < fit.num_steps < 1000
    assert fit.history.step[-1] == fit.num_steps
    assert np.isfinite(fit.family.mean).all()
    assert np.isfinite(fit.history.elbo).all()
    assert np.all(fit.family.mean != start)


def test_a_guarded_run_goes_back_and_does_all_its_steps() -> None:
    family = dlrd.MeanFieldNormal(jnp.full(2, 3.0), jnp.full(2, -3.0))
    asked = request(optimizer=dlrd.dynamic_decay(0.1), steps=1000, average="tail")
    (fit,) = fit_explicitly(FunctionModel(steep, (2,)), family, KEYS[:1], asked)
    assert (fit.outcome, fit.num_steps) == (dlrd.Outcome.BUDGET, 1000)
    assert 1 <= len(fit.history.resets) <= 4
    first = fit.history.resets[0]
    np.testing.assert_allclose(fit.history.learning_rate[[0, first]], [0.1, 0.01], rtol=1e-5)
    assert np.isfinite(fit.elbo)
    # The average began anew with the last reset: nothing of what exploded is in it.
    assert np.all(np.abs(fit.family.mean) < 1)


def test_a_guarded_run_that_cannot_be_helped_ends_with_its_best_state() -> None:
    family = dlrd.MeanFieldNormal(jnp.full(2, -3.0), jnp.full(2, -3.0))
    asked = request(optimizer=dlrd.dynamic_decay(0.1), steps=100_000)
    (fit,) = fit_explicitly(FunctionModel(holed, (2,)), family, KEYS[:1], asked)
    assert fit.outcome is dlrd.Outcome.DIVERGED
    assert len(fit.history.resets) == 20
    assert np.isfinite(fit.family.mean).all()
    assert np.all(fit.family.mean > -3)  # it had climbed


def test_the_guard_can_be_turned_off() -> None:
    assert method().min_rise == 3
    assert method(guard=False).min_rise is None


def test_a_guarded_run_goes_on_bit_for_bit(tmp_path: pathlib.Path) -> None:
    """Stopped between two resets, and in the middle of a block."""
    family = dlrd.MeanFieldNormal(jnp.full(2, 3.0), jnp.full(2, -3.0))
    model = FunctionModel(steep, (2,))
    how = {"optimizer": dlrd.dynamic_decay(1.0)}
    (whole,) = fit_explicitly(model, family, KEYS[:1], request(**how, steps=300))
    assert len(whole.history.resets) > 1
    middle = int(whole.history.resets[0]) + 1
    fit_explicitly(model, family, KEYS[:1], request(**how, steps=middle, checkpoint=tmp_path))
    (resumed,) = fit_explicitly(model, family, KEYS[:1], request(**how, steps=300, checkpoint=tmp_path))
    np.testing.assert_array_equal(resumed.history.resets, whole.history.resets)
    np.testing.assert_array_equal(resumed.history.elbo, whole.history.elbo)
    np.testing.assert_array_equal(resumed.family.mean, whole.family.mean)


def test_guarded_runs_of_several_rates_are_those_alone() -> None:
    family = dlrd.MeanFieldNormal(jnp.full(2, 3.0), jnp.full(2, -3.0))
    model = FunctionModel(steep, (2,))
    rates = [1.0, 1e-3]
    asked = request(optimizer=dlrd.dynamic_decay, learning_rates=rates, steps=300)
    fits = fit_explicitly(model, family, KEYS[:1], asked)
    assert [len(fit.history.resets) > 0 for fit in fits] == [True, False]
    for fit, rate in zip(fits, rates, strict=True):
        alone = fit_explicitly(
            model, family, KEYS[:1], request(optimizer=dlrd.dynamic_decay(rate), steps=300)
        )[0]
        np.testing.assert_array_equal(fit.history.resets[:1], alone.history.resets[:1])
