import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dlrd


def rates(rule: optax.GradientTransformation, num_steps: int) -> np.ndarray:
    """The rates of the first steps, as the steps show them."""

    def step(state: optax.OptState, _: None):
        update, state = rule.update(jnp.ones(()), state)
        return state, -update

    return np.asarray(jax.lax.scan(step, rule.init(jnp.ones(())), length=num_steps)[1])


def rounding(precision: jnp.dtype) -> float:
    # A power, a product and the number itself, each good to a few units in the last place.
    return 16 * float(jnp.finfo(precision).eps)


@pytest.mark.parametrize("exponent", [0, 0.5, 0.75, 1, 2])
def test_power_decay_is_its_formula(precision: jnp.dtype, exponent: float):
    expected = 0.3 / np.arange(1, 1001, dtype=np.float64) ** exponent

    actual = rates(dlrd.power_decay(0.3, exponent), 1000)

    assert actual[0] == precision.type(0.3)  # i counts from 1: the first step has the full rate
    np.testing.assert_allclose(actual, expected, rtol=rounding(precision))


@pytest.mark.parametrize(("factor", "interval"), [(0.1, 7), (0.5, 1), (0.9, 100), (0.1, 1000)])
def test_stepwise_decay_is_its_formula(precision: jnp.dtype, factor: float, interval: int):
    num_decays = np.arange(300) // interval
    expected = np.maximum(0.3 * factor ** num_decays.astype(np.float64), 0)
    is_normal = expected > float(jnp.finfo(precision).tiny)  # smaller ones may be flushed to zero

    actual = rates(dlrd.stepwise_decay(0.3, factor, interval), 300)

    assert (actual[:interval] == precision.type(0.3)).all()
    # The power of a factor that is itself rounded: as many units in the last place as there are decays.
    tolerance = rounding(precision) * (1 + num_decays)
    error = np.abs(actual - expected)[is_normal]
    assert (error <= (tolerance * expected)[is_normal]).all()


def test_stepwise_decay_counts_its_decays():
    rule = dlrd.stepwise_decay(1.0, 0.5, 3)
    state = rule.init(jnp.ones(()))
    counts = []
    for _ in range(8):
        _, state = rule.update(jnp.ones(()), state)
        counts.append(int(state.num_decays))

    assert counts == [0, 0, 0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("rule", [dlrd.power_decay(0.1, 0.5), dlrd.stepwise_decay(0.1, 0.5, 3)])
def test_parameters_are_not_needed(rule: optax.GradientTransformation):
    state = rule.init(jnp.ones(2))

    assert (
        rule.update(jnp.ones(2), state)[0].tolist()
        == rule.update(jnp.ones(2), state, jnp.ones(2))[0].tolist()
    )
