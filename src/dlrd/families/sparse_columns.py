"""Normals with a sparse precision T Tᵀ as regressions, one a column of T; on the host.

With x = z − μ and ε = Tᵀ x, in the order of elimination, column j says: given those x_J at which it has
entries, x_j has the mean −U · x_J, with U = T_J / T_jj, and the precision T_jj². The Fisher information does
not mix such regressions. It is T_jj² Σ_JJ for U, with the covariance Σ, and 2 for log T_jj.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dlrd.families._limits import limited_stretch
from dlrd.families.elimination import Elimination
from dlrd.families.ordering import keys

MIN_EIGENVALUE = 1e-10
"""Of correlations that rounding has left not positive definite."""
ROOT_TWO = 2**0.5

Matrix = Float[np.ndarray, "dim dim"]
Numbers = tuple[Any, Any]
"""A diagonal, and entries below it, as arrays of any kind."""


class Regressions:
    r"""The geometry of a normal's regressions.

    A gradient has two numbers a column: $E[r_j ε_j]$ and the vector $E[r_j x_J]$, r = T⁻¹ ∇ log p + ε. They
    stand one behind the other as a diagonal and entries, for all columns.

    Args:
        elimination: of the pattern.
        factor: T.
        inverse: Σ, at the places of T's entries.
    """

    def __init__(self, elimination: Elimination, factor: Numbers, inverse: Numbers):
        self._elimination = elimination
        self._diagonal, self._lower = (np.asarray(each, float) for each in factor)
        self._inverse = tuple(np.asarray(each, float) for each in inverse)
        self._tail = _Tail(elimination)

    def whitened(self, gradients: Float[np.ndarray, "row coordinate"]) -> Float[np.ndarray, "row coordinate"]:
        """In coordinates in which the Fisher information is the identity."""
        diagonal, entries = np.split(gradients, [len(self._diagonal)], axis=1)
        white = np.array(entries)
        for columns, root in self._roots():
            white[:, columns.entries] = np.linalg.solve(root, entries[:, columns.entries, None])[..., 0]
        root = self._tail.matrix(self._diagonal, self._lower)
        for row, given in zip(white, entries, strict=True):
            row[self._tail.entries] = self._tail.values(root.T @ self._tail.matrix(None, given))
        return np.concatenate([diagonal / ROOT_TWO, white], axis=1)

    def moved(self, gradient: Float[np.ndarray, " coordinate"]) -> Numbers:
        """T after Newton's step along a gradient."""
        diagonal, entries = np.split(gradient, [len(self._diagonal)])
        solved = np.array(entries)
        for columns, root in self._roots():
            half = np.linalg.solve(root, entries[columns.entries, None])
            solved[columns.entries] = np.linalg.solve(np.swapaxes(root, 1, 2), half)[..., 0]
        root = self._tail.matrix(self._diagonal, self._lower)
        half = np.tril(root.T @ self._tail.matrix(None, entries), -1)
        solved[self._tail.entries] = self._tail.values(root @ half)
        columns = self._elimination.columns
        slopes = (self._lower - solved) / self._diagonal[columns]
        further = self._diagonal * np.exp(limited_stretch(-0.5 * diagonal))
        return further, slopes * further[columns]

    def displacement(self, before: Numbers) -> Float[np.ndarray, " coordinate"]:
        """The way here from an earlier T, as the gradient that would lead it."""
        there, below = (np.asarray(each, float) for each in before)
        columns = self._elimination.columns
        change = self._lower / self._diagonal[columns] - below / there[columns]
        image = np.array(change)
        for group in _groups(self._elimination):
            blocks = self._covariances(group)
            image[group.entries] = np.einsum("cij,cj->ci", blocks, change[group.entries])
        covariance = self._tail.matrix(*self._inverse)
        covariance = covariance + np.tril(covariance, -1).T
        image[self._tail.entries] = self._tail.values(covariance @ self._tail.matrix(None, change))
        with np.errstate(divide="ignore", invalid="ignore"):
            stretch = np.log(np.abs(self._diagonal / there))
        return np.concatenate([-2 * stretch, -self._diagonal[columns] * image])

    def _roots(self) -> Iterator[tuple["_Group", Float[np.ndarray, "column size size"]]]:
        """A root of Σ_JJ for each column before the tail."""
        for group in _groups(self._elimination):
            blocks = self._covariances(group)
            try:
                yield group, np.linalg.cholesky(blocks)
            except np.linalg.LinAlgError:  # rounding, in single precision
                yield group, _safe_roots(blocks)

    def _covariances(self, group: "_Group") -> Float[np.ndarray, "column size size"]:
        """Σ_JJ for each column of a group."""
        diagonal, lower = self._inverse
        dim, rows, columns = self._elimination.dim, self._elimination.rows, self._elimination.columns
        one, other = group.rows[:, :, None], group.rows[:, None, :]
        wanted = keys(np.maximum(one, other), np.minimum(one, other), dim)
        places = np.minimum(np.searchsorted(keys(rows, columns, dim), wanted), len(lower) - 1)
        return np.where(one == other, diagonal[one], lower[places])


