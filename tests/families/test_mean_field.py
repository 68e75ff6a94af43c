"""Independent normals: their factors and their errors."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dlrd import MeanFieldNormal

pytestmark = pytest.mark.usefixtures("x64")


def test_log_prob_factors_are_the_coordinates_densities():
    loc, log_scale = np.array([0.5, -2.0, 3.0]), np.array([-1.0, 0.3, 2.0])
    points = np.random.default_rng(0).normal(scale=3, size=(20, 3))
    q = MeanFieldNormal(loc, log_scale)
    factors = q.log_prob_factors(points)
    np.testing.assert_allclose(
        factors, stats.norm(loc, np.exp(log_scale)).logpdf(points), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(factors.sum(axis=-1), q.log_prob(points), rtol=1e-14)


def test_noise_is_scaled_and_shifted():
    q = MeanFieldNormal([1.0, -2.0], np.log([0.5, 4.0]))
    # Powers of two, and sums of a few digits: only the exponential of the logarithm is rounded.
    np.testing.assert_allclose(q.from_noise(jnp.array([[2.0, 0.0], [0.0, -1.0]])), [[2, -2], [1, -6]], 1e-15)


def test_whole_numbers_become_floats():
    q = MeanFieldNormal([1, 2], [0, 0])
    assert q.loc.dtype == q.log_scale.dtype == jnp.float64


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: MeanFieldNormal(0.0, 0.0), ValueError, r"loc must be a vector.*got shape \(\)"),
        (lambda: MeanFieldNormal([], []), ValueError, r"loc must be a vector.*got shape \(0,\)"),
        (lambda: MeanFieldNormal([[0.0]], [[0.0]]), ValueError, r"loc must be a vector.*got shape \(1, 1\)"),
        (
            lambda: MeanFieldNormal([0.0, 1.0], [0.0]),
            ValueError,
            r"log_scale must have shape \(2,\).*got \(1,\)",
        ),
        (lambda: MeanFieldNormal([1j], [0.0]), TypeError, "loc must be real, got.*complex128"),
        (lambda: MeanFieldNormal([0.0], [1j]), TypeError, "log_scale must be real, got.*complex128"),
        (lambda: MeanFieldNormal.standard(0), ValueError, "dim must be.*at least 1, got int 0"),
        (lambda: MeanFieldNormal.standard(True), ValueError, "dim must be.*at least 1, got bool True"),
    ],
)
def test_errors_name_the_argument_and_the_value(make, error, message):
    with pytest.raises(error, match=message):
        make()
