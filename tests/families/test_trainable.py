"""Which arrays of a family are trained."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dlrd import MeanFieldNormal
from dlrd.families import Untrained, frozen, split


class Fixed(Untrained):
    """Floats that are no parameters."""

    numbers: np.ndarray


class Assembled(eqx.Module):
    """A family with a part of each kind."""

    normal: MeanFieldNormal
    fixed: Fixed
    table: jax.Array  # whole numbers
    name: str

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.normal.sample(key, sample_shape)

    def log_prob(self, x: jax.Array) -> jax.Array:
        return self.normal.log_prob(x)


def assembled() -> Assembled:
    normal = MeanFieldNormal([1.0, 2.0], [3.0, 4.0])
    return Assembled(normal, Fixed(np.ones(2)), jnp.arange(3), "some")


def test_floats_are_trained_and_nothing_else():
    trainable, rest = split(assembled())
    assert [leaf.tolist() for leaf in jax.tree.leaves(trainable)] == [[1.0, 2.0], [3.0, 4.0]]
    assert jax.tree.leaves(rest.normal) == []
    np.testing.assert_array_equal(rest.fixed.numbers, 1)
    np.testing.assert_array_equal(rest.table, [0, 1, 2])
    assert rest.name == "some"


def test_both_parts_make_the_family_again():
    assert eqx.tree_equal(eqx.combine(*split(assembled())), assembled())


def test_a_frozen_family_is_a_constant():
    def total(family: Any) -> jax.Array:
        return jnp.sum(frozen(family).normal.loc * family.normal.log_scale)

    gradient = eqx.filter_grad(total)(assembled()).normal
    np.testing.assert_array_equal(gradient.loc, 0)
    np.testing.assert_array_equal(gradient.log_scale, [1, 2])


def test_a_frozen_family_has_the_same_values():
    assert eqx.tree_equal(frozen(assembled()), assembled())
