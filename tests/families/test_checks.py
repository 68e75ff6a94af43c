"""The checks of a family's arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families._checks import check_shape, check_vector, float_array, is_concrete


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.usefixtures("x64")
def test_floats_keep_their_type(dtype: str):
    assert float_array("loc", jnp.ones(2, dtype)).dtype == dtype


@pytest.mark.parametrize("value", [[1, 2], [True, False], np.arange(2, dtype=np.int8)])
def test_all_else_gets_the_default_type(value: list[int], precision: jnp.dtype):
    array = float_array("loc", value)
    assert array.dtype == precision
    np.testing.assert_array_equal(array, np.asarray(value, float))


def test_complex_numbers_are_refused():
    with pytest.raises(TypeError, match=r"^loc must be real, got an array of type complex128$"):
        float_array("loc", [1j])


@pytest.mark.parametrize("shape", [(), (0,), (2, 1)])
def test_what_is_no_vector_is_refused(shape: tuple[int, ...]):
    check_vector("loc", jnp.zeros(1))
    with pytest.raises(ValueError, match="loc must be a vector with at least one entry, got shape"):
        check_vector("loc", jnp.zeros(shape))


def test_other_shapes_are_refused():
    check_shape("factor", jnp.zeros((2, 3)), (2, 3))
    with pytest.raises(ValueError, match=r"factor must have shape \(2, 3\) to go with loc, got \(3, 2\)"):
        check_shape("factor", jnp.zeros((3, 2)), (2, 3))


def test_traced_arrays_are_not_concrete():
    seen = []
    jax.jit(lambda array: seen.append(is_concrete(array)))(jnp.zeros(2))
    assert seen == [False]
    assert is_concrete(jnp.zeros(2))


def test_arrays_of_the_user_are_copied():
    """Whether memory could be shared depends on where an array happens to lie."""
    for size in range(1, 100):
        given = np.ones(size, np.float32)
        family = dlrd.MeanFieldNormal(given, given)
        given[:] = 7
        np.testing.assert_array_equal(family.loc, 1)


def test_lists_may_have_traced_entries():
    slope = jax.grad(lambda a: dlrd.MeanFieldNormal([a, 0.0], [0.0, 0.0]).log_prob(jnp.ones(2)))(0.0)
    np.testing.assert_allclose(slope, 1.0)
