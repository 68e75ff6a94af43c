"""Cholesky factors of sparse matrices: which entries they have, found once on the host, and their numerics.

Nodes without an edge between them are eliminated together, a level at a time, so that the compiled code has
few and wide operations: a chain of d nodes takes about log₂ d levels. What is left in the end is one dense
block, the tail.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int

from dlrd.families.ordering import keys, ordered, pairs_of
from dlrd.families.pattern import Pattern
from dlrd.families.trainable import Untrained

MIN_LOOP = 256
"""Entries or pairs of a level below which it does not matter how many they are."""

Diagonal = Float[Array, " dim"]
Lower = Float[Array, " entry"]
Values = tuple[Diagonal, Lower]
"""Of a symmetric or a lower triangular matrix: the diagonal, and the entries below it."""
Vectors = Float[Array, "*batch dim"]


class Part(NamedTuple):
    """The entries of a level's columns, or its pairs, among a number of them that several levels share."""

    start: Int[Array, ""]
    is_own: Bool[Array, " length"]

    def of(self, array: Any) -> Array:
        return jax.lax.dynamic_slice_in_dim(jnp.asarray(array), self.start, len(self.is_own))

    def add(self, x: Array, targets: Any, values: Array) -> Array:
        """The values of the level's own added to x at their targets."""
        own = jnp.where(self.is_own.reshape(-1, *(1,) * (values.ndim - 1)), values, 0)
        return x.at[self.of(targets)].add(own, mode="promise_in_bounds")


