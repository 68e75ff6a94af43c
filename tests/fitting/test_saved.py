"""Fits in files."""

import pathlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flowjax.distributions
import flowjax.flows
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families import Family
from dlrd.fitting import archive
from dlrd.fitting.verdict import Verdict
from dlrd.models import Model

Ended = Callable[..., dlrd.Fit]


def normal() -> dlrd.FullRankNormal:
    return dlrd.FullRankNormal([1.0, -200.0], [[2.0, 0.0], [30.0, 40.0]])


def flow(key: int) -> Family:
    base = flowjax.distributions.Normal(jnp.zeros(2), 1.0)
    return flowjax.flows.masked_autoregressive_flow(
        jax.random.key(key), base_dist=base, nn_width=4, nn_depth=1, flow_layers=1
    )


@pytest.mark.parametrize(
    "family",
    [
        dlrd.MeanFieldNormal([1.0, 2.0], [0.5, -0.5]),
        normal(),
        dlrd.LowRankNormal([1.0, 2.0], [0.5, -0.5], [[1.0], [2.0]]),
        dlrd.MeanFieldNormal(jnp.ones(2, jnp.bfloat16), jnp.zeros(2, jnp.bfloat16)),
    ],
    ids=["mean-field", "full-rank", "low-rank", "bfloat16"],
)
@pytest.mark.parametrize("is_automatic", [False, True])
def test_load_gives_the_saved_fit(
    ended: Ended, verdict: Verdict, family: Family, is_automatic: bool, tmp_path: pathlib.Path
) -> None:
    monitored = {"step": np.array([1, 2]), "mean": np.ones((2, 3))}
    fit = ended(family, verdict=verdict if is_automatic else None, monitored=monitored)
    fit.save(tmp_path / "fit.dlrd")
    loaded = dlrd.load(tmp_path / "fit.dlrd")
    assert type(loaded.family) is type(fit.family)
    for left, right in zip(jax.tree.leaves(loaded.family), jax.tree.leaves(fit.family), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    for name, column in vars(fit.history).items():
        np.testing.assert_array_equal(getattr(loaded.history, name), column)
    assert loaded.monitored is not None
    for name, values in monitored.items():
        np.testing.assert_array_equal(loaded.monitored[name], values)
    for name in ("outcome", "num_steps", "num_draws", "seconds", "names"):
        assert getattr(loaded, name) == getattr(fit, name)
    assert repr(loaded.verdict) == repr(fit.verdict)  # nan is not equal to itself
    assert repr(loaded) == repr(fit)


def test_foreign_family_needs_its_structure(ended: Ended, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "fit.dlrd"
    ended(flow(0)).save(path)
    loaded = dlrd.load(path, family=flow(1))
    assert eqx.tree_equal(*(eqx.filter(each, eqx.is_array) for each in (loaded.family, flow(0))))
    with pytest.raises(
        ValueError, match="which dlrd does not know; pass one of the same structure as family"
    ):
        dlrd.load(path)
    with pytest.raises(ValueError, match="family must have the structure of the Transformed saved in"):
        dlrd.load(path, family=dlrd.MeanFieldNormal.standard(2))


def test_archive_that_is_no_fit_is_refused(tmp_path: pathlib.Path) -> None:
    archive.write(tmp_path / "fit.dlrd", {}, {"format": 1})
    with pytest.raises(ValueError, match=r"fit\.dlrd is not a saved fit of format 4, got 1"):
        dlrd.load(tmp_path / "fit.dlrd")


def test_variables_are_summarised_without_the_model(
    counties_fit: dlrd.Fit, counties: Model, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "fit.dlrd"
    counties_fit.save(path)
    loaded = dlrd.load(path)
    assert str(loaded.summary()) == str(counties_fit.summary())
    assert str(loaded.summary("level")) == str(counties_fit.summary("level"))
    loaded.save(path)  # and what was read can be written
    assert str(dlrd.load(path).summary()) == str(counties_fit.summary())
    whole = dlrd.load(path, model=counties)
    np.testing.assert_array_equal(whole.sample(0, 3)["level"], counties_fit.sample(0, 3)["level"])


def test_without_a_model_draws_are_the_coordinates(counties_fit: dlrd.Fit, tmp_path: pathlib.Path) -> None:
    counties_fit.save(tmp_path / "fit.dlrd")
    draws = dlrd.load(tmp_path / "fit.dlrd").sample(0, 3)
    np.testing.assert_array_equal(draws, counties_fit.unconstrained_draws(0, 3))


def test_sparse_normal_is_read_with_its_pattern(ended: Ended, tmp_path: pathlib.Path) -> None:
    precision = np.diag(np.full(6, 3.0)) + np.diag(np.ones(5), 1) + np.diag(np.ones(5), -1)
    family = dlrd.SparseNormal.from_precision(np.arange(6.0), precision)
    ended(family, names=tuple("abcdef")).save(tmp_path / "fit.dlrd")
    loaded: Any = dlrd.load(tmp_path / "fit.dlrd").family
    assert eqx.tree_equal(loaded, family)
    assert np.array_equal(loaded.precision.toarray(), family.precision.toarray())
