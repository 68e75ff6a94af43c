"""The sparsity of Hessians, from products with them."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrd.families.coloring import color
from dlrd.families.pattern import Pattern
from dlrd.fitting.automatic.start.pattern import SMALL_DIM, find_pattern

Pairs = list[tuple[np.ndarray, np.ndarray]]


def pattern_of(dim: int, pairs: Pairs) -> Pattern:
    """From pairs of coordinates that are broadcast against each other."""
    ends = [np.stack(np.broadcast_arrays(*pair), -1).reshape(-1, 2) for pair in pairs]
    ordered = np.sort(np.concatenate([np.zeros((0, 2), int), *ends]), axis=1)
    ordered = np.unique(ordered[ordered[:, 0] != ordered[:, 1]], axis=0)
    return Pattern(dim, ordered[:, 1], ordered[:, 0])


def chain(dim: int) -> Pattern:
    return pattern_of(dim, [(np.arange(1, dim), np.arange(dim - 1))])


def arrow(dim: int) -> Pattern:
    return pattern_of(dim, [(np.arange(dim), np.arange(6)[:, None])])


def hierarchy(dim: int) -> Pattern:
    """Globals, groups of three coefficients, and members of groups."""
    num_groups = 12
    members = np.arange(4 + 3 * num_groups, dim)
    groups = 4 + np.arange(3 * num_groups).reshape(num_groups, 3)
    pairs = [(np.arange(dim), np.arange(4)[:, None]), (groups[members % num_groups], members[:, None])]
    return pattern_of(dim, [*pairs, (groups[:, :, None], groups[:, None, :])])


def crossed(dim: int) -> Pattern:
    """Every one of fifteen effects with every other effect, and three globals."""
    return pattern_of(
        dim, [(np.arange(dim), np.arange(3)[:, None]), (np.arange(3, 18)[:, None], np.arange(18, dim))]
    )


def grid(dim: int) -> Pattern:
    numbers = np.arange(dim - dim % 20).reshape(-1, 20)
    return pattern_of(dim, [(numbers[1:], numbers[:-1]), (numbers[:, 1:], numbers[:, :-1])])


def blocks(dim: int) -> Pattern:
    numbers = np.arange(dim - dim % 5).reshape(-1, 5)
    return pattern_of(dim, [(numbers[:, :, None], numbers[:, None, :])])


def hubs(dim: int) -> Pattern:
    """At random, with degrees of a power law."""
    rng, weights = np.random.default_rng(0), 1 / np.arange(1, dim + 1)
    return pattern_of(dim, [(np.arange(dim), rng.choice(dim, size=(3, dim), p=weights / weights.sum()))])


def dense(dim: int) -> Pattern:
    return Pattern(dim, *np.tril_indices(dim, -1))


def log_density(
    pattern: Pattern, weakest: float = 0.3, has_diagonal: bool = True
) -> Callable[[jax.Array], jax.Array]:
    """Couples the pairs of a pattern, with strengths down to `weakest` of the diagonal's."""
    rng = np.random.default_rng(1)
    degrees = np.bincount(np.concatenate([pattern.rows, pattern.columns]), minlength=pattern.dim) + 1.0
    strengths = weakest ** rng.uniform(size=len(pattern.rows)) * rng.choice([-1, 1], size=len(pattern.rows))
    strengths *= np.sqrt(degrees[pattern.rows] * degrees[pattern.columns])
    diagonal = degrees * rng.uniform(1, 2, size=pattern.dim) * has_diagonal

    def fn(z: jax.Array) -> jax.Array:
        coupled = z[pattern.rows.astype(np.int32)] * z[pattern.columns.astype(np.int32)]
        value = -jnp.sum(jnp.asarray(strengths, z.dtype) * coupled)
        return value - 0.5 * jnp.sum(jnp.asarray(diagonal, z.dtype) * (z**2 + 0.1 * z**4))

    return fn


def products_of(
    log_density_fn: Callable[[jax.Array], jax.Array], dim: int, dtype: jnp.dtype
) -> Callable[[np.ndarray], np.ndarray]:
    point = jnp.asarray(np.random.default_rng(2).normal(size=dim), dtype)
    compiled = jax.jit(jax.vmap(lambda v: jax.jvp(jax.grad(log_density_fn), (point,), (v,))[1]))
    return lambda directions: np.asarray(compiled(jnp.asarray(directions, dtype)))


def assert_same(found: Pattern | None, expected: Pattern) -> None:
    assert found is not None
    assert found.dim == expected.dim
    assert np.all(found.rows > found.columns)
    wanted, got = (np.sort(pattern.rows * pattern.dim + pattern.columns) for pattern in (expected, found))
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dim", [100, 700])
@pytest.mark.parametrize("make", [chain, arrow, hierarchy, crossed, grid, blocks, hubs])
def test_patterns_are_found_exactly(make: Callable[[int], Pattern], dim: int, precision: jnp.dtype) -> None:
    expected = make(dim)
    products_fn = products_of(log_density(expected), dim, precision)
    found, num_products = find_pattern(products_fn, dim, np.random.default_rng(0))
    assert_same(found, expected)
    assert num_products <= (dim + 16 if dim <= SMALL_DIM else 600)


@pytest.mark.parametrize("make", [chain, arrow])
def test_the_number_of_products_does_not_grow_with_the_dimension(
    make: Callable[[int], Pattern], precision: jnp.dtype
) -> None:
    dim = 5_000
    products_fn = products_of(log_density(make(dim)), dim, precision)
    found, num_products = find_pattern(products_fn, dim, np.random.default_rng(0))
    assert_same(found, make(dim))
    assert num_products <= 600


