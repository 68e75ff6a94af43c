"""Supports: the maps, their inverses and Jacobians, and what they leave of a density."""

import functools
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis.extra.numpy import arrays
from jax.scipy.stats import beta, gamma

import dlrd
from dlrd.models import Support

SUPPORTS = {
    "real": dlrd.real((2, 2)),
    "positive": dlrd.positive((3,)),
    "greater_than": dlrd.greater_than(-2.5, (3,)),
    "less_than": dlrd.less_than(4),
    "interval": dlrd.interval(-1, 3, (2,)),
    "simplex": dlrd.simplex(4),
    "simplexes": dlrd.simplex(3, (2,)),
    "ordered": dlrd.ordered(4),
    "ordered rows": dlrd.ordered(3, (2,)),
    "correlation_cholesky": dlrd.correlation_cholesky(4),
    "correlation_choleskys": dlrd.correlation_cholesky(3, (2,)),
}
WORDS = {"real": None, "positive": "log"}
IS_INSIDE: dict[str, Callable[[Any], Any]] = {
    "real": np.isfinite,
    "positive": lambda x: x > 0,
    "greater_than": lambda x: x > -2.5,
    "less_than": lambda x: x < 4,
    "interval": lambda x: (x > -1) & (x < 3),
    "simplex": lambda x: (x > 0).all() & np.isclose(x.sum(axis=-1), 1),
    "ordered": lambda x: np.diff(x, axis=-1) > 0,
    "correlation_cholesky": lambda x: (
        (np.diagonal(x, axis1=-2, axis2=-1) > 0).all()
        & np.allclose(np.triu(x, 1), 0)
        & np.allclose(np.sum(x**2, axis=-1), 1)
    ),
}
each_support = pytest.mark.parametrize("name", SUPPORTS)


def base(name: str) -> str:
    return {
        "simplexes": "simplex",
        "ordered rows": "ordered",
        "correlation_choleskys": "correlation_cholesky",
    }.get(name, name)


def chosen(name: str, value: jax.Array) -> jax.Array:
    """The entries that can be chosen, as many as there are free numbers."""
    if base(name) == "simplex":
        value = value[..., :-1]
    if base(name) == "correlation_cholesky":
        value = value[(..., *np.tril_indices(value.shape[-1], -1))]
    return jnp.ravel(value)


def free_points(name: str, limit: float) -> st.SearchStrategy[np.ndarray]:
    return arrays(float, SUPPORTS[name].free_shape, elements=st.floats(-limit, limit))


@functools.cache
def evaluate(name: str) -> Callable[[Any], tuple[jax.Array, ...]]:
    """Free numbers to their value, themselves again, the log determinant, and that by differentiation."""
    support = SUPPORTS[name]

    def free_entries(flat: jax.Array) -> jax.Array:
        return chosen(name, support.forward(flat.reshape(support.free_shape)))

    @jax.jit
    def all_of(free: jax.Array) -> tuple[jax.Array, ...]:
        value = support.forward(free)
        jacobian = jax.jacobian(free_entries)(jnp.ravel(free))
        return value, support.inverse(value), support.log_det(free), jnp.linalg.slogdet(jacobian)[1]

    return all_of


@each_support
@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=20)
def test_maps_are_one_to_one_and_know_their_jacobians(name: str, data: st.DataObject) -> None:
    free = data.draw(free_points(name, 3.0))
    with jax.enable_x64(True):
        value, again, log_det, expected = evaluate(name)(free)
    assert value.shape == SUPPORTS[name].shape
    assert np.all(IS_INSIDE[base(name)](np.asarray(value)))
    np.testing.assert_allclose(again, free, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(log_det, expected, rtol=1e-9, atol=1e-9)


@functools.cache
def gradient(name: str) -> Callable[[Any], jax.Array]:
    support = SUPPORTS[name]
    return jax.jit(jax.grad(lambda free: jnp.sum(support.forward(free)) + support.log_det(free)))


@each_support
@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=20)
def test_single_precision_stays_finite(name: str, data: st.DataObject) -> None:
    """Far out, too, and no probability and no scale is rounded to zero."""
    free = data.draw(free_points(name, 60.0)).astype("float32")
    value, _, log_det, _ = evaluate(name)(free)
    assert value.dtype == np.float32
    assert np.isfinite(value).all()
    assert np.isfinite(log_det)
    assert np.isfinite(gradient(name)(free)).all()
    if base(name) in ("simplex", "positive"):
        assert np.all(value > 0)


