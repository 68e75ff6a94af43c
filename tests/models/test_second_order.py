"""Hessians times vectors: exactly where jax can, by differences where the gradient comes from outside."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.models import hessian_products

DIM = 4
KEY = jax.random.key(0)


def density(z: jax.Array) -> jax.Array:
    return -jnp.sum(jnp.exp(0.5 * z)) - 0.1 * jnp.sum(z**4) - z[0] * z[1] ** 2


MODEL = dlrd.models.function(density, DIM)


def sextic(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """With couplings: −s² / 2 − Σ z⁴, where s = Σ z³."""
    cubes = np.sum(draws**3, axis=1, keepdims=True)
    return -0.5 * cubes[:, 0] ** 2 - np.sum(draws**4, axis=1), -3 * cubes * draws**2 - 4 * draws**3


def sextic_in_jax(z: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(z**3) ** 2 - jnp.sum(z**4)


OUTSIDE = dlrd.models.host(sextic, DIM)


@jax.custom_vjp
def called_back(z: jax.Array) -> jax.Array:
    return OUTSIDE.values(z[None], None)[0]


def _forward(z: jax.Array) -> tuple[jax.Array, jax.Array]:
    values, gradients = OUTSIDE.values_and_gradients(z[None], None)
    return values[0], gradients[0]


called_back.defvjp(_forward, lambda gradient, weight: (weight * gradient,))


@jax.custom_vjp
def pure(z: jax.Array) -> jax.Array:
    return _pure(z)[0]


def _pure(z: jax.Array) -> tuple[jax.Array, jax.Array]:
    def evaluate(z: Any) -> tuple[np.ndarray, np.ndarray]:
        return tuple(part[0].astype(np.float32) for part in sextic(np.asarray(z, float)[None]))

    shapes = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((DIM,), jnp.float32)
    return jax.pure_callback(evaluate, shapes, z, vmap_method="sequential")


pure.defvjp(_pure, lambda gradient, weight: (weight * gradient,))


@jax.custom_vjp
def with_a_rule(z: jax.Array) -> jax.Array:
    """A rule of the user's own for the gradient, which jax can differentiate."""
    return density(z)


with_a_rule.defvjp(lambda z: (density(z), z), lambda z, weight: (weight * jax.grad(density)(z),))


class Halves:
    """A model of half the data, chosen by the key; a product is that of the gradient's half."""

    dim, names, has_gradient, is_exact, can_fail = DIM, tuple("abcd"), True, False, False

    def values_and_gradients(self, draws: jax.Array, key: Any) -> tuple[jax.Array, jax.Array]:
        weights = jax.random.uniform(key, (DIM,), draws.dtype)
        return jax.vmap(jax.value_and_grad(lambda z: -jnp.sum(weights * z**4)))(draws)


def points(num: int, size: float = 1.0) -> jax.Array:
    return jnp.asarray(size * np.random.default_rng(num).uniform(-1, 1, (num, DIM)))


def some_directions(num: int) -> jax.Array:
    """Whose entries have a sum of 1, but for their signs."""
    directions = np.random.default_rng(10 + num).normal(size=(num, DIM))
    return jnp.asarray(directions / np.sum(np.abs(directions), axis=1, keepdims=True))


def expected(log_density: Any, draws: jax.Array, directions: jax.Array) -> np.ndarray:
    """By jax's own Hessian, in double precision."""
    with jax.enable_x64(True):
        wide = jnp.asarray(np.asarray(draws), "float64")
        hessians = jax.jit(jax.vmap(jax.hessian(log_density)))(wide)
    return np.einsum("nij,kj->nki", hessians, np.asarray(directions, float))


@pytest.mark.parametrize("log_density", [density, with_a_rule])
@pytest.mark.parametrize(("num_draws", "num_directions"), [(3, 2), (1, 5), (2, 1)])
def test_exact(log_density: Any, num_draws: int, num_directions: int, precision: jnp.dtype) -> None:
    model = dlrd.models.function(log_density, DIM)
    draws, directions = points(num_draws), some_directions(num_directions)
    products = jax.jit(lambda *at: hessian_products(model, *at, None))(draws, directions)
    assert products.shape == (num_draws, num_directions, DIM)
    assert products.dtype == precision
    # A dozen operations on numbers of size 1, and sums over the coordinates.
    wanted = expected(density, draws, directions)
    atol = 12 * DIM * float(jnp.finfo(precision).eps) * np.abs(wanted).max()
    np.testing.assert_allclose(products, wanted, rtol=0, atol=atol)


