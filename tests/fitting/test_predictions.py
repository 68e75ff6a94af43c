"""New data from a fit, and the likelihood of the old."""

import pathlib
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import dlrd
from dlrd.models import FunctionModel

Ended = Callable[..., dlrd.Fit]


def test_predictions_are_made_from_the_draws(counties_fit: dlrd.Fit) -> None:
    made = counties_fit.predict(2, 1000)["y"]
    assert made.shape == (1000, 2, 3)
    np.testing.assert_array_equal(made, counties_fit.predict(2, 1000)["y"])
    draws = counties_fit.sample(2, 1000)
    noise = (made - draws["level"][:, :, None]) / draws["sigma"][:, None, None]
    # Standard normal and independent of the draws: five standard errors of 6000 numbers and 1000 pairs.
    np.testing.assert_allclose(np.mean(noise), 0, atol=5 / np.sqrt(6000))
    np.testing.assert_allclose(np.std(noise), 1, atol=5 / np.sqrt(12_000))
    correlation = np.corrcoef(noise[:, 0, 0], draws["level"][:, 0])[0, 1]
    assert abs(correlation) < 5 / np.sqrt(1000)


def test_log_likelihood_is_that_of_the_draws(counties_fit: dlrd.Fit) -> None:
    given = counties_fit.log_likelihood(2, 4)["y"]
    draws = counties_fit.sample(2, 4)
    data = np.array([[1.0, 1.5, 0.5], [2.0, 2.5, 1.5]])
    expected = scipy.stats.norm.logpdf(data, draws["level"][:, :, None], draws["sigma"][:, None, None])
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "can"),
    [("predict", "a model that makes data"), ("log_likelihood", "a model that knows its data")],
)
def test_models_that_cannot_say_so(ended: Ended, method: str, can: str, tmp_path: pathlib.Path) -> None:
    fit = ended(dlrd.MeanFieldNormal.standard(2), model=FunctionModel(jnp.sum, (2,)))
    with pytest.raises(TypeError, match=rf"^fit\.{method} needs {can}, .*; got a FunctionModel$"):
        getattr(fit, method)(0, 3)
    fit.save(tmp_path / "fit.dlrd")
    with pytest.raises(ValueError, match=rf"^fit\.{method} needs the model, which files do not keep"):
        getattr(dlrd.load(tmp_path / "fit.dlrd"), method)(0, 3)
