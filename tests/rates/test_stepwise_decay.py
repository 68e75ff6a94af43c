from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

import dlrd


@pytest.mark.parametrize(("factor", "interval"), [(0.1, 7), (0.5, 1), (0.9, 100), (0.1, 1000)])
def test_it_is_its_formula(
    precision: jnp.dtype, factor: float, interval: int, rates_of: Callable[..., np.ndarray]
):
    num_decays = np.arange(300) // interval
    expected = np.maximum(0.3 * factor ** num_decays.astype(np.float64), 0)
    is_normal = expected > float(jnp.finfo(precision).tiny)  # smaller ones may be flushed to zero

    actual = rates_of(dlrd.stepwise_decay(0.3, factor, interval), 300)

    assert (actual[:interval] == precision.type(0.3)).all()
    # A power, a product and the number itself, each good to a few units in the last place; and the power of a
    # factor that is itself rounded: as many units as there are decays.
    tolerance = 16 * float(jnp.finfo(precision).eps) * (1 + num_decays)
    error = np.abs(actual - expected)[is_normal]
    assert (error <= (tolerance * expected)[is_normal]).all()


def test_decays_are_counted():
    rule = dlrd.stepwise_decay(1.0, 0.5, 3)
    state = rule.init(jnp.ones(()))
    counts = []
    for _ in range(8):
        _, state = rule.update(jnp.ones(()), state)
        counts.append(int(state.num_decays))

    assert counts == [0, 0, 0, 1, 1, 1, 2, 2]


def test_parameters_are_not_needed():
    rule = dlrd.stepwise_decay(0.1, 0.5, 3)
    state = rule.init(jnp.ones(2))

    without, _ = rule.update(jnp.ones(2), state)
    with_parameters, _ = rule.update(jnp.ones(2), state, jnp.ones(2))

    np.testing.assert_array_equal(without, with_parameters)
