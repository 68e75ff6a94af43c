"""Programs: compiled once, ahead if asked, and called as if nothing had happened."""

import threading
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.fitting import program as programs
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


def test_each_shape_is_traced_once_however_it_came():
    traced = []

    def fn(x):
        traced.append(x.shape)
        return jnp.cos(x)

    program = Program(fn)
    program.prepare(jnp.arange(3.0))
    program.prepare(jnp.arange(2.0))
    program(jnp.arange(4.0))
    assert traced == [(3,), (2,), (4,)]
    for size in (2, 3, 4):
        program(jnp.arange(float(size)))
        program.prepare(jnp.arange(float(size)))
    assert len(traced) == 3


def test_a_quick_program_gives_what_a_thorough_one_gives():
    def fn(x):
        return jnp.linalg.cholesky(x @ x.T + jnp.eye(5)), jnp.sum(jnp.exp(x), axis=0)

    x = jax.random.normal(jax.random.key(0), (5, 5))
    for quick, thorough in zip(Program(fn)(x), Program(fn, is_quick=False)(x), strict=True):
        np.testing.assert_allclose(quick, thorough, rtol=1e-5, atol=1e-6)


@pytest.fixture
def later_jax(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if the options had to be tried."""
    monkeypatch.setattr(programs, "KNOWN_UNTIL", (0, 0))
    programs._options.cache_clear()
    yield
    programs._options.cache_clear()


@pytest.mark.usefixtures("later_jax")
def test_options_are_tried_on_a_later_jax():
    assert programs._options() == programs.QUICKLY


@pytest.mark.usefixtures("later_jax")
def test_options_that_a_later_jax_does_not_know_are_left_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(programs, "QUICKLY", {"xla_cpu_no_such_option": True})
    assert programs._options() is None
    assert Program(lambda x: 2 * x)(jnp.ones(())) == 2


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
