"""The order of elimination: what it fills in, how many levels it takes, when it gives up."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from dlrd.families import ordering
from dlrd.families.ordering import ordered, pairs_of
from dlrd.families.pattern import Pattern


def pattern(dim, pairs):
    edges = np.array(sorted({(max(pair), min(pair)) for pair in pairs}), int).reshape(-1, 2)
    return Pattern(dim, edges[:, 0], edges[:, 1])


def order(pattern, max_pairs=5_000_000, max_tail=512):
    return ordered(pattern, max_pairs, max_tail)


def arrow(num_locals, num_globals):
    """Locals that depend on all globals, as in a hierarchical model."""
    dim = num_locals + num_globals
    return pattern(dim, [(i, j) for i in range(num_locals, dim) for j in range(i)])


def filled(pattern, order):
    """The factor's pattern by elimination of a dense matrix, in the order's own numbering."""
    matrix = np.eye(pattern.dim, dtype=bool)
    matrix[pattern.rows, pattern.columns] = matrix[pattern.columns, pattern.rows] = True
    matrix = matrix[np.ix_(order, order)]
    for node in range(pattern.dim):
        below = node + 1 + np.flatnonzero(matrix[node + 1 :, node])
        matrix[np.ix_(below, below)] = True
    return np.tril(matrix, -1)


@st.composite
def patterns(draw):
    dim = draw(st.integers(1, 14))
    pairs = st.tuples(st.integers(0, dim - 1), st.integers(0, dim - 1)).filter(
        lambda pair: pair[0] != pair[1]
    )
    return pattern(dim, draw(st.lists(pairs, max_size=30)) if dim > 1 else [])


@pytest.fixture
def without_small_tails(monkeypatch):
    """So that a few nodes have levels."""
    monkeypatch.setattr(ordering, "SMALL_TAIL", 1)


@pytest.mark.usefixtures("without_small_tails")
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(patterns())
def test_the_factor_has_what_elimination_fills_in(pattern):
    result = order(pattern)
    assert result is not None
    np.testing.assert_array_equal(np.sort(result.order), np.arange(pattern.dim))
    expected = filled(pattern, result.order)
    tail = result.starts[-1]
    expected[tail:, tail:] = np.tri(pattern.dim - tail, k=-1)
    by_column = np.argwhere(expected.T)
    np.testing.assert_array_equal(result.columns, by_column[:, 0])
    np.testing.assert_array_equal(result.rows, by_column[:, 1])
    for first, last in zip(result.starts[:-1], result.starts[1:], strict=True):
        assert not expected[first:last, first:last].any()


@pytest.mark.usefixtures("without_small_tails")
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(patterns())
def test_pairs_are_those_of_each_column_before_the_tail(pattern):
    result = order(pattern)
    assert result is not None
    left, right, target = pairs_of(result.rows, result.columns, pattern.dim, int(result.starts[-1]))
    expected = [
        (i, j)
        for i in range(len(result.rows))
        for j in range(i)
        if result.columns[i] == result.columns[j] < result.starts[-1]
    ]
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == expected
    np.testing.assert_array_equal(result.rows[target], result.rows[left])
    np.testing.assert_array_equal(result.columns[target], result.rows[right])


def test_a_long_chain_takes_few_levels_and_little_fill():
    dim = 100_000
    result = order(Pattern(dim, np.arange(1, dim), np.arange(dim - 1)))
    assert result is not None
    assert len(result.starts) - 1 <= 2 * np.log2(dim)
    assert len(result.rows) <= 4 * dim


def test_locals_are_one_level_and_globals_the_tail():
    result = order(arrow(20_000, 3))
    assert result is not None
    np.testing.assert_array_equal(result.order, np.arange(20_003))
    np.testing.assert_array_equal(result.starts, [0, 20_000])
    assert len(result.rows) == 20_000 * 3 + 3


def test_groups_of_locals_are_two_levels_without_fill():
    num_groups, size = 100, 7
    members, groups = np.arange(num_groups * size), num_groups * size + np.arange(num_groups)
    pairs = [*zip(groups[members // size], members, strict=True)]
    result = order(pattern(groups[-1] + 2, pairs + [(groups[-1] + 1, group) for group in groups]))
    assert result is not None
    np.testing.assert_array_equal(result.starts, [0, num_groups * size, groups[-1] + 1, groups[-1] + 2])
    assert len(result.rows) == len(pairs) + num_groups


def test_without_couplings_there_is_neither_an_entry_nor_a_tail():
    result = order(pattern(30, []))
    assert result is not None
    np.testing.assert_array_equal(result.starts, [0, 30])
    assert len(result.rows) == 0


def test_what_is_small_or_dense_is_one_block():
    for example in (pattern(64, [(i, i + 1) for i in range(63)]), arrow(0, 100)):
        result = order(example)
        assert result is not None
        np.testing.assert_array_equal(result.starts, [0])
        assert len(result.rows) == example.dim * (example.dim - 1) / 2


@pytest.mark.parametrize(
    ("example", "limits"),
    [
        (arrow(0, 100), {"max_tail": 50, "max_pairs": 10_000}),
        (arrow(1_000, 10), {"max_pairs": 1_000 * 55 - 1}),
    ],
)
def test_what_costs_too_much_is_refused(example, limits):
    assert order(example, **limits) is None
    assert order(example) is not None
