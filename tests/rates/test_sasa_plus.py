from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

import dlrd


def is_stationary(mean: float, width: float, mean_half: float) -> bool:
    del mean_half
    return abs(mean) <= width


@pytest.mark.slow
@pytest.mark.parametrize("learning_rate", [0.1, 1e-4])
def test_decays_where_plain_lists_say(
    precision: jnp.dtype,
    learning_rate: float,
    descend: Callable[..., Any],
    decays_by_hand: Callable[..., list[int]],
):
    del precision
    rule = dlrd.sasa_plus(learning_rate, max_samples=20_000)

    near, far = descend(rule, 1.0, 1e4, num_steps=20_000)

    for run in near, far:
        assert run.decays == decays_by_hand(
            run,
            is_stationary,
            confidence=0.95,
            learning_rate=learning_rate,
            interval=100,
            fraction=8,
            min_samples=1000,
        )
    if learning_rate == 0.1:
        assert near.decays[0] == far.decays[0] == 8100  # 1013 samples, at the first chance
    else:
        assert far.decays == []  # still on the way


@pytest.mark.usefixtures("x64")
def test_a_small_ring(descend: Callable[..., Any], decays_by_hand: Callable[..., list[int]]):
    rule = dlrd.sasa_plus(1e-3, max_samples=1100)

    (run,) = descend(rule, 100.0, num_steps=30_000)

    expected = decays_by_hand(
        run,
        is_stationary,
        confidence=0.95,
        learning_rate=1e-3,
        interval=100,
        fraction=8,
        min_samples=1000,
        max_samples=1100,
    )
    assert run.decays == expected != []
    assert run.decays[0] > 8100  # by then the ring is full
