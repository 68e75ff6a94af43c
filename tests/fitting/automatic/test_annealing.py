"""A rate that falls to zero over a round."""

import jax
import jax.numpy as jnp
import numpy as np

import dlrd
from dlrd.fitting.automatic.annealing import annealing, steps_left
from dlrd.fitting.automatic.plan import Task
from dlrd.fitting.automatic.state import fresh_steps

MIXTURE = dlrd.Mixture([dlrd.MeanFieldNormal([0.0], [0.0]), dlrd.MeanFieldNormal([3.0], [0.0])])


def test_half_a_cosine_from_the_rate_to_zero_and_not_below() -> None:
    rule = annealing(jnp.asarray([0.2, 8.0]))
    state = rule.init(jnp.zeros(2))
    rates = []
    for _ in range(10):
        step, state = rule.update(jnp.ones(2), state)
        rates.append(-float(step[0]))
    expected = 0.1 * (1 + np.cos(np.pi * np.arange(9) / 8))
    np.testing.assert_allclose(rates, [*expected, 0.0], atol=1e-8)


def test_steps_keep_their_own_precision() -> None:
    rule = annealing(jnp.asarray([0.2, 8.0]))
    step, _ = rule.update(jnp.ones(2, jnp.float16), rule.init(jnp.zeros(2)))
    assert step.dtype == jnp.float16


def test_a_fresh_round_has_all_steps_left(task) -> None:
    made: Task = task(lambda z: -0.5 * jnp.sum(z**2), MIXTURE)
    assert made.is_annealed
    steps = fresh_steps(made.method, MIXTURE, jax.random.key(0), (0.1, 24))
    assert steps_left(steps) == 24
