"""In which order to eliminate the nodes of a sparse matrix: with little fill, and many at a time."""

import itertools
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from dlrd.families.pattern import Pattern

SMALL_TAIL = 64
"""Nodes that are cheaper to treat as one dense block than in levels."""
DENSE = 0.5
"""Of all pairs of the remaining nodes: where more have an edge, nothing is gained by leaving out others."""
MIN_WIDTH = 1 / 128
"""Of the remaining nodes: where a level would have fewer, they become the tail as soon as they may."""
LOW = 0.1
"""Of the remaining nodes, those that are eliminated next may be among the lowest degrees."""
MAX_LEVELS = 300
"""Each takes some microseconds, however narrow it is."""


class Ordering(NamedTuple):
    """What the elimination does, in its own numbering of the nodes."""

    order: Int[np.ndarray, " dim"]  # the node that is eliminated first, second, …
    starts: Int[np.ndarray, " bound"]  # where levels start in this order, and behind them the tail
    rows: Int[np.ndarray, " entry"]  # of the factor's entries below its diagonal, by column and row
    columns: Int[np.ndarray, " entry"]


def ordered(pattern: Pattern, max_pairs: int, max_tail: int) -> Ordering | None:
    """Rounds of minimum degree: each eliminates many nodes that have no edge between them, as one level.

    Args:
        pattern: of the matrix.
        max_pairs: of entries of one column, summed over the columns.
        max_tail: nodes that may be left to a dense block.

    Returns:
        The order and the factor's pattern, or None if they would cost more than that.
    """
    neighbours: list[set[int]] = [set() for _ in range(pattern.dim)]
    for one, other in zip(pattern.rows.tolist(), pattern.columns.tolist(), strict=True):
        neighbours[one].add(other)
        neighbours[other].add(one)
    remaining = list(range(pattern.dim))
    order: list[int] = []
    starts, num_pairs = [0], 0
    while remaining:
        chosen = _independent(remaining, neighbours)
        if _is_tail(remaining, len(chosen), neighbours, max_tail):
            break
        num_pairs += sum(len(neighbours[node]) * (len(neighbours[node]) + 1) // 2 for node in chosen)
        if num_pairs > max_pairs or len(starts) > MAX_LEVELS:
            return None
        for node in chosen:
            clique = neighbours[node]
            for other in clique:
                neighbours[other] |= clique  # in place: other may be a hub with a large set of its own
                neighbours[other] -= {other, node}
        order += chosen
        starts.append(len(order))
        gone = set(chosen)
        remaining = [node for node in remaining if node not in gone]
    # The neighbours of an eliminated node are as they were when its turn came: its column of the factor.
    for index, node in enumerate(remaining):
        neighbours[node] = set(remaining[index + 1 :])
    order += remaining
    lengths = [len(neighbours[node]) for node in order]
    nodes = np.fromiter(itertools.chain.from_iterable(neighbours[node] for node in order), int, sum(lengths))
    rows, columns = np.argsort(order)[nodes], np.repeat(np.arange(pattern.dim), lengths)
    by_column = np.argsort(keys(rows, columns, pattern.dim))
    return Ordering(np.array(order), np.array(starts), rows[by_column], columns[by_column])


def pairs_of(rows: np.ndarray, columns: np.ndarray, dim: int, tail: int) -> tuple[np.ndarray, ...]:
    """Any two entries of a column before the tail, and the entry at their rows, ordered by the first."""
    starts = np.searchsorted(columns, np.arange(tail + 1))
    lengths = np.diff(starts)
    lefts, rights = [], []
    for length in np.unique(lengths[lengths > 1]):
        upper, lower = np.tril_indices(length, -1)
        first = starts[:-1][lengths == length, None]
        lefts.append((first + upper).ravel())
        rights.append((first + lower).ravel())
    if not lefts:
        return (np.zeros(0, np.int32),) * 3
    left, right = np.concatenate(lefts), np.concatenate(rights)
    in_order = np.argsort(left, kind="stable")
    left, right = left[in_order], right[in_order]
    target = np.searchsorted(keys(rows, columns, dim), keys(rows[left], rows[right], dim))
    return left.astype(np.int32), right.astype(np.int32), target.astype(np.int32)


def _independent(remaining: list[int], neighbours: list[set[int]]) -> list[int]:
    """Nodes of low degree without an edge between them, none of which could be added."""
    degrees = np.array([len(neighbours[node]) for node in remaining])
    highest = max(degrees.min() + 1, 1.5 * degrees.min(), np.quantile(degrees, LOW))
    blocked: set[int] = set()
    chosen = []
    for index in np.argsort(degrees, kind="stable")[: np.sum(degrees <= highest)].tolist():
        node = remaining[index]
        if node not in blocked:
            chosen.append(node)
            blocked |= neighbours[node]
    return sorted(chosen)


def _is_tail(remaining: list[int], num_chosen: int, neighbours: list[set[int]], max_tail: int) -> bool:
    """Whether to treat what remains as a dense block."""
    count, num_edges = len(remaining), sum(len(neighbours[node]) for node in remaining) // 2
    if not num_edges or count > max_tail:
        return False
    is_dense = num_edges > DENSE * count * (count - 1) / 2
    return count <= SMALL_TAIL or is_dense or num_chosen < MIN_WIDTH * count


def keys(rows: np.ndarray, columns: np.ndarray, dim: int) -> np.ndarray:
    """Numbers that sort as columns and then rows do."""
    return columns.astype(np.int64) * dim + rows
