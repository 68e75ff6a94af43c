"""PyTensor's graphs as jax functions; what models are made of is tested with them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor import shared

from dlrd.models._pymc import jaxified

MATRIX = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("product_of", "size"),
    [(lambda v: MATRIX @ v, 3), (lambda v: v @ MATRIX, 2), (lambda v: v @ v, 3)],
    ids=["matrix and vector", "vector and matrix", "vectors"],
)
def test_products_with_vectors_have_no_axis_of_length_one(product_of: Any, size: int) -> None:
    """For many draws, that axis would come between those of the data and of the draws."""
    vector = pt.vector("v", shape=(size,))
    product = product_of(vector)
    fn = jaxified([vector], [product])
    values = np.arange(1.0, size + 1)
    np.testing.assert_allclose(fn(jnp.asarray(values))[0], product_of(values))
    shapes = [each.aval.shape for each in jax.make_jaxpr(lambda v: fn(v)[0])(values).eqns[0].invars]
    assert (size,) in shapes


def test_shared_variables_are_constants() -> None:
    factor = shared(np.array([2.0, 3.0]))
    scalar = pt.dscalar("x")
    fn = jaxified([scalar], [scalar * factor])
    factor.set_value(np.array([0.0, 0.0]))
    np.testing.assert_allclose(fn(jnp.asarray(2.0))[0], [4.0, 6.0])


@pytest.mark.usefixtures("x64")
def test_whole_numbers_do_not_become_single_precision() -> None:
    """PyTensor writes one half in 32 bits, and multiplies whole numbers by it in 64; jax would in 32."""
    whole = pt.lvector("n")
    (found,) = jaxified([whole], [pt.log(whole * np.float32(0.5))])(jnp.array([3, 2**24 + 1]))
    np.testing.assert_allclose(found, np.log([1.5, (2**24 + 1) / 2]), rtol=1e-15)
