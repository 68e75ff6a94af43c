"""Misfits, against the normal density of SciPy and differences."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dlrd.simulation.misfit import Misfit, Own

DATA = np.array([1.0, 2.0, -1.0])
ROOT = np.array([[1.0, 0, 0], [0.5, 2.0, 0], [0.3, -0.2, 0.7]])
OUTPUTS = np.array([0.5, 2.5, 0.5])


@pytest.mark.parametrize(
    ("noise", "covariance"),
    [(0.5, 0.25 * np.eye(3)), ([0.5, 1, 2], np.diag([0.25, 1, 4])), (ROOT @ ROOT.T, ROOT @ ROOT.T)],
)
def test_is_the_normal_density(noise: np.ndarray, covariance: np.ndarray) -> None:
    misfit = Misfit(DATA, noise)
    expected = multivariate_normal(DATA, covariance).logpdf(OUTPUTS)
    np.testing.assert_allclose(-misfit.value(OUTPUTS) - misfit.log_volume, expected, rtol=1e-12)
    step = 1e-4 * np.eye(3)
    slopes = [(misfit.value(OUTPUTS + each) - misfit.value(OUTPUTS - each)) / 2e-4 for each in step]
    np.testing.assert_allclose(misfit.sensitivity(OUTPUTS), slopes, rtol=1e-8)  # exact but for rounding
    units = misfit.noise_of(np.eye(3))
    np.testing.assert_allclose(units.T @ units, covariance, atol=1e-12)


def test_data_may_have_axes() -> None:
    square = Misfit(DATA.reshape(3, 1), 0.5)
    assert square.value(OUTPUTS.reshape(3, 1)) == Misfit(DATA, 0.5).value(OUTPUTS)
    assert square.sensitivity(OUTPUTS.reshape(3, 1)).shape == (3, 1)


def test_outputs_that_are_the_log_density() -> None:
    assert Own().value(np.array(3.0)) == -3
    assert Own().sensitivity(np.array(3.0)) == -1