def projected_root(elimination: Elimination, root: Matrix) -> Matrix:
    """The root of the nearest covariance whose inverse has the pattern, by the divergence from that given.

    Each coordinate keeps its regression on those at which its column has entries, and nothing else.

    Args:
        elimination: of the pattern.
        root: R of the covariance R Rᵀ, upper triangular, in the order of elimination.
    """
    nearest = np.array(root)
    before = [
        (column, rows) for group in _groups(elimination) for column, rows in zip(*group[::2], strict=True)
    ]
    for column, rows in sorted(before, reverse=True, key=lambda each: each[0]):
        own, given = root[column], root[rows]
        slopes = np.linalg.lstsq(given @ given.T, given @ own, rcond=None)[0]
        nearest[column] = slopes @ nearest[rows]
        nearest[column, column] = np.linalg.norm(own - slopes @ given)
    return nearest


class _Group(NamedTuple):
    """Columns before the tail with as many entries each."""

    columns: Int[np.ndarray, " column"]
    entries: Int[np.ndarray, "column size"]  # their places
    rows: Int[np.ndarray, "column size"]


def _groups(elimination: Elimination) -> Iterator[_Group]:
    """Those that have any entries."""
    starts = np.searchsorted(elimination.columns, np.arange(elimination.starts[-1] + 1))
    sizes = np.diff(starts)
    for size in np.unique(sizes[sizes > 0]):
        columns = np.flatnonzero(sizes == size)
        entries = starts[columns, None] + np.arange(size)
        yield _Group(columns, entries, np.asarray(elimination.rows)[entries])


class _Tail:
    """The last columns, which have all entries: there, T is a root of its own."""

    def __init__(self, elimination: Elimination):
        start = elimination.starts[-1]
        self.entries = slice(elimination.entry_starts[-1], None)
        self._nodes = slice(start, None)
        self._places = elimination.rows[self.entries] - start, elimination.columns[self.entries] - start
        self._size = elimination.dim - start

    def matrix(self, diagonal: np.ndarray | None, lower: np.ndarray) -> Matrix:
        """Zero above the diagonal, and on it if none is given."""
        matrix = np.zeros((self._size, self._size)) if diagonal is None else np.diag(diagonal[self._nodes])
        matrix[self._places] = lower[self.entries]
        return matrix

    def values(self, matrix: Matrix) -> Float[np.ndarray, " entry"]:
        """What is below the diagonal."""
        return matrix[self._places]


def _safe_roots(blocks: Float[np.ndarray, "column size size"]) -> Float[np.ndarray, "column size size"]:
    scale = np.sqrt(np.diagonal(blocks, axis1=1, axis2=2))
    eigenvalues, vectors = np.linalg.eigh(blocks / (scale[:, :, None] * scale[:, None, :]))
    return scale[:, :, None] * vectors * np.sqrt(np.maximum(eigenvalues, MIN_EIGENVALUE))[:, None, :]