@pytest.mark.parametrize("dim", [100, 700])
def test_weak_entries_are_found(dim: int, precision: jnp.dtype) -> None:
    expected = hierarchy(dim)
    weakest = 1e-6 if precision == jnp.float64 else 1e-3
    products_fn = products_of(log_density(expected, weakest), dim, precision)
    assert_same(find_pattern(products_fn, dim, np.random.default_rng(0))[0], expected)


@pytest.mark.parametrize("dim", [100, 700])
def test_coordinates_of_different_units(dim: int, precision: jnp.dtype) -> None:
    expected = hierarchy(dim)
    units = 10 ** np.random.default_rng(3).uniform(-4, 4, size=dim)
    products_fn = products_of(log_density(expected), dim, precision)

    def scaled_fn(directions: np.ndarray) -> np.ndarray:
        return units * products_fn(units * directions)

    assert_same(find_pattern(scaled_fn, dim, np.random.default_rng(0))[0], expected)


@pytest.mark.parametrize("dim", [100, 700])
def test_a_diagonal_of_zeros(dim: int, precision: jnp.dtype) -> None:
    products_fn = products_of(log_density(grid(dim), has_diagonal=False), dim, precision)
    assert_same(find_pattern(products_fn, dim, np.random.default_rng(0))[0], grid(dim))


@pytest.mark.parametrize("dim", [1, 2, 100, 700])
def test_a_hessian_of_zeros(dim: int) -> None:
    found, _ = find_pattern(np.zeros_like, dim, np.random.default_rng(0))
    assert_same(found, pattern_of(dim, []))


def test_a_dense_hessian_has_a_pattern_in_few_dimensions_alone(precision: jnp.dtype) -> None:
    products_fn = products_of(log_density(dense(30)), 30, precision)
    assert_same(find_pattern(products_fn, 30, np.random.default_rng(0))[0], dense(30))
    root = np.random.default_rng(1).normal(size=(700, 700))
    hessian = (root + root.T).astype(precision)
    products_fn = hessian.__rmatmul__  # directions @ hessian
    found, num_products = find_pattern(products_fn, 700, np.random.default_rng(0))
    assert found is None
    assert num_products <= 500


def test_a_hessian_of_low_rank_is_not_sparse() -> None:
    factor = np.random.default_rng(0).normal(size=(400, 3))
    hessian = np.eye(400) + factor @ factor.T
    assert find_pattern(hessian.__rmatmul__, 400, np.random.default_rng(0))[0] is None


def test_limits_are_kept() -> None:
    hessian = np.eye(700)
    hessian[:18, 18:], hessian[18:, :18] = 0.1, 0.1
    products_fn = hessian.__rmatmul__  # directions @ hessian
    found, _ = find_pattern(products_fn, 700, np.random.default_rng(0))
    assert_same(found, pattern_of(700, [(np.arange(18)[:, None], np.arange(18, 700))]))
    assert find_pattern(products_fn, 700, np.random.default_rng(0), max_colors=18)[0] is None
    found, num_products = find_pattern(products_fn, 700, np.random.default_rng(0), max_products=200)
    assert found is None
    assert num_products <= 200


@pytest.mark.parametrize("dim", [100, 700])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_products_that_are_not_finite(dim: int, number: float) -> None:
    def products_fn(directions: np.ndarray) -> np.ndarray:
        return np.where(np.arange(dim) == 7, number, directions)

    assert find_pattern(products_fn, dim, np.random.default_rng(0)) == (None, 2)


def test_rounding_is_no_entry() -> None:
    """As of central differences: the same in all directions, and not a multiple of anything."""
    dim, rng = 700, np.random.default_rng(4)
    hessian = np.zeros((dim, dim))
    expected = hierarchy(dim)
    hessian[expected.rows, expected.columns] = rng.uniform(0.3, 1, size=len(expected.rows))
    hessian += hessian.T + np.diag(np.sum(hessian + hessian.T, axis=0) + 1)

    def products_fn(directions: np.ndarray) -> np.ndarray:
        return directions @ hessian + 1e-9 * rng.normal(size=directions.shape)

    assert_same(find_pattern(products_fn, dim, np.random.default_rng(0))[0], expected)


def test_values_are_those_of_the_hessian() -> None:
    dim = 300
    with jax.enable_x64(True):
        density_fn = log_density(hierarchy(dim))
        products_fn = products_of(density_fn, dim, jnp.dtype("float64"))
        hessian = np.asarray(jax.jit(jax.hessian(density_fn))(np.random.default_rng(2).normal(size=dim)))
        pattern, _ = find_pattern(products_fn, dim, np.random.default_rng(0))
        assert pattern is not None
        coloring = color(pattern)
        diagonal, lower = coloring.recovered(products_fn(coloring.seeds()))
    recovered = np.diag(diagonal)
    recovered[pattern.rows, pattern.columns] = recovered[pattern.columns, pattern.rows] = lower
    np.testing.assert_allclose(recovered, hessian, rtol=1e-14, atol=1e-14 * np.abs(hessian).max())


@settings(max_examples=30)
@given(
    st.integers(2, 40).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))
    ),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_any_graph(drawn: tuple[int, list[tuple[int, int]]], seed: int, is_padded: bool) -> None:
    """By columns, and, with coordinates that are coupled to none, by buckets."""
    size, edges = drawn
    dim = size + SMALL_DIM * is_padded
    expected = pattern_of(dim, [(np.array([i]), np.array([j])) for i, j in edges])
    rng = np.random.default_rng(seed)
    lower = np.zeros((dim, dim))
    lower[expected.rows, expected.columns] = rng.normal(size=len(expected.rows))
    hessian = lower + lower.T + np.diag(rng.normal(size=dim))
    found, _ = find_pattern(lambda directions: directions @ hessian, dim, rng)
    assert_same(found, expected)
