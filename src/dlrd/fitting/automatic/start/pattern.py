"""Which entries of a Hessian differ from zero, found from products with it alone."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from dlrd.families.coloring import color
from dlrd.families.pattern import Pattern
from dlrd.fitting.automatic.start.hashing import (
    SIGNIFICANCE,
    Directions,
    Entries,
    Rows,
    decoded,
    hashed,
    random_weights,
)

SMALL_DIM = 256
"""Up to which all columns are asked for."""
NUM_SCALINGS = 4
"""Steps towards rows of like size, two products each."""
MIN_NOISE = 1e-12
"""Relative to a row: a finer noise is not believed, as a zero is often computed as a difference."""
NUM_BUCKETS = 16, 8, 64
"""Of columns that share products: at first, at least, at most."""
NOISE_OF_DIGITS = 1e-9, 1e-6
"""Relative noise of products beyond which a column's number has three digits in place of two, and four."""
MAX_IN_VAIN = 3
"""Rounds that find next to nothing, after which the Hessian counts as dense."""
NUM_GUESSED = 16
"""Unexplained rows all of whose pairs may be entries."""
NUM_GUESSES, NUM_CHECKS = 3, 3
"""After a round; fresh products that a guess must explain."""


class _NotFiniteError(Exception):
    """A product is infinite or no number."""


class _Products:
    """The products of D H D, counted; D is diagonal, such that the rows are of like size.

    D has powers of two, so that directions that are exact in single precision remain so.
    """

    def __init__(self, products_fn: Callable[[Directions], Directions]):
        self.num_spent = 0
        self.scale: np.ndarray | float = 1.0  # D
        self._products_fn = products_fn

    def __call__(self, directions: Directions) -> Directions:
        self.num_spent += len(directions)
        products = np.asarray(self._products_fn(self.scale * directions), float) * self.scale
        if not np.isfinite(products).all():
            raise _NotFiniteError
        return products


class _Tests(NamedTuple):
    """Products with random directions, which the entries must explain."""

    directions: Directions
    products: Directions
    noise: Rows  # standard deviation of rounding, by row

    def unexplained(self, entries: Entries) -> Int[np.ndarray, " row"]:
        """The rows in which the products are not those of the entries, by more than rounding."""
        dim = len(self.noise)
        rows, columns, values, variances = entries.both_sides(dim)
        level = SIGNIFICANCE * np.sqrt(self.noise**2 + np.bincount(rows, variances, dim))
        known = [np.bincount(rows, values * direction[columns], dim) for direction in self.directions]
        return np.flatnonzero(np.any(np.abs(self.products - known) > level, axis=0))


def find_pattern(
    products_fn: Callable[[Directions], Directions],
    dim: int,
    rng: np.random.Generator,
    max_products: int = 1000,
    max_colors: int = 64,
) -> tuple[Pattern | None, int]:
    """Finds where a Hessian differs from zero.

    In few dimensions from all its columns. In more by hashing: the columns are put into random buckets, and
    a row with one entry in a bucket sees from the bucket's products in which column it is. What is found is
    taken away, so that others remain alone; a dense row need not see anything, as its entries are seen from
    the other side. The number of products depends on the entries in a row, hardly on the dimension. In the
    end the entries are read from the products of a colouring, and must explain fresh ones.

    An entry counts as zero where it is within the rounding of products, which is measured.

    Args:
        products_fn: the Hessian, at a fixed and generic point, times each of the directions (k, dim). These
            are exact in single precision.
        dim: of the Hessian.
        rng: for the buckets and their weights.
        max_products: that may be spent beyond `SMALL_DIM` dimensions.
        max_colors: of the pattern's colouring, beyond `SMALL_DIM` dimensions.

    Returns:
        The pattern, and the number of products spent. None for the pattern if it was not found: the Hessian
        is not sparse, or a product is not finite.

    Example:
        >>> import numpy as np
        >>> hessian = np.array([[2.0, 0.0, 1.0], [0.0, 2.0, 0.0], [1.0, 0.0, 2.0]])
        >>> pattern, _ = find_pattern(lambda directions: directions @ hessian, 3, np.random.default_rng(0))
        >>> pattern
        Pattern(dim=3, rows=array([2]), columns=array([0]))
    """
    products = _Products(products_fn)
    try:
        tests = _tests(products, dim, rng)
        if dim > SMALL_DIM:
            return _from_buckets(products, tests, rng, max_products, max_colors), products.num_spent
        is_entry = np.abs(products(np.eye(dim)).T) > SIGNIFICANCE * tests.noise[:, None]
    except _NotFiniteError:
        return None, products.num_spent
    return Pattern(dim, *np.nonzero(np.tril(is_entry | is_entry.T, -1))), products.num_spent


