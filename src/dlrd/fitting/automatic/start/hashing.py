"""Entries of a sparse symmetric matrix from its products with buckets of columns."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

SIGNIFICANCE, NEARNESS = 8.0, 5.0
"""Standard deviations of rounding: what is below counts as zero, what is nearer to a digit as the digit."""
MAX_CHANCE = 1e-2
"""That numbers that show nothing are all near digits."""
MAX_FAINT = 0.25
"""Share of what is left that is too faint for the digits; beyond, their base should be smaller."""
MAX_ITERATIONS = 30
"""Of decoding what the products show once the entries found so far are taken away."""

Rows = Float[np.ndarray, " dim"]
Directions = Float[np.ndarray, "direction dim"]


class Entries(NamedTuple):
    """Entries of a symmetric matrix, each pair once, and the diagonal's."""

    places: Int[np.ndarray, " entry"]  # row · dim + column, the row at least the column
    values: Float[np.ndarray, " entry"]
    variances: Float[np.ndarray, " entry"]  # of the values

    def plus(self, other: "Entries") -> "Entries":
        """The sum; what both have is known as well as the newer one, `other`, is."""
        places, inverse = np.unique(np.concatenate([self.places, other.places]), return_inverse=True)
        values = np.bincount(inverse, np.concatenate([self.values, other.values]), len(places))
        variances = np.zeros(len(places))
        variances[inverse] = np.concatenate([self.variances, other.variances])
        return Entries(places, values, variances)

    def both_sides(self, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The rows, columns, values and variances of the whole matrix."""
        rows, columns = np.divmod(self.places, dim)
        is_off = rows != columns
        return (
            np.concatenate([rows, columns[is_off]]),
            np.concatenate([columns, rows[is_off]]),
            np.concatenate([self.values, self.values[is_off]]),
            np.concatenate([self.variances, self.variances[is_off]]),
        )

    def significant(self) -> Int[np.ndarray, " entry"]:
        """The places of entries that differ from zero: one found by mistake has been taken back since."""
        return self.places[np.abs(self.values) > 0.5 * SIGNIFICANCE * np.sqrt(self.variances)]


class Buckets(NamedTuple):
    """Columns in buckets; a bucket's products tell a row in which of its columns it has its only entry.

    The first product of a bucket is with random weights. In the others each weight is multiplied by a digit
    of the column's number in the bucket: the ratio to the first is the digit.
    """

    buckets: Int[np.ndarray, " dim"]
    members: Int[np.ndarray, "number bucket"]  # −1 where there is none
    weights: Float[np.ndarray, "code dim"]
    base: int  # of the digits, a power of two

    def directions(self) -> Directions:
        """Those of the products: bucket by bucket, code by code."""
        num_codes, dim = self.weights.shape
        directions = np.zeros((self.members.shape[1], num_codes, dim))
        directions[self.buckets, :, np.arange(dim)] = self.weights.T
        return directions.reshape(-1, dim)


class Decoded(NamedTuple):
    """What a round of products showed."""

    entries: Entries  # all that are known
    num_left: Int[np.ndarray, " dim"]  # buckets in which a row has something unexplained
    is_faint: bool  # whether much of that is too faint for the digits


def random_weights(rng: np.random.Generator, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """Between 3/4 and 1 in size, of so few binary digits that multiples are exact in single precision."""
    return rng.choice([-1.0, 1.0], size=shape) * rng.integers(768, 1024, size=shape) / 1024


def hashed(dim: int, num_buckets: int, num_digits: int, rng: np.random.Generator) -> Buckets:
    """Random buckets of equal size; `num_digits` at most, of as small a base as that allows."""
    order, size = rng.permutation(dim), -(-dim // num_buckets)
    members = np.append(order, np.full(size * num_buckets - dim, -1)).reshape(size, num_buckets)
    buckets, numbers = np.empty(dim, int), np.empty(dim, int)
    numbers[order], buckets[order] = np.divmod(np.arange(dim), num_buckets)
    num_bits = max(1, (size - 1).bit_length())
    step = -(-num_bits // min(num_digits, num_bits))
    base = 2**step
    digits = np.array([(numbers >> shift) % base for shift in range(0, num_bits, step)])
    # Between −2 and 2: small enough for rounding, and as far apart as that allows.
    codes = np.concatenate([np.ones((1, dim)), (2 * digits + 1 - base) * (2 / base)])
    return Buckets(buckets, members, random_weights(rng, (dim,)) * codes, base)


def decoded(buckets: Buckets, products: Directions, entries: Entries, noise: Rows) -> Decoded:
    """Adds to the entries those that the products with the buckets' directions show.

    Each entry that is found is taken away from both its rows, where others may remain alone then.

    Args:
        buckets: whose directions were multiplied.
        products: of the matrix with them.
        entries: known before.
        noise: the standard deviation of the products' rounding, by row.
    """
    dim, num_buckets = len(noise), buckets.members.shape[1]
    left, new = products.reshape(num_buckets, -1, dim).copy(), entries
    deviation, is_faint = noise, False
    for _ in range(MAX_ITERATIONS):
        rows, columns, values, _ = new.both_sides(dim)
        places = buckets.buckets[columns] * dim + rows
        for code, weights in enumerate(buckets.weights):
            known = np.bincount(places, values * weights[columns], num_buckets * dim)
            left[:, code] -= known.reshape(num_buckets, dim)
        entries = entries if new is entries else entries.plus(new)
        rows, _, _, variances = entries.both_sides(dim)
        deviation = np.sqrt(noise**2 + np.bincount(rows, variances, dim) / num_buckets)
        new, is_faint = _singles(buckets, left, deviation)
        if not len(new.places):
            break
    return Decoded(entries, np.sum(np.abs(left[:, 0]) > SIGNIFICANCE * deviation, axis=0), is_faint)


def _singles(
    round_: Buckets, left: Float[np.ndarray, "bucket code dim"], deviation: Rows
) -> tuple[Entries, bool]:
    """Where a row has one entry in a bucket; and whether much of what is left is too faint to tell."""
    dim, base, level = len(deviation), round_.base, SIGNIFICANCE * deviation
    buckets, rows = np.nonzero(np.abs(left[:, 0]) > level)
    first = left[buckets, 0, rows]
    shown = left[buckets, 1:, rows] / first[:, None] * (base / 4) + (base - 1) / 2
    digits = np.clip(np.rint(shown), 0, base - 1).astype(int)
    # Of a ratio of at most 2, in digits.
    blur = NEARNESS * np.sqrt(5) * (base / 4) * deviation[rows] / np.abs(first)
    is_faint = blur > 0.5 * MAX_CHANCE ** (1 / digits.shape[1])
    numbers = digits @ base ** np.arange(digits.shape[1])
    is_single = ~is_faint & np.all(np.abs(shown - digits) < blur[:, None], axis=1)
    is_single &= numbers < len(round_.members)
    columns = np.where(is_single, round_.members[np.where(is_single, numbers, 0), buckets], -1)
    # An entry must be seen from the other side too, unless rounding hides it.
    is_missed = np.abs(left[round_.buckets[rows], 0, columns]) <= level[columns]
    is_single &= (columns >= 0) & ~(is_missed & (np.abs(first) > 4 * level[columns]))
    buckets, rows, columns = buckets[is_single], rows[is_single], columns[is_single]
    # All codes together are more exact than the first one.
    squares = np.sum(round_.weights[:, columns] ** 2, axis=0)
    values = np.sum(round_.weights[:, columns].T * left[buckets, :, rows], axis=1) / squares
    variances = deviation[rows] ** 2 / squares
    order = np.argsort(variances)  # of the two sides of an entry, the better one is taken
    places = (np.maximum(rows, columns) * dim + np.minimum(rows, columns))[order]
    places, chosen = np.unique(places, return_index=True)
    found = Entries(places, values[order][chosen], variances[order][chosen])
    return found, bool(np.sum(is_faint) > MAX_FAINT * len(is_faint))
