"""A fit for ArviZ."""

import dataclasses
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import arviz as az
import flowjax.distributions
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.stats
import xarray

import dlrd
from dlrd.fitting.arviz_export import datasets
from dlrd.fitting.automatic.judge.psis import tail_shape
from dlrd.fitting.verdict import Verdict
from dlrd.models import FunctionModel, Model

Ended = Callable[..., dlrd.Fit]
GROUPS = [
    "constant_data",
    "fit",
    "log_likelihood",
    "observed_data",
    "posterior",
    "posterior_predictive",
    "unconstrained_posterior",
]


@pytest.fixture(scope="module")
def exported(counties_fit: dlrd.Fit) -> Any:
    return counties_fit.to_arviz(key=2, num=400)


def test_draws_are_those_of_the_key(exported: Any, counties_fit: dlrd.Fit) -> None:
    assert sorted(exported.groups()) == GROUPS
    for group, given in [
        ("posterior", counties_fit.sample(2, 400)),
        ("posterior_predictive", counties_fit.predict(2, 400)),
        ("log_likelihood", counties_fit.log_likelihood(2, 400)),
        ("unconstrained_posterior", {"z": counties_fit.unconstrained_draws(2, 400)}),
    ]:
        assert set(exported[group].data_vars) == set(given)
        for name, values in given.items():
            np.testing.assert_array_equal(exported[group][name][0], values)


def test_axes_and_labels_are_the_models(exported: Any) -> None:
    assert exported.posterior.level.dims == ("chain", "draw", "county")
    assert exported.posterior.county.values.tolist() == ["AITKIN", "ANOKA"]
    assert exported.log_likelihood.y.dims == ("chain", "draw", "county", "house")
    assert exported.observed_data.y.dims == ("county", "house")
    assert exported.observed_data.y.sel(county="ANOKA").values.tolist() == [2.0, 2.5, 1.5]
    assert exported.constant_data.floor.dims == ("house",)
    coordinates = exported.unconstrained_posterior.coordinate.values.tolist()
    assert coordinates == ["log sigma", "level[0]", "level[1]"]


def test_group_of_the_fit(exported: Any, counties_fit: dlrd.Fit, counties: Model) -> None:
    group = exported["fit"]
    family: Any = counties_fit.family
    np.testing.assert_array_equal(group.location, family.mean)
    np.testing.assert_array_equal(group.scale, family.std)
    np.testing.assert_array_equal(group.covariance, family.covariance)
    assert group.elbo.sel(step=2) == 2.0
    assert group.learning_rate.values.tolist() == [0.1, 0.1]
    assert np.isnan(group.snr).all()
    assert group.decay_step.values.tolist() == [2]
    assert float(group.final_elbo) == counties_fit.elbo
    draws = exported.unconstrained_posterior.z[0].values
    np.testing.assert_allclose(group.log_p[0], counties.values(jnp.asarray(draws), None), rtol=1e-5)
    expected = scipy.stats.multivariate_normal(family.mean, family.covariance).logpdf(draws)
    np.testing.assert_allclose(group.log_q[0], expected, rtol=1e-4, atol=1e-4)
    ratios = group.log_p[0].values.astype(float) - group.log_q[0].values
    assert (float(group.pareto_k), float(group.pareto_k_error)) == tail_shape(ratios)
    assert (group.family, group.outcome) == ("FullRankNormal", "BUDGET")


def test_numbers_of_the_verdict(counties_fit: dlrd.Fit, verdict: Verdict) -> None:
    group = dataclasses.replace(counties_fit, verdict=verdict).to_arviz(num=2)["fit"]
    names = ["pareto_k", "pareto_k_error", "tolerance", "num_gradients", "final_elbo", "final_elbo_error"]
    assert [group[name].item() for name in names] == [0.3, 0.1, 0.01, 45, -2.5, 0.125]
    assert np.isnan(group.gap)
    assert group.warnings == "beware."


@pytest.fixture
def figures() -> Any:
    yield
    plt.close("all")