def _tests(products_fn: _Products, dim: int, rng: np.random.Generator) -> _Tests:
    """Scales the products, and measures their noise by how far they are from linear."""
    logs = np.zeros(dim)
    for _ in range(NUM_SCALINGS):
        sizes = np.max(np.abs(products_fn(random_weights(rng, (2, dim)))), axis=0)
        logs -= np.log2(sizes, where=sizes > 0, out=np.zeros(dim)) / 2
        products_fn.scale = 2 ** np.rint(logs)
    directions = random_weights(rng, (4, dim))
    pairs = np.array([[0, 1], [2, 3], [0, 2], [1, 3]])
    products = products_fn(np.concatenate([directions, directions[pairs].sum(1)]))
    size = np.max(np.abs(products), axis=0)
    # Of two products and one of twice the variance.
    noise = np.sqrt(np.mean((products[4:] - products[pairs].sum(1)) ** 2, axis=0)) / 2
    # A row's own few numbers may be small by chance.
    relative = float(np.median(noise[size > 0] / size[size > 0])) if size.any() else 0.0
    return _Tests(directions, products[:4], np.maximum(noise, max(2 * relative, MIN_NOISE) * size))


def _from_buckets(
    products_fn: _Products, tests: _Tests, rng: np.random.Generator, max_products: int, max_colors: int
) -> Pattern | None:
    dim = len(tests.noise)
    entries = Entries(np.zeros(0, int), np.zeros(0), np.zeros(0))
    num_buckets, min_buckets, max_buckets = NUM_BUCKETS
    relative = np.median(tests.noise) / max(float(np.median(np.abs(tests.products))), 1e-300)
    num_digits, num_in_vain = 2 + int(np.sum(relative > np.array(NOISE_OF_DIGITS))), 0
    while True:
        suspects = tests.unexplained(entries)
        for _ in range(NUM_GUESSES):
            if len(suspects) > (max_colors if num_in_vain else NUM_GUESSED):
                break
            pattern, unexplained = _verified(products_fn, entries, suspects, tests.noise, max_colors, rng)
            if pattern is not None or (unexplained is None and not len(suspects)):
                return pattern
            if unexplained is None or np.isin(unexplained, suspects).all():
                break
            suspects = np.union1d(suspects, unexplained)
        buckets = hashed(dim, num_buckets, num_digits, rng)
        num_wanted = num_buckets * len(buckets.weights) + max_colors + NUM_CHECKS
        if num_in_vain == MAX_IN_VAIN or products_fn.num_spent + num_wanted > max_products:
            return None
        num_before = len(entries.places)
        entries, num_left, is_faint = decoded(
            buckets, products_fn(buckets.directions()), entries, tests.noise
        )
        num_left = num_left[num_left > 0]
        occupied = min(float(np.median(num_left)) / num_buckets, 0.95) if len(num_left) else 0.0
        is_in_vain = len(entries.places) - num_before <= 0.01 * len(num_left)
        num_in_vain = num_in_vain + 1 if is_in_vain else 0
        if is_in_vain and occupied > 0.9 and num_buckets == max_buckets:
            return None
        num_digits = 2 * num_digits if is_faint else num_digits
        # Twice the entries that a row has left: so many at random would occupy as many buckets.
        num_buckets = 2 ** int(np.ceil(np.log2(max(-2 * num_buckets * np.log1p(-occupied), 1.0))))
        num_buckets = min(max(num_buckets, min_buckets), max_buckets)


def _verified(
    products_fn: _Products,
    entries: Entries,
    suspects: Int[np.ndarray, " row"],
    noise: Rows,
    max_colors: int,
    rng: np.random.Generator,
) -> tuple[Pattern | None, Int[np.ndarray, " row"] | None]:
    """The pattern of the entries and of all pairs of suspects, if it explains fresh products with the values
    that are read from its colours' products; or the rows that it does not explain, None if it has too many
    colours."""
    dim = len(noise)
    guessed = (suspects[:, None] * dim + suspects)[np.tril_indices(len(suspects), -1)]
    rows, columns = np.divmod(np.union1d(entries.significant(), guessed), dim)
    rows, columns = rows[rows > columns], columns[rows > columns]
    # An entry is read from a row and a colour of its own.
    coloring = color(Pattern(dim, rows, columns)) if len(rows) < dim * max_colors else None
    if coloring is None or coloring.num_colors > max_colors:
        return None, None
    seeds, directions = coloring.seeds(), random_weights(rng, (NUM_CHECKS, dim))
    products = products_fn(np.concatenate([seeds, directions]))
    diagonal, lower = coloring.recovered(products[: len(seeds)])
    deviations = noise[coloring.rows]
    read = Entries(
        np.concatenate([np.arange(dim) * (dim + 1), rows * dim + columns]),
        np.concatenate([diagonal, lower]),
        np.concatenate([noise, deviations]) ** 2,
    )
    unexplained = _Tests(directions, products[len(seeds) :], noise).unexplained(read)
    if len(unexplained):
        return None, unexplained
    is_entry = np.isin(rows * dim + columns, np.setdiff1d(guessed, entries.significant()), invert=True)
    is_entry |= np.abs(lower) > 0.5 * SIGNIFICANCE * deviations
    return Pattern(dim, rows[is_entry], columns[is_entry]), unexplained