def difference_bound(dtype: jnp.dtype) -> float:
    """Of a central difference with a step h: the third derivative's h² / 6, and the gradients' rounding / h.

    The step is the cube root of ten roundings. Where no coordinate is larger than 1 + h, the polynomial
    −3 s z² − 4 z³ with |s| ≤ DIM, of degree 5, has derivatives along a direction whose entries sum to 1 of
    no more than 5, 5 · 4, … times the sum of its terms. A gradient is rounded as its point is, and itself.
    """
    eps = float(jnp.finfo(dtype).eps)
    step = (10 * eps) ** (1 / 3)
    gradient = (3 * DIM + 4) * (1 + step) ** 5
    return 5 * 4 * 3 * gradient * step**2 / 6 + (5 * gradient * DIM + gradient) * eps / step


@pytest.mark.parametrize(
    "model",
    [OUTSIDE, dlrd.models.function(called_back, DIM)],
    ids=["host", "called_back"],
)
def test_differences_where_the_gradient_comes_from_outside(model: Any, precision: jnp.dtype) -> None:
    draws, directions = points(3), some_directions(2)
    products = jax.jit(lambda *at: hessian_products(model, *at, None))(draws, directions)
    assert products.shape == (3, 2, DIM)
    assert products.dtype == precision
    bound, wanted = difference_bound(precision), expected(sextic_in_jax, draws, directions)
    np.testing.assert_allclose(products, wanted, rtol=0, atol=bound)
    assert bound < 0.1 * np.abs(wanted).max()  # the comparison says something


def test_differences_behind_a_pure_callback() -> None:
    draws, directions = points(2), some_directions(2)
    model = dlrd.models.function(pure, DIM)
    with pytest.raises(ValueError, match="do not support JVP"):
        jax.jvp(jax.grad(pure), (draws[0],), (draws[0],))
    products = hessian_products(model, draws, directions, None)
    bound = difference_bound(jnp.dtype("float32"))
    np.testing.assert_allclose(products, expected(sextic_in_jax, draws, directions), rtol=0, atol=bound)


@pytest.mark.usefixtures("x64")
def test_differences_of_a_quadratic_are_exact() -> None:
    """Up to the rounding of the points and gradients, over the step."""
    matrix = np.diag([1.0, 2.0, 3.0, 4.0]) + 0.5
    model = dlrd.models.host(lambda z: (-0.5 * np.sum(z @ matrix * z, axis=1), -z @ matrix), DIM)
    draws, directions = points(3), jnp.eye(DIM)
    products = hessian_products(model, draws, directions, None)
    eps = float(np.finfo(float).eps)
    atol = 10 * eps * np.abs(matrix).sum(axis=1).max() / (10 * eps) ** (1 / 3)
    np.testing.assert_allclose(products, np.broadcast_to(-matrix, (3, DIM, DIM)), rtol=0, atol=atol)


def test_a_host_is_called_once_for_all_products() -> None:
    calls = []

    def counted(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        calls.append(len(draws))
        return sextic(draws)

    model = dlrd.models.host(counted, DIM)
    jax.block_until_ready(hessian_products(model, points(3), some_directions(5), None))
    assert calls == [2 * 3 * 5]


@pytest.mark.usefixtures("x64")
def test_a_part_of_the_data_is_that_of_the_key() -> None:
    draws, directions, model = points(2), jnp.eye(DIM), Halves()
    for key in jax.random.split(KEY, 2):
        weights = jax.random.uniform(key, (DIM,))
        products = hessian_products(model, draws, directions, key)  # pyright: ignore[reportArgumentType]
        wanted = np.stack([np.diag(each) for each in -12 * weights * draws**2])
        np.testing.assert_allclose(products, wanted, rtol=1e-14)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("model", [MODEL, OUTSIDE], ids=["function", "host"])
def test_many_runs_at_once(model: Any) -> None:
    """With an axis of runs in front of the draws."""
    runs, directions = jnp.stack([points(2), points(2, 0.5)]), some_directions(3)
    products = jax.jit(lambda draws: hessian_products(model, draws, directions, None))
    together = jax.jit(jax.vmap(products))(runs)
    # The rounding of a dozen operations, divided by the step of differences.
    atol = 12 * DIM * float(np.finfo(float).eps) ** (2 / 3)
    np.testing.assert_allclose(together, np.stack([products(draws) for draws in runs]), rtol=0, atol=atol)
