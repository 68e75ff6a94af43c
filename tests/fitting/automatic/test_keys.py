"""Keys made on the host: reproducible, all different, of the generator that the user chose."""

import itertools

import jax
import numpy as np
import pytest
from scipy import stats

from dlrd.fitting.automatic.keys import derived, several


def data(key: jax.Array) -> tuple[int, ...]:
    return tuple(np.asarray(jax.random.key_data(key)).ravel().tolist())


def test_every_path_has_a_key_of_its_own() -> None:
    keys = [jax.random.key(seed) for seed in range(3)]
    paths = [path for num in range(3) for path in itertools.product(range(3), repeat=num)]
    found = {data(derived(key, *path)) for key in keys for path in paths}
    assert len(found) == len(keys) * len(paths)
    assert data(derived(keys[0], 1, 2)) == data(derived(jax.random.key(0), 1, 2))


def test_several_differ() -> None:
    keys = several(jax.random.key(0), 8)
    assert keys.shape == (8,)
    assert len({data(key) for key in keys}) == 8


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_the_generator_stays_the_same(impl: str) -> None:
    key = jax.random.key(0, impl=impl)
    assert jax.random.key_impl(derived(key, 1)) == jax.random.key_impl(key)
    assert jax.random.key_impl(several(key, 2)) == jax.random.key_impl(key)


def test_numbers_of_derived_keys_are_independent() -> None:
    draws = [float(jax.random.uniform(derived(jax.random.key(0), number))) for number in range(300)]
    assert stats.kstest(draws, "uniform").pvalue > 1e-4
