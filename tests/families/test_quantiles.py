"""The quantiles of normals."""

import jax.numpy as jnp
import numpy as np
import scipy.stats

from dlrd.families._quantiles import normal_quantiles

PROBABILITIES = (0.001, 0.05, 0.5, 0.95)


def test_they_are_those_of_scipy():
    mean, std = np.array([1.0, -200.0]), np.array([2.0, 1e-3])
    expected = [scipy.stats.norm(mean, std).ppf(each) for each in PROBABILITIES]
    np.testing.assert_allclose(normal_quantiles(mean, std, PROBABILITIES), expected, rtol=1e-14)


def test_they_are_in_double_precision_on_the_host():
    """A shift by 1 of the third coordinate is lost in single precision, and kept here."""
    mean, std = jnp.array([0.0, 1.0, 2.0**24]), jnp.ones(3, "float32")
    found = normal_quantiles(mean, std, [0.5, scipy.stats.norm.cdf(1.0)])
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, [mean, np.asarray(mean, float) + 1], rtol=1e-15, atol=1e-15)
