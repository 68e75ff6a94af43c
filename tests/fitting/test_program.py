"""Programs: compiled once, ahead if asked, and called as if nothing had happened."""

import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.fitting.program import Program, in_background


def test_a_program_is_its_function():
    program = Program(lambda scale, tree: jax.tree.map(lambda leaf: scale * leaf, tree))
    found = program(np.float32(2), {"a": jnp.arange(3.0), "b": None})
    np.testing.assert_array_equal(found["a"], [0, 2, 4])
    assert found["b"] is None


def test_what_was_prepared_is_traced_once_and_here():
    traced_in = []

    def fn(x):
        traced_in.append(threading.current_thread())
        return jnp.sin(x)

    program = Program(fn)
    program.prepare(jnp.arange(3.0))
    program.prepare(jnp.arange(3.0))
    np.testing.assert_allclose(program(jnp.arange(3.0)), np.sin(np.arange(3.0)), rtol=1e-6)
    np.testing.assert_allclose(program(jnp.ones(3)), np.sin(np.ones(3)), rtol=1e-6)
    assert traced_in == [threading.current_thread()]


def test_other_arguments_than_prepared_are_compiled_when_called():
    program = Program(lambda x: 2 * x)
    program.prepare(jnp.arange(3.0))
    np.testing.assert_array_equal(program(jnp.arange(2.0)), [0, 2])


def test_an_error_of_the_function_is_raised_where_it_is_prepared():
    with pytest.raises(ZeroDivisionError):
        Program(lambda x: x / (1 // 0)).prepare(jnp.arange(3.0))


def test_in_background_does_not_wait():
    begun = time.perf_counter()
    pending = in_background(time.sleep, 0.2)
    assert time.perf_counter() - begun < 0.2
    pending.result()
    assert time.perf_counter() - begun >= 0.2


def test_what_was_not_called_for_longest_is_let_go():
    traced = []

    def fn(tree):
        traced.append(*tree)
        return jax.tree.map(lambda leaf: 2 * leaf, tree)

    program = Program(fn, max_size=2)
    for name in ("one", "two", "one", "three", "one", "two"):
        assert program({name: jnp.ones(())}) == {name: 2}
    assert traced == ["one", "two", "three", "two"]
