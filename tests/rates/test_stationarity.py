from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dlrd.rates._batch_means import Samples
from dlrd.rates._stationarity import Sampling, StationarityState, decay_when_stationary

SETTINGS = {"interval": 1, "fraction": 2, "min_samples": 4, "max_samples": 10}


def rule(
    is_stationary_fn: Callable[[Samples, jax.Array], Any], **settings: int
) -> optax.GradientTransformation:
    """With the rate 1 and the factor 1/2, it samples rate · ⟨parameters, direction⟩."""
    return decay_when_stationary(
        1.0,
        0.5,
        measure_fn=lambda params, direction, rate: [rate * jnp.sum(params * direction)],
        num_channels=1,
        is_stationary_fn=lambda samples, num: jnp.asarray(is_stationary_fn(samples, num)),
        sampling=Sampling(**(SETTINGS | settings)),
    )


def states_of(transformation: optax.GradientTransformation, num_steps: int) -> StationarityState:
    """After each step, with ⟨parameters, direction⟩ = 1, 2, 3, …"""

    def step(state: StationarityState, number: jax.Array):
        _, state = transformation.update(jnp.ones(()), state, number)
        return state, state

    numbers = jnp.arange(1.0, num_steps + 1)
    return jax.lax.scan(step, transformation.init(jnp.ones(())), numbers)[1]


def decays(states: StationarityState) -> list[int]:
    return (np.flatnonzero(np.diff(np.asarray(states.num_decays), prepend=0)) + 1).tolist()


@pytest.mark.parametrize(("interval", "expected"), [(1, [9, 18, 27]), (4, [12, 24]), (10, [10, 20, 30])])
def test_tests_come_at_intervals_once_there_are_enough_samples(interval: int, expected: list[int]):
    """The newest half is more than four samples after nine steps; a decay forgets them all."""
    states = states_of(rule(lambda samples, num: True, interval=interval), 30)

    assert decays(states) == expected
    np.testing.assert_array_equal(states.learning_rate, 0.5**states.num_decays)
    np.testing.assert_array_equal(states.num_steps, np.arange(1, 31))
    assert [int(states.samples.num[step - 1]) for step in expected] == [0] * len(expected)


@pytest.mark.parametrize(("fraction", "first"), [(1, 7), (2, 13), (3, 19)])
def test_the_newest_fraction_is_looked_at(fraction: int, first: int):
    """Rounded up: seven samples are the newest third of 19."""
    states = states_of(rule(lambda samples, num: num == 7, fraction=fraction), 20)

    assert decays(states)[0] == first


def test_no_more_samples_are_looked_at_than_are_kept():
    assert decays(states_of(rule(lambda samples, num: num > 9, max_samples=10), 30)) != []
    assert decays(states_of(rule(lambda samples, num: num > 9, max_samples=9), 30)) == []


def test_samples_are_measured_with_the_rate_before_the_step():
    states = states_of(rule(lambda samples, num: True), 12)

    assert decays(states) == [9]
    # Sums of the first samples since the decay: at the rate 1/2 from the tenth step on.
    sums = np.asarray(states.samples.sums[-1, :, 0])
    np.testing.assert_array_equal(sums[:4], [0, 10 / 2, (10 + 11) / 2, (10 + 11 + 12) / 2])


def test_the_step_of_the_deciding_iteration_uses_the_new_rate():
    transformation = rule(lambda samples, num: True, interval=9)
    state = transformation.init(jnp.ones(()))
    updates = []
    for _ in range(10):
        update, state = transformation.update(jnp.asarray(8.0), state, jnp.ones(()))
        updates.append(float(update))

    assert updates == [-8.0] * 8 + [-4.0] * 2


def test_a_ring_too_small_for_a_test_is_refused():
    with pytest.raises(ValueError, match="max_samples must be above 4, got 4"):
        rule(lambda samples, num: True, max_samples=4)


def test_missing_parameters_are_told():
    transformation = rule(lambda samples, num: True)
    with pytest.raises(ValueError, match="not passing `params` when calling `update`"):
        transformation.update(jnp.ones(()), transformation.init(jnp.ones(())))
