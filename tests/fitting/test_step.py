"""One step, with estimates made by hand: what it changes, what it records, and what it leaves alone."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dlrd
from dlrd.families import split
from dlrd.fitting.average import value as tail_average
from dlrd.fitting.step import Method, Record, State, advance, initial_states
from dlrd.gradients import Estimate
from dlrd.gradients.sobol import Driven
from dlrd.models import FunctionModel

MODEL = FunctionModel(jnp.sum, (2,))
FAMILY = dlrd.MeanFieldNormal([1.0, 2.0], [0.0, 0.5])
GRADIENT = dlrd.MeanFieldNormal([0.5, -1.0], [0.25, 0.0])
TERMS = (1.0, 3.0)
KEY = jax.random.key(0)
SGD = optax.sgd(0.5)


def estimator(terms: tuple[float, ...] = TERMS, gradient: Any = GRADIENT, **flags: bool) -> Any:
    return lambda model, family, key, num_draws: Estimate(jnp.asarray(terms), gradient, **flags)


def stepped(
    estimator: Any,
    optimizer: Any = SGD,
    rate: float | None = None,
    outcome: dlrd.Outcome = dlrd.Outcome.RUNNING,
    **method: Any,
) -> tuple[State, Record]:
    """The state after one step from FAMILY, and the step's record."""
    how = Method(MODEL, optimizer, estimator, **({"num_draws": 2} | method))
    rates = None if rate is None else jnp.asarray([rate])
    state = jax.tree.map(lambda leaf: leaf[0], initial_states(how, FAMILY, KEY[None], rates))
    return advance(how, split(FAMILY)[1], state._replace(outcome=jnp.asarray(outcome.value)), KEY)


def assert_at(state: State, loc: Any, log_scale: Any) -> None:
    np.testing.assert_allclose(state.trainable.loc, loc, rtol=1e-6)
    np.testing.assert_allclose(state.trainable.log_scale, log_scale, rtol=1e-6)


def test_a_step_climbs_along_the_gradient() -> None:
    state, record = stepped(estimator())
    assert_at(state, [1.25, 1.5], [0.125, 0.5])
    assert (int(state.step), int(state.outcome)) == (1, dlrd.Outcome.RUNNING.value)
    assert float(record.elbo) == 2
    assert float(record.elbo_variance) == 1  # of the mean of 1 and 3


def test_a_single_draw_has_no_variance() -> None:
    _, record = stepped(estimator((3.0,)), num_draws=1)
    assert float(record.elbo) == 3
    assert np.isnan(record.elbo_variance)


def test_natural_steps_are_taken_by_the_family() -> None:
    """The second mean has moved by its limit of half a standard deviation, not by 1."""
    state, _ = stepped(estimator(gradient=jax.tree.map(lambda leaf: 2 * leaf, GRADIENT), is_natural=True))
    assert_at(state, [1.5, 2 - 0.5 * np.exp(0.5)], [0.25, 0.5])


@pytest.mark.parametrize(
    "bad",
    [
        estimator((1.0, np.nan)),
        estimator((-np.inf, 1.0)),
        estimator(gradient=dlrd.MeanFieldNormal([np.nan, 0.0], [0.0, 0.0])),
        estimator(gradient=dlrd.MeanFieldNormal([0.0, 0.0], [0.0, np.inf])),
    ],
    ids=["nan terms", "infinite terms", "nan gradient", "infinite gradient"],
)
def test_a_failed_step_keeps_the_last_good_parameters(bad: Any) -> None:
    state, _ = stepped(bad, is_averaging=True)
    assert_at(state, FAMILY.loc, FAMILY.log_scale)
    assert (int(state.step), int(state.outcome)) == (0, dlrd.Outcome.DIVERGED.value)
    assert state.average is not None
    assert int(state.average.num_closed + state.average.num_open) == 0


@pytest.mark.parametrize("outcome", [dlrd.Outcome.BUDGET, dlrd.Outcome.DIVERGED])
def test_a_run_that_has_ended_stays_as_it_is(outcome: dlrd.Outcome) -> None:
    state, _ = stepped(estimator(), outcome=outcome)
    assert_at(state, FAMILY.loc, FAMILY.log_scale)
    assert (int(state.step), int(state.outcome)) == (0, outcome.value)


def test_an_optimizer_without_readings() -> None:
    _, record = stepped(estimator())
    assert np.isnan([record.learning_rate, record.snr]).all()
    assert float(record.num_decays) == 0


def test_the_readings_are_those_of_the_last_link() -> None:
    chain = optax.chain(dlrd.dynamic_decay(0.5), dlrd.dynamic_decay(0.25))
    _, record = stepped(estimator(), optimizer=chain)
    assert float(record.learning_rate) == 0.25


def test_an_optimizer_that_wants_the_loss() -> None:
    """Transformations with extra arguments get the loss, −ELBO, as `value`."""

    def update(updates: Any, state: Any, params: Any = None, *, value: jax.Array) -> tuple[Any, Any]:
        return updates, {"snr": value}  # a name that the record shows

    wants = optax.GradientTransformationExtraArgs(lambda params: {"snr": jnp.zeros(())}, update)
    _, record = stepped(estimator(), optimizer=optax.chain(SGD, wants))
    assert float(record.snr) == -2


def test_an_optimizer_is_made_with_the_rate_of_the_run() -> None:
    state, _ = stepped(estimator(), optimizer=optax.sgd, rate=0.25)
    assert_at(state, [1.125, 1.75], [0.0625, 0.5])
    assert state.learning_rate is not None
    assert float(state.learning_rate) == 0.25


def test_the_average_has_the_new_parameters() -> None:
    state, _ = stepped(estimator(), is_averaging=True)
    assert state.average is not None
    mean = tail_average(state.average, FAMILY)
    np.testing.assert_array_equal(mean.loc, state.trainable.loc)
    assert stepped(estimator())[0].average is None


def noise_of(draws: Any, num_draws: int = 2) -> np.ndarray:
    """What noise a step is driven by."""
    seen = []

    def spying(model: Any, family: Driven, key: Any, num_draws: int) -> Estimate:
        seen.append(np.asarray(family.noise))
        assert family.sample(key, (num_draws,)).shape == (num_draws, 2)
        return Estimate(jnp.asarray(TERMS), Driven(GRADIENT, family.noise))

    state, _ = stepped(spying, draws=draws, num_draws=num_draws)
    assert_at(state, [1.25, 1.5], [0.125, 0.5])
    return seen[0]


def test_sobol_pairs_are_mirror_images() -> None:
    noise = noise_of("sobol_pairs", 4)
    assert noise.shape == (4, 2)
    np.testing.assert_array_equal(noise[2:], -noise[:2])


def test_sobol_points_are_all_different() -> None:
    noise = noise_of("sobol", 4)
    assert len(np.unique(np.abs(noise[:, 0]))) == 4
    # The first points of the same sequence.
    np.testing.assert_array_equal(noise[:2], noise_of("sobol_pairs", 4)[:2])
