"""Entries of a sparse matrix from products with buckets of columns."""

import numpy as np
import pytest

from dlrd.fitting.automatic.start.hashing import Entries, decoded, hashed, random_weights

NOTHING = Entries(np.zeros(0, int), np.zeros(0), np.zeros(0))


def dense(entries: Entries, dim: int) -> np.ndarray:
    rows, columns, values, _ = entries.both_sides(dim)
    matrix = np.zeros((dim, dim))
    np.add.at(matrix, (rows, columns), values)
    return matrix


def sparse_matrix(dim: int, num_pairs: int, rng: np.random.Generator) -> np.ndarray:
    matrix = np.diag(rng.uniform(1, 2, size=dim))
    for i, j in rng.choice(dim, size=(num_pairs, 2)):
        matrix[i, j] = matrix[j, i] = rng.normal()
    return matrix


def test_the_newer_value_is_added_and_its_variance_counts() -> None:
    entries = Entries(np.array([3, 7]), np.array([1.0, 2.0]), np.array([0.1, 0.2]))
    summed = entries.plus(Entries(np.array([7, 9]), np.array([-2.0, 4.0]), np.array([0.3, 0.4])))
    np.testing.assert_array_equal(summed.places, [3, 7, 9])
    np.testing.assert_array_equal(summed.values, [1.0, 0.0, 4.0])
    np.testing.assert_array_equal(summed.variances, [0.1, 0.3, 0.4])


def test_an_entry_that_was_taken_back_is_not_significant() -> None:
    entries = Entries(np.array([3, 7]), np.array([1.0, 1e-9]), np.full(2, 1e-16))
    np.testing.assert_array_equal(entries.significant(), [3])


@pytest.mark.parametrize(("num_digits", "base", "num_codes"), [(2, 16, 3), (3, 8, 4), (20, 2, 8)])
def test_every_column_has_a_bucket_a_number_and_its_digits(
    num_digits: int, base: int, num_codes: int
) -> None:
    buckets = hashed(1000, 8, num_digits, np.random.default_rng(0))  # 125 columns in a bucket: 7 bits
    assert buckets.base == base
    assert buckets.weights.shape == (num_codes, 1000)
    np.testing.assert_array_equal(np.sort(buckets.members.ravel()), np.arange(1000))
    numbers, bucket = np.nonzero(buckets.members >= 0)
    np.testing.assert_array_equal(buckets.buckets[buckets.members[numbers, bucket]], bucket)
    assert len(np.unique(buckets.weights[1:] / buckets.weights[0], axis=1).T) == 125
    directions = buckets.directions().reshape(8, num_codes, 1000)
    np.testing.assert_array_equal(directions.sum(axis=0), buckets.weights)
    np.testing.assert_array_equal(directions, directions.astype(np.float32))


def test_weights_and_their_sums_are_exact_in_single_precision() -> None:
    weights = random_weights(np.random.default_rng(0), (2, 500))
    assert np.all((np.abs(weights) >= 0.75) & (np.abs(weights) < 1))
    np.testing.assert_array_equal(weights.sum(0), weights.sum(0).astype(np.float32))


def test_entries_are_found_and_none_that_are_not() -> None:
    rng = np.random.default_rng(0)
    matrix = sparse_matrix(300, 300, rng)
    buckets = hashed(300, 32, 2, rng)
    entries, num_left, is_faint = decoded(
        buckets, buckets.directions() @ matrix, NOTHING, np.full(300, 1e-14)
    )
    assert not is_faint
    found = dense(entries, 300)
    np.testing.assert_allclose(found[found != 0], matrix[found != 0], rtol=1e-9)
    is_resolved = num_left == 0
    assert is_resolved.mean() > 0.5
    np.testing.assert_allclose(found[is_resolved], matrix[is_resolved], atol=1e-9)


def test_a_dense_row_is_seen_from_the_other_side() -> None:
    dim, rng = 300, np.random.default_rng(0)
    matrix = np.eye(dim)
    matrix[0] = matrix[:, 0] = rng.uniform(1, 2, size=dim)
    buckets = hashed(dim, 64, 2, rng)
    entries, num_left, _ = decoded(buckets, buckets.directions() @ matrix, NOTHING, np.full(dim, 1e-14))
    # Rows whose two entries share a bucket show neither, and about one in 64 does.
    is_shared = buckets.buckets == buckets.buckets[0]
    np.testing.assert_array_equal(num_left[1:] > 0, is_shared[1:])
    np.testing.assert_allclose(dense(entries, dim)[0, ~is_shared], matrix[0, ~is_shared], rtol=1e-9)


def test_a_wrong_entry_is_taken_back() -> None:
    dim, rng = 300, np.random.default_rng(0)
    wrong = Entries(np.array([7 * dim + 2]), np.array([1.0]), np.array([1e-28]))
    buckets = hashed(dim, 16, 2, rng)
    entries, _, _ = decoded(buckets, buckets.directions() @ np.eye(dim), wrong, np.full(dim, 1e-14))
    assert 7 * dim + 2 not in entries.significant()


def test_what_is_near_the_noise_is_faint_for_large_digits_alone() -> None:
    dim, rng = 1000, np.random.default_rng(0)
    noise = np.full(dim, 0.02)
    for num_digits, is_faint_for in [(2, True), (20, False)]:
        buckets = hashed(dim, 8, num_digits, rng)
        products = buckets.directions() @ np.eye(dim)
        products += noise * rng.normal(size=products.shape)
        entries, _, is_faint = decoded(buckets, products, NOTHING, noise)
        assert is_faint == is_faint_for
        np.testing.assert_array_equal(entries.places, [] if is_faint_for else np.arange(dim) * (dim + 1))