@pytest.mark.usefixtures("figures")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_arviz_works_with_it(exported: Any, counties_fit: dlrd.Fit) -> None:
    table: Any = az.summary(exported, round_to="none")
    assert table.index.tolist() == counties_fit.summary().names
    np.testing.assert_allclose(table["mean"], [float(each) for each in counties_fit_means(exported)])
    loo: Any = az.loo(exported)
    assert loo.n_data_points == 6
    assert np.isfinite(loo.elpd_loo)
    assert len(az.plot_forest(exported)) == 1
    assert az.plot_ppc(exported) is not None


def counties_fit_means(exported: Any) -> list[Any]:
    return [exported.posterior.sigma.mean(), *exported.posterior.level.mean(("chain", "draw")).values]


def test_it_can_be_written_and_read(exported: Any, tmp_path: pathlib.Path) -> None:
    exported.to_netcdf(str(tmp_path / "fit.nc"))
    read = az.from_netcdf(str(tmp_path / "fit.nc"))
    xarray.testing.assert_identical(read["fit"], exported["fit"])
    xarray.testing.assert_identical(read["posterior"], exported["posterior"])


def test_a_tree_since_version_1(counties_fit: dlrd.Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(az, "InferenceData")
    tree = counties_fit.to_arviz(num=5)
    assert isinstance(tree, xarray.DataTree)
    assert sorted(tree.children) == GROUPS
    assert tree["posterior"]["level"].dims == ("chain", "draw", "county")


@pytest.mark.parametrize(
    ("names", "shapes"),
    [(("slope", "offset"), {"slope": (1, 20), "offset": (1, 20)}), (("z[0]", "z[1]"), {"z": (1, 20, 2)})],
)
def test_coordinates_by_their_names(ended: Ended, names: tuple[str, ...], shapes: Any) -> None:
    """Of a plain function, whose data are not known."""
    model = FunctionModel(lambda z: -z @ z, (2,), names)
    exported = ended(dlrd.MeanFieldNormal.standard(2), names=names, model=model).to_arviz(num=20)
    assert {name: values.shape for name, values in exported.posterior.items()} == shapes
    assert sorted(exported.groups()) == ["fit", "posterior", "unconstrained_posterior"]
    assert "covariance" not in exported["fit"]


def test_a_fit_without_its_model(ended: Ended) -> None:
    """As files have it."""
    group = ended(dlrd.MeanFieldNormal.standard(2)).to_arviz(num=20)["fit"]
    assert {"location", "elbo"} <= set(group)
    assert {"log_p", "log_q", "pareto_k"}.isdisjoint(group)


@pytest.mark.parametrize(
    "family",
    [
        dlrd.MeanFieldNormal([1.0, 2.0], [0.5, -0.5]),
        dlrd.LowRankNormal([1.0, 2.0], [0.5, -0.5], [[1.0], [2.0]]),
        dlrd.SparseNormal.from_precision([1.0, 2.0], np.array([[2.0, 1.0], [1.0, 3.0]])),
        flowjax.distributions.Normal(jnp.zeros(2), 2.0),
    ],
    ids=lambda family: type(family).__name__,
)
def test_densities_belong_to_the_draws(ended: Ended, family: Any) -> None:
    """Also where both come from the same noise."""
    fit = ended(family, model=FunctionModel(lambda z: -z @ z, (2,)))
    groups = datasets(fit, jax.random.key(1), 250)  # more than a batch
    draws = jnp.asarray(groups["unconstrained_posterior"].z[0].values)
    np.testing.assert_allclose(groups["fit"].log_p[0], -jnp.sum(draws**2, axis=1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(groups["fit"].log_q[0], family.log_prob(draws), rtol=1e-5, atol=1e-5)


def test_missing_arviz_is_named(ended: Ended, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arviz", None)  # as Python marks a module that cannot be imported
    with pytest.raises(ImportError) as error:
        ended(dlrd.MeanFieldNormal.standard(2)).to_arviz()
    assert str(error.value) == "fit.to_arviz needs ArviZ, which is not installed: pip install 'dlrd[arviz]'"