class Elimination(Untrained):
    """The filled pattern of a factor T, A = T Tᵀ, and what one does with such factors.

    Matrices are given by their diagonal and their entries below it, in the order of `rows` and `columns`,
    vectors with leading batch axes; all in the order of elimination, to which `permuted` translates.

    Args:
        order: the node that is eliminated first, second, …
        starts: where levels start in this order, and behind them the tail.
        rows: of the entries below the diagonal, sorted by column and row; the tail has all of them.
        columns: likewise.
    """

    order: Int[np.ndarray, " dim"]
    position: Int[np.ndarray, " dim"]  # of each node in the order
    rows: Int[np.ndarray, " entry"]
    columns: Int[np.ndarray, " entry"]
    left: Int[np.ndarray, " pair"]  # of two entries of one column, not in the tail, that further down
    right: Int[np.ndarray, " pair"]  # the other
    target: Int[np.ndarray, " pair"]  # the entry at their rows, to which their product contributes
    starts: tuple[int, ...] = eqx.field(static=True)
    entry_starts: tuple[int, ...] = eqx.field(static=True)
    pair_starts: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, order: np.ndarray, starts: np.ndarray, rows: np.ndarray, columns: np.ndarray):
        self.order, self.rows, self.columns = (np.asarray(each, np.int32) for each in (order, rows, columns))
        self.position = np.argsort(self.order).astype(np.int32)
        self.starts = tuple(int(each) for each in starts)
        self.entry_starts = tuple(int(each) for each in np.searchsorted(self.columns, self.starts))
        self.left, self.right, self.target = pairs_of(self.rows, self.columns, self.dim, self.starts[-1])
        self.pair_starts = tuple(int(each) for each in np.searchsorted(self.left, self.entry_starts))

    @property
    def dim(self) -> int:
        return len(self.order)

    @property
    def num_entries(self) -> int:
        return len(self.rows)

    @property
    def num_levels(self) -> int:
        return len(self.starts) - 1

    def places(self, pattern: Pattern) -> Int[np.ndarray, " entry"]:
        """Where the entries of a pattern that was eliminated are among those of the factor, on the host."""
        first, second = self.position[pattern.rows], self.position[pattern.columns]
        wanted = keys(np.maximum(first, second), np.minimum(first, second), self.dim)
        return np.searchsorted(keys(self.rows, self.columns, self.dim), wanted)

    def permuted(self, x: Vectors) -> Vectors:
        """From the original order to that of elimination."""
        return _taken(x, (..., self.order))

    def unpermuted(self, x: Vectors) -> Vectors:
        """From the order of elimination to the original one."""
        return _taken(x, (..., self.position))

    @eqx.filter_jit
    def factorized(self, diagonal: Diagonal, lower: Lower) -> Values:
        """T of the symmetric matrix A with these values; not a number where it is not positive definite."""

        def eliminated(values: Values, entries: Part, pairs: Part) -> Values:
            diagonal, lower = values
            own = entries.of(lower)
            unit = own / _taken(diagonal, entries.of(self.columns))
            # Pairs of other levels, which are left out below, have no entry here.
            right = unit.at[pairs.of(self.right) - entries.start].get(mode="clip")
            return (
                entries.add(diagonal, self.rows, -own * unit),
                pairs.add(lower, self.target, -_taken(lower, pairs.of(self.left)) * right),
            )

        diagonal, lower = _swept(eliminated, (diagonal, lower), self.entry_starts, self.pair_starts)
        start, first = self.starts[-1], self.entry_starts[-1]
        pivots = diagonal[:start]
        roots = diagonal.at[:start].set(jnp.where(pivots > 0, jnp.sqrt(pivots), jnp.nan))
        scaled = lower.at[:first].divide(_taken(roots, self.columns[:first]))
        root = partial(jnp.linalg.cholesky, symmetrize_input=False)  # it has the lower half alone
        return self._with_tail(roots, scaled, root)

    @eqx.filter_jit
    def product(self, diagonal: Diagonal, lower: Lower) -> Values:
        """The values of T Tᵀ, which differs from zero nowhere else."""
        square, below = diagonal**2, lower * _taken(diagonal, self.columns)
        tail = self._tail(diagonal, lower)
        square, below = self._with_tail(square, below, lambda _: tail @ tail.T)
        entries = slice(self.entry_starts[-1])
        products = _taken(lower, self.left) * _taken(lower, self.right)
        return square.at[self.rows[entries]].add(lower[entries] ** 2), below.at[self.target].add(products)

    @eqx.filter_jit
    def inverse(self, diagonal: Diagonal, lower: Lower) -> Values:
        """The values of Z = (T Tᵀ)⁻¹ at the places of T's entries, by Takahashi's recursion.

        For a column i, its entries J below the diagonal and U_Ji = T_Ji / T_ii, Z_Ji = −Z_JJ U_Ji and
        Z_ii = T_ii⁻² − U_Ji · Z_Ji: all of Z_JJ is at places of entries of later columns.
        """
        unit = lower / _taken(diagonal, self.columns)
        places = jnp.arange(self.num_entries)

        def extended(inverse: Values, entries: Part, pairs: Part) -> Values:
            diagonal, lower = inverse
            known, own = _taken(lower, pairs.of(self.target)), entries.of(unit)
            lower = entries.add(lower, places, -own * _taken(diagonal, entries.of(self.rows)))
            lower = pairs.add(lower, self.left, -known * _taken(unit, pairs.of(self.right)))
            lower = pairs.add(lower, self.right, -known * _taken(unit, pairs.of(self.left)))
            return entries.add(diagonal, self.columns, -own * entries.of(lower)), lower

        root = self._tail(diagonal, lower)
        root = solve_triangular(root, jnp.eye(len(root), dtype=root.dtype), lower=True)
        tail = self._with_tail(diagonal**-2, jnp.zeros_like(lower), lambda _: root.T @ root)
        return _swept(extended, tail, self.entry_starts, self.pair_starts, is_backward=True)

    @eqx.filter_jit
    def times_lower(self, diagonal: Diagonal, lower: Lower, x: Vectors) -> Vectors:
        """T x."""
        return _by_columns(lambda x: _times(diagonal, lower, x, self.columns, self.rows), x)

    @eqx.filter_jit
    def times_upper(self, diagonal: Diagonal, lower: Lower, x: Vectors) -> Vectors:
        """Tᵀ x."""
        return _by_columns(lambda x: _times(diagonal, lower, x, self.rows, self.columns), x)

    @eqx.filter_jit
    def solve_lower(self, diagonal: Diagonal, lower: Lower, b: Vectors) -> Vectors:
        """T⁻¹ b."""
        return _by_columns(lambda b: self._solved(diagonal, lower, b, is_upper=False), b)

    @eqx.filter_jit
    def solve_upper(self, diagonal: Diagonal, lower: Lower, b: Vectors) -> Vectors:
        """T⁻ᵀ b."""
        return _by_columns(lambda b: self._solved(diagonal, lower, b, is_upper=True), b)

    def _solved(self, diagonal: Array, lower: Array, b: Array, is_upper: bool) -> Array:
        """Its derivatives are those of a solution, not of the way there: one more solve, and products."""
        start = self.starts[-1]
        unit = lower / _taken(diagonal, self.columns)

        def swept(x: Array, source: Any, target: Any, is_backward: bool) -> Array:
            def step(x: Array, entries: Part) -> Array:
                return entries.add(x, target, -entries.of(unit)[:, None] * _taken(x, entries.of(source)))

            return _swept(step, x, self.entry_starts, is_backward=is_backward)

        def tail(x: Array, trans: str) -> Array:
            return solve_triangular(self._tail(diagonal, lower), x[start:], trans=trans, lower=True)

        def lower_solved(b: Array) -> Array:
            x = swept(b, self.columns, self.rows, is_backward=False)
            return jnp.concatenate([x[:start] / diagonal[:start, None], tail(x, "N")])

        def upper_solved(b: Array) -> Array:
            x = jnp.concatenate([b[:start] / diagonal[:start, None], tail(b, "T")])
            return swept(x, self.rows, self.columns, is_backward=True)

        ends = (self.rows, self.columns) if is_upper else (self.columns, self.rows)
        solve, transposed = (upper_solved, lower_solved) if is_upper else (lower_solved, upper_solved)
        return jax.lax.custom_linear_solve(
            lambda x: _times(diagonal, lower, x, *ends), b, lambda _, b: solve(b), lambda _, b: transposed(b)
        )

    def _tail(self, diagonal: Array, lower: Array) -> Float[Array, "tail tail"]:
        """The last rows and columns, zero above the diagonal."""
        start, first = self.starts[-1], self.entry_starts[-1]
        places = self.rows[first:] - start, self.columns[first:] - start
        return jnp.diag(diagonal[start:]).at[places].set(lower[first:], unique_indices=True)

    def _with_tail(self, diagonal: Array, lower: Array, change: Callable[[Array], Array]) -> Values:
        """The values with a function of their tail in its place."""
        start, first = self.starts[-1], self.entry_starts[-1]
        changed = change(self._tail(diagonal, lower))
        entries = changed[self.rows[first:] - start, self.columns[first:] - start]
        return diagonal.at[start:].set(jnp.diagonal(changed)), lower.at[first:].set(entries)


