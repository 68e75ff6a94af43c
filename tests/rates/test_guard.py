"""The guard: what it takes for a divergence, the way back bit for bit, and what it leaves alone."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dlrd
from dlrd.rates.guard import BLOCK_SIZE, MIN_EVIDENCE, GuardState, _way_if

START = jnp.asarray([0.5, 3.0])
NUM_STEPS = 2 * MIN_EVIDENCE + 1
YOUNG = 1 + 7 + 14 + 28 + 56
"""Steps of the blocks that are shorter than the others."""


def told(losses: np.ndarray, max_resets: int = 20) -> tuple[GuardState, np.ndarray]:
    """A run whose losses are told, whatever its parameters: states and parameters after each step."""
    padded = np.pad(losses, (0, NUM_STEPS - len(losses)), mode="edge")
    states, path = _told(jnp.asarray(padded, jnp.float32), max_resets)
    return jax.tree.map(lambda leaf: leaf[: len(losses)], states), np.asarray(path)[: len(losses)]


@partial(jax.jit, static_argnames="max_resets")
def _told(losses: jax.Array, max_resets: int) -> tuple[GuardState, jax.Array]:
    guarded = dlrd.guard(optax.sgd(0.25), min_rise=10.0, max_resets=max_resets)

    def step(carry: Any, loss: jax.Array) -> Any:
        x, state = carry
        updates, state = guarded.update(jnp.ones(2), state, x, value=loss)
        x = optax.apply_updates(x, updates)
        return (x, state), (state, x)

    return jax.lax.scan(step, (START, guarded.init(START)), losses)[1]


def noisy(mean: float, num: int, seed: int = 0) -> np.ndarray:
    return mean + np.random.default_rng(seed).normal(size=num)


def resets(states: GuardState) -> list[int]:
    """After how many steps it went back."""
    return (np.flatnonzero(np.diff(np.asarray(states.num_resets), prepend=0)) + 1).tolist()


GOOD = noisy(0.0, YOUNG + BLOCK_SIZE)


def test_until_it_acts_the_steps_are_those_of_the_optimiser_bit_for_bit():
    """Operation by operation: how a whole program is compiled changes last digits."""
    chain = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(0.1))
    guarded = dlrd.guard(chain, min_rise=10.0)
    x = jnp.asarray([0.5, 3.0])
    plain_state, state = chain.init(x), guarded.init(x)
    for loss in [0.0, 8.0, -5.0, 9.0]:
        expected, plain_state = chain.update(x - 1, plain_state, x)
        updates, state = guarded.update(x - 1, state, x, value=loss)
        np.testing.assert_array_equal(updates, expected)
        x = optax.apply_updates(x, updates)
    assert jax.tree.structure(state.inner_state) == jax.tree.structure(plain_state)


def test_a_rise_that_lasts_a_whole_block_is_undone():
    losses = np.concatenate([GOOD, noisy(30.0, 2 * BLOCK_SIZE)])
    states, path = told(losses)
    when, *_ = resets(states)
    assert when == len(GOOD) + BLOCK_SIZE
    # The state before the last step of a block is what its last loss was measured at.
    ends = [YOUNG - 1, len(GOOD) - 1]
    assert any(np.array_equal(path[when - 1], path[end - 1]) for end in ends)
    assert float(states.rate_scale[when - 1]) == np.float32(0.1)
    np.testing.assert_allclose(path[when] - path[when - 1], -0.025, atol=np.spacing(np.float32(50)))


@pytest.mark.parametrize("every", [2, 20, BLOCK_SIZE - 1])
def test_a_run_that_comes_back_now_and_then_is_left_alone(every: int):
    """However high the others are: heavy tails and slow oscillations are no divergence."""
    high = np.full(10 * BLOCK_SIZE, 1e30)
    high[::every] = 5.0
    assert resets(told(np.concatenate([GOOD, high]))[0]) == []


def test_a_first_value_that_was_low_by_luck_is_not_believed_soon():
    worse = noisy(15.0, 2 * MIN_EVIDENCE)
    states, _ = told(np.concatenate([[0.0], worse]))
    when, *_ = resets(states)
    assert MIN_EVIDENCE <= when <= MIN_EVIDENCE + BLOCK_SIZE
    assert resets(told(np.concatenate([[0.0], worse[: MIN_EVIDENCE - 2 * BLOCK_SIZE]]))[0]) == []


def test_noise_of_the_best_block_counts():
    """Five standard errors of it are more than `min_rise` here."""
    rough = 400 * noisy(0.0, len(GOOD))
    assert resets(told(np.concatenate([rough, np.full(300, 20.0)]))[0]) == []


def test_values_that_rounding_made_far_too_low_are_not_taken_for_the_best():
    spoiled = np.concatenate([GOOD, noisy(0.0, BLOCK_SIZE)])
    spoiled[len(GOOD) + 5] = -1e12
    states, _ = told(np.concatenate([spoiled, noisy(0.0, 3 * BLOCK_SIZE)]))
    assert resets(states) == []
    assert float(states.best_loss[-1]) > -5


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_loss_that_is_not_finite_is_undone_at_once(bad: float):
    states, path = told(np.concatenate([GOOD, [bad], noisy(0.0, 10)]))
    assert resets(states) == [len(GOOD) + 1]
    assert np.isfinite(path).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_is_undone_though_no_step_shows_it(bad: float):
    clipped = optax.chain(optax.clip(1.0), optax.zero_nans(), optax.sgd(0.1))
    (_, state), path = descend(
        dlrd.guard(clipped, 10.0), lambda x, index: jnp.where(index == 150, bad, 1.0) * x, 200
    )
    assert int(state.num_resets) == 1
    assert np.isfinite(path).all()


def test_the_largest_size_is_known_up_to_a_factor_of_two():
    """Of gradient and next parameter together: looked at anew only where it has doubled."""
    guarded = dlrd.guard(optax.sgd(0.0), min_rise=10.0)
    x = jnp.zeros(3)
    state = guarded.init(x)
    known = []
    for size in [0.0, 1.0, 1.9, 2.1, 0.5, 1e30]:
        _, state = guarded.update(jnp.full(3, -size), state, x, value=0.0)
        state = state._replace(num_losses=jnp.zeros_like(state.num_losses), block_size=jnp.asarray(64))
        known.append(float(state.largest))
    np.testing.assert_array_equal(known[1:], np.float32([1.0, 1.0, 2.1, 2.1, 1e30]))


def test_after_a_reset_any_rise_counts_until_something_better_is_found():
    slightly_worse = noisy(6.0, 3 * BLOCK_SIZE)
    once = resets(told(np.concatenate([GOOD, [np.nan], slightly_worse]))[0])
    assert len(once) > 1
    assert once[1] <= len(GOOD) + BLOCK_SIZE + 3
    better = noisy(-20.0, 2 * BLOCK_SIZE)
    assert len(resets(told(np.concatenate([GOOD, [np.nan], better, slightly_worse - 20]))[0])) == 1


def test_it_gives_up_and_stays_at_the_best():
    states, path = told(np.concatenate([GOOD, np.full(50, np.nan)]), max_resets=3)
    assert states.has_given_up[-1]
    assert int(states.num_resets[-1]) == 3
    np.testing.assert_array_equal(path[-20:], np.broadcast_to(states.best[-1], (20, 2)))


def test_a_start_that_is_not_finite_is_given_up_at_once():
    states, path = told(np.asarray([np.nan, 1.0]))
    assert states.has_given_up[0]
    np.testing.assert_array_equal(path[-1], [0.5, 3.0])


def descend(optimizer: Any, gradient_fn: Callable[[jax.Array, jax.Array], jax.Array], num_steps: int) -> Any:
    """From 5 in three dimensions, on the loss ‖x‖²/2."""

    def step(carry: Any, index: jax.Array) -> Any:
        x, state = carry
        updates, state = optimizer.update(gradient_fn(x, index), state, x, value=jnp.sum(x**2) / 2)
        return (optax.apply_updates(x, updates), state), x

    x = jnp.full(3, 5.0)
    return jax.jit(lambda: jax.lax.scan(step, (x, optimizer.init(x)), jnp.arange(num_steps)))()


@pytest.mark.parametrize("huge", [1e30, 1e100])
def test_a_frozen_adam_is_thawed(huge: float):
    """A second moment that one gradient has filled, or made overflow, with no nan anywhere."""
    with jax.enable_x64(huge > 1e38):

        def gradient(x: jax.Array, index: jax.Array) -> jax.Array:
            return jnp.where(index == 3, huge, 1.0) * x

        adam = optax.adam(0.1)
        (frozen, _), _ = descend(optax.with_extra_args_support(adam), gradient, 600)
        assert np.all(np.abs(frozen) > 2)
        (x, state), path = descend(dlrd.guard(adam, min_rise=10.0), gradient, 600)
        assert np.isfinite(path).all()
        assert int(state.num_resets) == 1
        assert float(state.rate_scale) == 1.0  # which was not to blame
        assert np.all(np.abs(x) < 0.1)


def test_a_rate_that_has_decayed_to_nothing_is_not_frozen():
    optimizer = dlrd.guard(optax.sgd(optax.exponential_decay(0.1, 10, 0.01)), min_rise=10.0)
    (_, state), path = descend(optimizer, lambda x, index: x, 400)
    assert np.array_equal(path[-1], path[-100])
    assert int(state.num_resets) == 0


def test_a_rate_far_too_large_ends_where_a_good_one_does():
    """And the moments and the window of the rule start anew."""
    optimizer = dlrd.guard(optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e4)), min_rise=4.0)
    noise = jnp.asarray(np.random.default_rng(0).normal(size=(4000, 3)), jnp.float32)
    (x, state), path = descend(optimizer, lambda x, index: x**3 + 0.1 * noise[index], 4000)
    assert np.isfinite(path).all()
    assert 1 <= int(state.num_resets) <= 6
    assert not state.has_given_up
    assert np.all(np.abs(x) < 0.5)


NORMAL = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
"""XLA takes the numbers below these for zero."""


@given(st.lists(NORMAL, min_size=2, max_size=2), NORMAL)
def test_two_steps_lead_back_bit_for_bit(start: list[float], goal: float):
    x, best = jnp.asarray(start, jnp.float32), jnp.full(2, goal, jnp.float32)
    for _ in range(2):
        x = x + _way_if(jnp.asarray(True), x, x, best)
    np.testing.assert_array_equal(x, best)


def test_many_runs_in_one_program_are_the_runs_they_stand_for():
    tails = [noisy(0, 200), noisy(30, 200), np.r_[noisy(2, 30), np.nan, noisy(2, 169)]]
    rows = np.stack([np.pad(np.r_[GOOD, tail], (0, NUM_STEPS - len(GOOD) - 200)) for tail in tails])
    many, paths = jax.vmap(partial(_told, max_resets=20))(jnp.asarray(rows, jnp.float32))
    for row, path in zip(rows, paths, strict=True):
        np.testing.assert_array_equal(path, told(row)[1])
    assert many.num_resets[:, len(GOOD) + 100].tolist() == [0, 1, 1]


@pytest.mark.usefixtures("x64")
def test_leaves_of_all_kinds_and_types():
    """Types of the state never change, updates keep theirs, and what is no number passes through."""
    params = {
        "b": jnp.ones(2, "bfloat16"),
        "c": jnp.ones(2, "complex64"),
        "i": jnp.arange(3),
        "n": None,
        "x": jnp.ones((2, 2)),
    }
    guarded = dlrd.guard(optax.identity(), min_rise=1.0)
    state = guarded.init(params)
    updates, after = jax.jit(guarded.update)(params, state, params, value=jnp.float32(1.0))
    assert jax.tree.map(lambda leaf: leaf.dtype, after) == jax.tree.map(lambda leaf: leaf.dtype, state)
    assert jax.tree.map(lambda leaf: leaf.dtype, updates) == jax.tree.map(lambda leaf: leaf.dtype, params)


def test_what_it_needs_is_named():
    guarded = dlrd.guard(optax.sgd(0.1), min_rise=1.0)
    state = guarded.init(jnp.ones(2))
    with pytest.raises(ValueError, match="guard needs the loss, got none"):
        guarded.update(jnp.ones(2), state, jnp.ones(2))
    with pytest.raises(ValueError, match="requires the current value of parameters"):
        guarded.update(jnp.ones(2), state, value=1.0)
    with pytest.raises(ValueError, match="min_rise must"):
        dlrd.guard(optax.sgd(0.1), min_rise=-1.0)
    with pytest.raises(ValueError, match="factor must be between 0 and 1, got 2"):
        dlrd.guard(optax.sgd(0.1), min_rise=1.0, factor=2)
    with pytest.raises(ValueError, match="max_resets must be a whole number"):
        dlrd.guard(optax.sgd(0.1), min_rise=1.0, max_resets=0)
