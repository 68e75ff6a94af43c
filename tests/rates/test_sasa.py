from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax
import pytest

import dlrd


def verdict(tolerance: float = 0.02) -> Callable[[float, float, float], bool]:
    return lambda mean, width, mean_half: abs(mean) + width < tolerance * mean_half


@pytest.mark.parametrize("significance", [0.2, 0.02])
def test_decays_where_plain_lists_say(
    precision: jnp.dtype,
    significance: float,
    descend: Callable[..., Any],
    decays_by_hand: Callable[..., list[int]],
):
    """Near the optimum at once, or with a long way to it whose samples dwarf those that count."""
    del precision
    rule = dlrd.sasa(0.5, interval=100, significance=significance, max_samples=10_000)

    for run in descend(rule, 1.0, 1e4, num_steps=10_000):
        expected = decays_by_hand(
            run,
            verdict(),
            confidence=1 - significance,
            learning_rate=0.5,
            interval=100,
            fraction=2,
            min_samples=3,
        )
        assert run.decays == expected != []


def test_the_interval_counts_from_the_first_step(descend: Callable[..., Any]):
    rule = dlrd.sasa(0.5, interval=70, tolerance=1e6, max_samples=1000)

    (run,) = descend(rule, 1.0, num_steps=500)

    assert run.decays == [70, 140, 210, 280, 350, 420, 490]


@pytest.mark.parametrize("max_samples", [37, 100])
@pytest.mark.usefixtures("x64")
def test_a_small_ring(
    max_samples: int, descend: Callable[..., Any], decays_by_hand: Callable[..., list[int]]
):
    """The ring is overwritten many times before and after the decays."""
    rule = dlrd.sasa(0.5, interval=90, tolerance=0.3, max_samples=max_samples)

    (run,) = descend(rule, 100.0, num_steps=3000)

    expected = decays_by_hand(
        run,
        verdict(tolerance=0.3),
        confidence=0.8,
        learning_rate=0.5,
        interval=90,
        fraction=2,
        min_samples=3,
        max_samples=max_samples,
    )
    assert run.decays == expected != []
    assert len(run.decays) < 3000 // 90  # not at each test, which would show nothing


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_stationary_iterates_are_found_with_momentum(momentum: float, descend: Callable[..., Any]):
    """At the optimum from the start, and with a tolerance far wider than the interval.

    The direction holds the momentum: ⟨x, d⟩ and α ‖d‖² / 2 agree in the mean for any direction.
    """
    rule = dlrd.sasa(0.1, interval=1000, tolerance=0.2, max_samples=10_000)

    (run,) = descend(rule, 0.0, num_steps=10_000, dimension=200, direction=optax.ema(momentum, debias=False))

    assert run.decays != []
