"""`dlrd.pymc.fit`: what PyMC and ArviZ make of its result."""

from typing import Any

import arviz as az
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pymc as pm
import pytensor
import pytest

import dlrd
import dlrd.pymc

matplotlib.use("Agg")
X = np.linspace(-1, 1, 20)
Y = 1.0 + 2.0 * X + 0.3 * np.random.default_rng(0).normal(size=20)


def line() -> pm.Model:
    with pm.Model(coords={"term": ["offset", "slope"], "row": range(20)}) as model:
        x = pm.Data("x", X, dims="row")
        terms = pm.Normal("terms", 0, 5, dims="term")
        mean = pm.Deterministic("mean", terms[0] + terms[1] * x, dims="row")
        pm.Normal("y", mean, 0.3, observed=Y, dims="row")
    return model


@pytest.fixture(scope="module")
def idata() -> Any:
    return dlrd.pymc.fit(line(), draws=500, progressbar=False)


def exact() -> tuple[np.ndarray, np.ndarray]:
    """The posterior of the terms is normal."""
    design = np.column_stack([np.ones(20), X])
    covariance = np.linalg.inv(design.T @ design / 0.3**2 + np.eye(2) / 25)
    return covariance @ design.T @ Y / 0.3**2, covariance


def test_the_posterior_is_right_and_labelled(idata: Any) -> None:
    posterior = idata["posterior"]
    mean, covariance = exact()
    assert posterior["terms"].dims == ("chain", "draw", "term")
    assert posterior["terms"]["term"].values.tolist() == ["offset", "slope"]
    assert posterior["mean"].shape == (1, 500, 20)
    # Five standard errors of the mean of 500 draws, and the gap of 0.01 nats at the most.
    error = np.abs(posterior["terms"].mean(("chain", "draw")).values - mean) / np.sqrt(np.diag(covariance))
    assert (error < 5 / np.sqrt(500) + np.sqrt(2 * 0.01)).all()
    assert idata["fit"].attrs["outcome"] == "CERTIFIED"
    assert idata["fit"]["pareto_k"] < 0.5
    assert idata["posterior"]["terms"].dtype == np.float64


def test_pymc_and_arviz_take_it(idata: Any) -> None:
    with line() as model, pytensor.config.change_flags(mode="FAST_COMPILE"):
        predicted = pm.sample_posterior_predictive(idata, random_seed=0, progressbar=False)
        assert predicted["posterior_predictive"]["y"].shape == (1, 500, 20)
        pm.set_data({"x": [10.0]}, coords={"row": [0]})
        far = pm.sample_posterior_predictive(
            idata, model=model, var_names=["mean"], predictions=True, progressbar=False, random_seed=0
        )
    mean, _ = exact()
    np.testing.assert_allclose(far["predictions"]["mean"].mean(), mean @ [1, 10], rtol=0.05)
    assert list(az.summary(idata, var_names=["terms"]).index) == ["terms[offset]", "terms[slope]"]
    assert np.isfinite(az.loo(idata).elpd_loo)
    assert len(az.plot_forest(idata, var_names=["terms"])) == 1
    matplotlib.pyplot.close("all")


def test_settings_of_jax_do_not_matter_and_stay() -> None:
    family = dlrd.MeanFieldNormal.standard(2)
    assert family.mean.dtype == jnp.float32
    found = [
        dlrd.pymc.fit(line(), each, draws=10, progressbar=False)["posterior"]["terms"].values
        for each in (family, dlrd.MeanFieldNormal)
    ]
    with jax.enable_x64(True):
        found.append(
            dlrd.pymc.fit(line(), dlrd.MeanFieldNormal, draws=10, progressbar=False)["posterior"][
                "terms"
            ].values
        )
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    assert jnp.zeros(1).dtype == jnp.float32


def test_what_may_be_wrong_is_said() -> None:
    with pm.Model():
        pm.StudentT("x", nu=1.5)
        with pytest.warns(UserWarning, match="heavier tails"):
            dlrd.pymc.fit(max_gradients=3000, draws=10, progressbar=False)
