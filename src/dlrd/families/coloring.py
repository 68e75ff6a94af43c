"""Groups of columns of a sparse Hessian whose products, one a group, give all its entries."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from dlrd.families.pattern import Pattern
from dlrd.families.trainable import Untrained

Numbers = Any
"""Arrays, NumPy's on the host or traced ones in a compiled step."""


class Coloring(Untrained):
    """A colour for each coordinate, such that every entry is read off one product with a colour's indicator.

    The product of the Hessian with the indicator of a colour has, in row i, the sum of the row's entries at
    coordinates of that colour. It is the entry (i, j) itself where i has one neighbour of j's colour alone.
    """

    colors: Int[np.ndarray, " dim"]
    rows: Int[np.ndarray, " entry"]  # of the product that an entry of the pattern is read from: i or j
    columns: Int[np.ndarray, " entry"]  # the colour of the other one
    num_colors: int = eqx.field(static=True)

    def seeds(self, dtype: Any = float) -> Float[np.ndarray, "color dim"]:
        """The colours' indicators: the directions of the products."""
        return (self.colors == np.arange(self.num_colors)[:, None]).astype(dtype)

    def recovered(self, products: Numbers) -> tuple[Numbers, Numbers]:
        """The diagonal and the pattern's entries, from the seeds' products with the Hessian.

        Args:
            products: of shape (..., color, dim).

        Returns:
            The diagonal, of shape (..., dim), and the entries in the order of the pattern, (..., entry).
        """
        diagonal = products[..., self.colors, np.arange(len(self.colors))]
        return diagonal, products[..., self.columns, self.rows]


def color(pattern: Pattern) -> Coloring:
    """Colours a pattern with few colours.

    A star colouring: neighbours differ, and so do the colours of a path of four coordinates, three of them
    at least. The coordinates of two colours then form stars, and of each entry one end is a star's leaf, with
    one neighbour of the other's colour. Coordinates with many neighbours come first, so that they are the
    centres: what all others depend on costs a colour each, what only a group depends on shares its colour
    with that of other groups. Of two orders, that with fewer colours counts.

    Args:
        pattern: of the Hessian.

    Returns:
        The colouring, in time that is linear in the entries for a bounded number of colours.

    Example:
        >>> import numpy as np
        >>> from dlrd.families.pattern import Pattern
        >>> chain = Pattern(1000, np.arange(1, 1000), np.arange(999))
        >>> color(chain).num_colors
        3

    References:
        A. H. Gebremedhin, A. Tarafdar, F. Manne, A. Pothen. New acyclic and star coloring algorithms with
        application to computing Hessians. SIAM J. Sci. Comput. 29 (2007).
    """
    dim, rows, columns = pattern.dim, np.asarray(pattern.rows, int), np.asarray(pattern.columns, int)
    if len(rows) == dim * (dim - 1) // 2:
        return Coloring(np.arange(dim), rows, columns, dim)
    degrees = np.bincount(rows, minlength=dim) + np.bincount(columns, minlength=dim)
    orders = np.argsort(-degrees, kind="stable"), np.lexsort((-degrees, -_levels(pattern)))
    colors = min((_star_colors(pattern, order) for order in orders), key=np.max)
    num_colors = int(colors.max()) + 1
    # How many neighbours of the column's colour the row has, to see which end is the leaf.
    places = np.concatenate([rows, columns]) * num_colors + colors[np.concatenate([columns, rows])]
    _, inverse, counts = np.unique(places, return_inverse=True, return_counts=True)
    is_leaf = counts[inverse[: len(rows)]] == 1
    return Coloring(
        colors, np.where(is_leaf, rows, columns), np.where(is_leaf, colors[columns], colors[rows]), num_colors
    )


def _levels(pattern: Pattern) -> Int[np.ndarray, " dim"]:
    """The round in which a coordinate goes, if those go that have few neighbours among those that are left.

    At least half of them go each time. A hyperparameter that only groups depend on stays longer than they do.
    """
    dim, rows, columns = pattern
    levels = np.zeros(dim, int)
    for level in range(1, dim.bit_length() + 1):
        degrees = np.bincount(rows, minlength=dim) + np.bincount(columns, minlength=dim)
        is_left = levels == level - 1
        levels += is_left & (degrees > 2 * degrees[is_left].mean())
        is_within = (levels[rows] == level) & (levels[columns] == level)
        rows, columns = rows[is_within], columns[is_within]
        if not len(rows):
            break
    return levels


def _star_colors(pattern: Pattern, order: Int[np.ndarray, " dim"]) -> Int[np.ndarray, " dim"]:
    """Greedily the smallest colour that completes no path of four coordinates in two colours."""
    dim, rows, columns = pattern
    ends = np.concatenate([rows, columns])
    degrees = np.bincount(ends, minlength=dim)
    neighbors = np.concatenate([columns, rows])[np.argsort(ends, kind="stable")].tolist()
    stops = np.cumsum(degrees).tolist()
    colors = [-1] * dim
    first: list[dict[int, int]] = [{} for _ in range(dim)]  # by colour, the first neighbour that has it
    # The colours of which a neighbour is the centre of a star that the coordinate is a leaf of: another
    # neighbour of that colour would make a path of four.
    blocked: list[set[int]] = [set() for _ in range(dim)]
    for node in order.tolist():
        start = stops[node - 1] if node else 0
        around = neighbors[start : stops[node]]
        forbidden: set[int] = set()
        for other in around:
            if colors[other] < 0:
                # Those coloured before it shall all differ, so that it can be a leaf of each.
                forbidden.update(first[other])
            else:
                forbidden.add(colors[other])
                forbidden.update(blocked[other])
        chosen = 0
        while chosen in forbidden:
            chosen += 1
        colors[node] = chosen
        for other in around:
            leaf = first[other].setdefault(chosen, node)
            if leaf != node:
                blocked[leaf].add(colors[other])
                blocked[node].add(colors[other])
    return np.array(colors)
