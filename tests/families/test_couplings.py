"""A pattern with its colouring and its elimination: few products give a Hessian to factorize."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.families import ordering, split
from dlrd.families.couplings import MIN_SAVING, Couplings, couplings
from dlrd.families.curvature import MAX_WHOLE
from dlrd.families.pattern import Pattern


def pattern(dim, pairs):
    edges = np.array(sorted({(max(pair), min(pair)) for pair in pairs}), int).reshape(-1, 2)
    return Pattern(dim, edges[:, 0], edges[:, 1])


def chain(dim=30):
    return pattern(dim, [(i, i + 1) for i in range(dim - 1)])


def arrow():
    """Locals that depend on all globals."""
    return pattern(24, [(i, j) for i in range(20, 24) for j in range(i)])


def grid():
    side = 6
    along = [(side * i + j, side * i + j + 1) for i in range(side) for j in range(side - 1)]
    across = [(side * i + j, side * i + side + j) for i in range(side - 1) for j in range(side)]
    return pattern(side**2, along + across)


def dense(dim=8):
    return pattern(dim, [(i, j) for i in range(dim) for j in range(i)])


def apart():
    return pattern(5, [])


def made(pattern: Pattern, small_tail: int) -> Couplings:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "SMALL_TAIL", small_tail)
        found = couplings(pattern)
    assert found is not None
    return found


def hessian_of(pattern: Pattern, rng: np.random.Generator) -> np.ndarray:
    """Whole numbers, none of them zero, that no sum rounds."""
    lower = np.zeros((pattern.dim, pattern.dim))
    lower[pattern.rows, pattern.columns] = rng.integers(1, 100, len(pattern.rows))
    return lower + lower.T + np.diag(rng.integers(1, 100, pattern.dim))


@pytest.mark.parametrize("small_tail", [2, 64], ids=["levels", "tail"])
@pytest.mark.parametrize("case", [chain, arrow, grid, dense, apart], ids=lambda case: case.__name__)
def test_the_seeds_products_give_the_hessian_in_the_order_of_elimination(case, small_tail):
    entries = case()
    found, matrix = made(entries, small_tail), hessian_of(entries, np.random.default_rng(0))
    seeds = found.seeds(np.float32)
    assert seeds.shape == (found.coloring.num_colors, entries.dim)
    assert seeds.dtype == np.float32
    diagonal, lower = found.hessian(seeds @ matrix.astype(np.float32))
    elimination = found.elimination
    expected = matrix[np.ix_(elimination.order, elimination.order)]
    np.testing.assert_array_equal(diagonal, expected.diagonal())
    # Also where the factor has an entry and the Hessian has none.
    np.testing.assert_array_equal(lower, expected[elimination.rows, elimination.columns])


def test_some_entries_of_a_factor_are_none_of_the_pattern():
    assert made(grid(), 2).elimination.num_entries > len(grid().rows)


def test_the_type_of_the_products_stays(precision):
    found = made(arrow(), 2)
    values = jax.jit(lambda found, products: found.hessian(products))(found, jnp.asarray(found.seeds(float)))
    assert {each.dtype for each in values} == {precision}


def test_the_pattern_comes_back():
    entries = grid()
    dim, rows, columns = made(entries, 2).pattern
    assert dim == entries.dim
    np.testing.assert_array_equal(rows, entries.rows)
    np.testing.assert_array_equal(columns, entries.columns)


def test_few_colours_are_a_saving():
    """A chain has three, so four times as many coordinates are just enough."""
    assert made(chain(3 * MIN_SAVING), 2).is_saving
    assert not made(chain(3 * MIN_SAVING - 1), 2).is_saving
    assert not made(dense(), 2).is_saving


def test_gradients_serve_where_nothing_is_spared_and_a_dense_matrix_is_small():
    assert not made(chain(3 * MIN_SAVING), 2).is_for_gradients
    assert made(chain(3 * MIN_SAVING - 1), 2).is_for_gradients
    many = pattern(MAX_WHOLE + 1, [(i, j) for i in range(MAX_WHOLE - 49, MAX_WHOLE + 1) for j in range(i)])
    assert not made(many, 2).is_saving
    assert not made(many, 2).is_for_gradients


def test_a_factor_is_sparse_if_most_pairs_are_not_in_it():
    assert made(chain(8), 2).is_sparse
    assert not made(dense(), 2).is_sparse


def test_what_fills_too_much_has_none():
    assert couplings(dense(600)) is None


def test_nothing_of_it_is_trained():
    trained, rest = split(made(arrow(), 2))
    assert jax.tree.leaves(trained) == []
    assert eqx.tree_equal(rest, made(arrow(), 2))
