"""k̂ against samples whose tail is known."""

import numpy as np
import pytest

from dlrd.fitting.automatic.judge.psis import divergence, tail_shape

NUM = 40_000
NUM_TAIL = int(3 * np.sqrt(NUM))


def pareto_log_ratios(shape: float, seed: int, num: int = NUM) -> np.ndarray:
    """Logarithms of generalised Pareto numbers; beyond any cutoff these are Pareto of the same shape."""
    uniform = np.random.default_rng(seed).uniform(size=num)
    return np.log(np.expm1(-shape * np.log(uniform)) / shape)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", [0.3, 0.7, 1.2])
def test_shape_of_generalised_pareto_samples(shape: float, seed: int) -> None:
    shrunk = (NUM_TAIL * shape + 10 * 0.5) / (NUM_TAIL + 10)
    error = (1 + shape) / np.sqrt(NUM_TAIL)
    assert abs(tail_shape(pareto_log_ratios(shape, seed))[0] - shrunk) < 3.5 * error


def test_standard_error_is_the_asymptotic_one() -> None:
    found, said = np.transpose([tail_shape(pareto_log_ratios(0.7, seed)) for seed in range(50)])
    error = (1 + 0.7) / np.sqrt(NUM_TAIL)
    assert np.allclose(said, error, rtol=0.1)  # it is that of the shape found, which scatters by 4 %
    # A standard deviation of 50 numbers is known to 10 %.
    assert 0.7 * error < np.std(found, ddof=1) < 1.3 * error
    assert abs(np.mean(found) - 0.7) < 4 * error / np.sqrt(50) + 10 * 0.2 / (NUM_TAIL + 10)


def test_a_bounded_tail_has_a_negative_shape() -> None:
    """Uniform numbers are generalised Pareto of shape −1."""
    log_ratios = np.log(np.random.default_rng(0).uniform(size=NUM))
    assert tail_shape(log_ratios)[0] < -0.5


def test_a_constant_does_not_matter() -> None:
    log_ratios = pareto_log_ratios(0.7, 0)
    for constant in (-1e4, 700.0, 1e4):
        assert abs(tail_shape(log_ratios + constant)[0] - tail_shape(log_ratios)[0]) < 1e-6


@pytest.mark.parametrize("constant", [0.0, -1234.5])
def test_identical_ratios_have_no_tail(constant: float) -> None:
    rounding = 1e-5 * np.random.default_rng(0).uniform(size=1000)
    assert tail_shape(np.full(1000, constant)) == (0, 0)
    assert tail_shape(constant + rounding) == (0, 0)


def test_draws_outside_the_support_are_ignored() -> None:
    log_ratios = pareto_log_ratios(0.7, 0)
    holes = np.full(500, -np.inf)
    assert tail_shape(np.concatenate([holes, log_ratios, [np.nan]])) == tail_shape(log_ratios)


def test_too_few_draws() -> None:
    assert np.isnan(tail_shape(np.arange(24.0))).all()
    assert not np.isnan(tail_shape(np.log1p(np.arange(25.0)))).any()
    assert np.isnan(tail_shape(np.full(100, -np.inf))).all()
    assert np.isnan(tail_shape(np.zeros(0))).all()


def test_ratios_beyond_all_bounds_are_far_from_the_posterior() -> None:
    assert tail_shape(np.linspace(0, 1e6, 1000))[0] > 0.7
    half_equal = np.concatenate([np.linspace(-1, 0, 900), np.zeros(100)])
    assert tail_shape(half_equal) == (np.inf, np.inf)


def test_divergence_of_two_normals() -> None:
    """Of N(0, 1) from N(1, 1): log p − log q = z − ½, and the divergence is ½."""
    z = np.random.default_rng(0).standard_normal(100_000)
    error = np.sqrt((np.e - 1) / len(z)) + 1 / np.sqrt(len(z))  # of the mean of p/q, and of its logarithm
    assert abs(divergence(z - 0.5) - 0.5) < 5 * error
    np.testing.assert_allclose(divergence(z + 1000.0), divergence(z))


def test_divergence_leaves_out_what_is_not_finite() -> None:
    assert divergence(np.array([0.0, np.nan, 0.0, -np.inf])) == 0
    assert np.isnan(divergence(np.array([np.nan])))
