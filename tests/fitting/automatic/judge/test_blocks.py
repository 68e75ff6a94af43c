"""Numbers from blocks: against closed forms."""

import numpy as np

from dlrd.fitting.automatic.judge.blocks import flat_of, gain_of, gap_of, noise_of

RNG = np.random.default_rng(0)
BLOCKS = np.array([[1.0, 2.0], [3.0, 0.0], [-1.0, 4.0], [1.0, 1.0]])


def test_a_gain_is_a_mean_with_its_standard_error() -> None:
    gain, error = gain_of(BLOCKS[:, 0])
    assert (gain, error) == (1.0, np.std(BLOCKS[:, 0], ddof=1) / 2)
    assert gain_of(np.array([1.0, np.nan])) == (np.inf, np.inf)


def test_a_gap_and_its_noise_are_half_the_square_of_the_mean() -> None:
    products = 0.5 * BLOCKS @ BLOCKS.T
    gap, _ = gap_of(products)
    noise, _ = noise_of(products, gap)
    np.testing.assert_allclose(gap + noise, 0.5 * np.sum(np.mean(BLOCKS, axis=0) ** 2))
    np.testing.assert_allclose(noise, 0.5 * np.sum(np.var(BLOCKS, axis=0, ddof=1) / 4))


def test_what_is_left_on_a_flat_way_is_the_same_gap_but_bounded_as_a_number() -> None:
    gap, bound, noise = flat_of(BLOCKS, 2.0)
    expected, _ = gap_of(0.5 * BLOCKS @ BLOCKS.T)
    np.testing.assert_allclose(gap, expected)
    errors = np.std(BLOCKS, axis=0, ddof=1) / 2
    np.testing.assert_allclose(noise, 0.5 * np.sum(errors**2))
    np.testing.assert_allclose(bound, 0.5 * np.sum((np.abs(np.mean(BLOCKS, axis=0)) + 2 * errors) ** 2))
    assert flat_of(np.zeros((8, 0)), 2.0) == (0.0, 0.0, 0.0)


def test_the_bound_holds_also_where_noise_hides_what_is_left() -> None:
    """Two standard errors of eight blocks: nine times of ten, Student's distribution with seven degrees."""
    truth = np.array([1.0])
    along = truth + 8**0.5 * RNG.normal(size=(400, 8, 1))  # as large as the noise of the mean
    holds = [flat_of(each, 2.0)[1] >= 0.5 for each in along]
    assert np.mean(holds) > 0.9