def eliminate(pattern: Pattern, max_pairs: int = 5_000_000, max_tail: int = 512) -> Elimination | None:
    """An order of elimination with little fill and wide levels, and the factor's pattern.

    Args:
        pattern: of the matrix.
        max_pairs: of entries of one column, summed over the columns: the cost of a factorization.
        max_tail: nodes that may be left to a dense block.

    Returns:
        The elimination, or None if it would cost more than that.
    """
    ordering = ordered(pattern, max_pairs, max_tail)
    return None if ordering is None else Elimination(*ordering)


def _swept(step: Callable, carry: Any, *bounds: tuple[int, ...], is_backward: bool = False) -> Any:
    """Takes a step a level, from the first to the last or back; levels of similar sizes are one loop."""
    groups = list(_groups(bounds))
    for levels in reversed(groups) if is_backward else groups:

        def one(index: Array, carry: Any, levels: list[int] = levels) -> Any:
            level = levels[-1] - index if is_backward else levels[0] + index
            return step(carry, *(_part(each, levels, level) for each in bounds))

        carry = jax.lax.fori_loop(0, len(levels), one, carry)
    return carry


def _groups(bounds: tuple[tuple[int, ...], ...]) -> Iterator[list[int]]:
    """Runs of levels whose sizes differ by at most a factor of two, where that matters."""
    sizes = np.log2(np.maximum(np.diff(bounds), MIN_LOOP))
    group: list[int] = []
    for level in range(sizes.shape[1]):
        if group and np.any(np.ptp(sizes[:, [*group, level]], axis=1) > 1):
            yield group
            group = []
        group.append(level)
    if group:
        yield group


def _part(bounds: tuple[int, ...], levels: list[int], level: Int[Array, ""]) -> Part:
    """That of one of these levels, as long as the largest of them has it."""
    limits = np.array(bounds, np.int32)
    length = int(np.diff(limits)[levels].max())
    first, last = jnp.asarray(limits)[level], jnp.asarray(limits)[level + 1]
    start = jnp.minimum(first, bounds[-1] - length)
    places = start + jnp.arange(length, dtype=start.dtype)
    return Part(start, (first <= places) & (places < last))


def _times(diagonal: Array, lower: Array, x: Array, source: Any, target: Any) -> Array:
    return (diagonal[:, None] * x).at[target].add(lower[:, None] * _taken(x, source))


def _taken(x: Any, places: Any) -> Array:
    return jnp.asarray(x).at[places].get(mode="promise_in_bounds")


def _by_columns(function: Callable[[Array], Array], x: Vectors) -> Vectors:
    """All vectors of a batch at once, as the columns of a matrix."""
    return function(x.reshape(-1, x.shape[-1]).T).T.reshape(x.shape)
