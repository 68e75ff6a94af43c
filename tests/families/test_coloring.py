"""Colourings of sparse Hessians: every entry is read off, with few colours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrd.families.coloring import Coloring, color
from dlrd.families.pattern import Pattern
from dlrd.families.trainable import split


def pattern_of(dim: int, pairs: np.ndarray) -> Pattern:
    """From pairs in any order, some of them repeated or of a coordinate with itself."""
    pairs = np.sort(np.asarray(pairs, int).reshape(-1, 2), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    return Pattern(dim, pairs[:, 1], pairs[:, 0])


def chain(dim: int) -> Pattern:
    return Pattern(dim, np.arange(1, dim), np.arange(dim - 1))


def arrow(dim: int, num_globals: int = 6) -> Pattern:
    return pattern_of(
        dim, np.stack([np.repeat(np.arange(dim), num_globals), np.tile(np.arange(num_globals), dim)], 1)
    )


def grid(side: int) -> Pattern:
    numbers = np.arange(side**2).reshape(side, side)
    across = np.stack([numbers[:, 1:].ravel(), numbers[:, :-1].ravel()], 1)
    return pattern_of(side**2, np.concatenate([across, numbers.T.ravel()[across]]))


def dense(dim: int) -> Pattern:
    return Pattern(dim, *np.tril_indices(dim, -1))


def hierarchy(num_groups: int, num_members: int) -> Pattern:
    """Two hyperparameters of the groups' effects, one of all members, and a member's own effect."""
    groups = 3 + np.arange(num_groups)
    members = 3 + num_groups + np.arange(num_groups * num_members)
    pairs = [(0, 1), *[(hyper, group) for hyper in (0, 1) for group in groups]]
    pairs += [
        pair for i, member in enumerate(members) for pair in ((2, member), (groups[i // num_members], member))
    ]
    return pattern_of(int(members[-1]) + 1, np.array(pairs))


def matrix(pattern: Pattern, rng: np.random.Generator) -> np.ndarray:
    lower = np.zeros((pattern.dim, pattern.dim))
    lower[pattern.rows, pattern.columns] = rng.normal(size=len(pattern.rows))
    return lower + lower.T + np.diag(rng.normal(size=pattern.dim))


def assert_recovers(pattern: Pattern, coloring: Coloring) -> None:
    hessian = matrix(pattern, np.random.default_rng(0))
    diagonal, lower = coloring.recovered(coloring.seeds() @ hessian)
    # Every product is a sum with a single term that is not zero.
    np.testing.assert_array_equal(diagonal, hessian.diagonal())
    np.testing.assert_array_equal(lower, hessian[pattern.rows, pattern.columns])


@pytest.mark.parametrize(
    ("pattern", "min_colors", "max_colors"),
    [
        (Pattern(5, np.zeros(0, int), np.zeros(0, int)), 1, 1),
        (chain(2), 2, 2),
        (chain(50), 3, 3),
        (arrow(60), 7, 7),
        (grid(12), 4, 9),
        (dense(9), 9, 9),
        (hierarchy(12, 30), 4, 6),
        # A complete bipartite graph: the smaller side's own colours, and one.
        (pattern_of(48, np.stack(np.meshgrid(np.arange(8), np.arange(8, 48)), -1)), 9, 9),
    ],
    ids=["diagonal", "pair", "chain", "arrow", "grid", "dense", "hierarchy", "crossed"],
)
def test_few_colors_give_all_entries(pattern: Pattern, min_colors: int, max_colors: int) -> None:
    coloring = color(pattern)
    assert min_colors <= coloring.num_colors <= max_colors
    assert coloring.num_colors == len(np.unique(coloring.colors))
    assert_recovers(pattern, coloring)


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))
    )
)
def test_any_graph(drawn: tuple[int, list[tuple[int, int]]]) -> None:
    dim, pairs = drawn
    pattern = pattern_of(dim, np.array(pairs))
    coloring = color(pattern)
    assert coloring.num_colors <= dim
    assert_recovers(pattern, coloring)


def test_hundred_thousand_dimensions() -> None:
    coloring = color(arrow(100_000))
    assert coloring.num_colors == 7
    assert len(coloring.rows) == 6 * 100_000 - 6 * 7 // 2


def test_batches_of_products_compiled_or_not() -> None:
    pattern, rng = hierarchy(4, 5), np.random.default_rng(1)
    coloring = color(pattern)
    products = coloring.seeds(np.float32) @ np.stack([matrix(pattern, rng) for _ in range(3)]).astype(
        np.float32
    )
    diagonal, lower = coloring.recovered(products)
    assert diagonal.shape == (3, pattern.dim)
    assert lower.shape == (3, len(pattern.rows))
    compiled = jax.jit(lambda coloring, products: coloring.recovered(products))(
        coloring, jnp.asarray(products)
    )
    np.testing.assert_array_equal(compiled[0], diagonal)
    np.testing.assert_array_equal(compiled[1], lower)


def test_nothing_of_it_is_trained() -> None:
    trained, _ = split(color(chain(4)))  # pyright: ignore[reportArgumentType]
    assert jax.tree.leaves(trained) == []