def test_probabilities_are_not_rounded_to_an_end() -> None:
    share = dlrd.interval(0, 1).forward(jnp.asarray([-200.0, 200.0], "float32"))
    assert np.isfinite(jnp.log(share)).all()
    assert np.isfinite(jnp.log1p(-share)).all()


@each_support
def test_words(name: str) -> None:
    assert SUPPORTS[name].word == WORDS.get(name, "free")


def test_logits_are_called_so() -> None:
    assert dlrd.interval(0, 1).word == "logit"


def test_supports_are_values() -> None:
    """Models of equal ones share their programs."""
    assert dlrd.simplex(3) == dlrd.simplex(3) != dlrd.ordered(3)
    assert len({dlrd.positive(), dlrd.greater_than(0), dlrd.interval(0, 1), dlrd.interval(0, 1.0)}) == 2


def test_zeros_are_equal_probabilities() -> None:
    np.testing.assert_allclose(dlrd.simplex(5).forward(jnp.zeros(4)), np.full(5, 0.2), rtol=1e-6)


def integral(support: Support, log_density: Callable[[jax.Array], jax.Array], reach: float = 15.0) -> float:
    """Of a density on a support, over its free numbers: one of them, or two, by the trapezoidal rule."""
    (size,) = support.free_shape or (1,)
    axis = np.linspace(-reach, reach, 401)
    grid = jnp.asarray(np.stack(np.meshgrid(*[axis] * size, indexing="ij"), axis=-1).reshape(-1, size))
    points = grid.reshape(-1, *support.free_shape)
    height_fn = jax.jit(jax.vmap(lambda z: jnp.exp(log_density(support.forward(z)) + support.log_det(z))))
    heights = height_fn(points)
    return float(np.sum(heights) * (axis[1] - axis[0]) ** size)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("support", "log_density"),
    [
        (dlrd.positive(), lambda x: gamma.logpdf(x, 2.5)),
        (dlrd.greater_than(2), lambda x: gamma.logpdf(x, 2.5, loc=2)),
        (dlrd.less_than(-1), lambda x: gamma.logpdf(-1 - x, 2.5)),
        (dlrd.interval(0, 1), lambda x: beta.logpdf(x, 2.0, 3.0)),
        (dlrd.interval(-1, 3), lambda x: beta.logpdf((x + 1) / 4, 2.0, 3.0) - np.log(4)),
        (dlrd.simplex(3), lambda x: jax.scipy.stats.dirichlet.logpdf(x, jnp.array([2.0, 3.0, 1.5]))),
        # Two of three uniform numbers, by size: any order of these has a half.
        (dlrd.ordered(2), lambda x: np.log(2) + jnp.sum(jax.scipy.stats.logistic.logpdf(x))),
        # The correlation is uniform on (−1, 1).
        (dlrd.correlation_cholesky(2), lambda x: np.log(0.5)),
    ],
    ids=["gamma", "shifted", "mirrored", "beta", "scaled", "dirichlet", "ordered", "correlation"],
)
def test_densities_keep_their_mass(support: Support, log_density: Callable[[jax.Array], jax.Array]) -> None:
    """The trapezoidal rule is exact to rounding for analytic densities that vanish at the ends."""
    np.testing.assert_allclose(integral(support, log_density), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dlrd.positive(3), r"shape must be a tuple, as \(\) or \(3,\), got int 3"),
        (lambda: dlrd.real((2, 0)), "each size of a shape must be a whole number of at least 1, got int 0"),
        (lambda: dlrd.interval(1, 1), "low must be below high, got 1 and 1"),
        (lambda: dlrd.interval(0, np.inf), "high must be a finite number, got float inf"),
        (lambda: dlrd.greater_than("0"), "low must be a finite number, got str '0'"),
        (lambda: dlrd.simplex(1), "n must be at least 2, got 1"),
        (lambda: dlrd.ordered(2.5), r"n must be a whole number of at least 1, got float 2\.5"),
    ],
    ids=range(7),
)
def test_says_what_is_wrong(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}$"):
        call()
