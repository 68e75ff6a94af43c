from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

import dlrd


@pytest.mark.parametrize("exponent", [0, 0.5, 0.75, 1, 2])
def test_it_is_its_formula(precision: jnp.dtype, exponent: float, rates_of: Callable[..., np.ndarray]):
    expected = 0.3 / np.arange(1, 1001, dtype=np.float64) ** exponent

    actual = rates_of(dlrd.power_decay(0.3, exponent), 1000)

    assert actual[0] == precision.type(0.3)  # i counts from 1: the first step has the full rate
    # A power, a product and the number itself, each good to a few units in the last place.
    np.testing.assert_allclose(actual, expected, rtol=16 * float(jnp.finfo(precision).eps))


def test_parameters_are_not_needed():
    rule = dlrd.power_decay(0.1, 0.5)
    state = rule.init(jnp.ones(2))

    without, _ = rule.update(jnp.ones(2), state)
    with_parameters, _ = rule.update(jnp.ones(2), state, jnp.ones(2))

    np.testing.assert_array_equal(without, with_parameters)
