"""What a fit gives back: draws, a summary, a file, an ArviZ object."""

import pathlib
import zipfile

import flowjax.distributions
import flowjax.flows
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats

import dlrd
from dlrd.families import Family
from dlrd.fitting.summary import summarize_draws, summarize_normal

OPTIMIZER = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-1))


def fitted(family: Family, steps: int = 300) -> dlrd.Fit:
    return dlrd.fit(
        lambda z: -0.5 * jnp.sum((z - 2.0) ** 2),
        family,
        key=0,
        optimizer=OPTIMIZER,
        steps=steps,
        progress=False,
    )


def flow(key: int) -> Family:
    base = flowjax.distributions.Normal(jnp.zeros(2), 1.0)
    return flowjax.flows.masked_autoregressive_flow(
        jax.random.key(key), base_dist=base, nn_width=4, nn_depth=1, flow_layers=1
    )


@pytest.mark.parametrize(
    "family",
    [
        dlrd.MeanFieldNormal.standard(3),
        dlrd.FullRankNormal.standard(3),
        dlrd.MeanFieldNormal(jnp.zeros(3, jnp.bfloat16), jnp.zeros(3, jnp.bfloat16)),
    ],
    ids=["mean-field", "full-rank", "bfloat16"],
)
def test_load_gives_the_saved_fit(family: Family, tmp_path: pathlib.Path) -> None:
    fit = fitted(family)
    fit.save(tmp_path / "fit.dlrd")
    loaded = dlrd.load(tmp_path / "fit.dlrd")
    assert type(loaded.family) is type(fit.family)
    assert loaded.family.mean.dtype == fit.family.mean.dtype
    np.testing.assert_array_equal(loaded.sample(1, 5), fit.sample(1, 5))
    for name, column in vars(fit.history).items():
        np.testing.assert_array_equal(getattr(loaded.history, name), column)
    assert (loaded.outcome, loaded.num_steps, loaded.seconds) == (fit.outcome, fit.num_steps, fit.seconds)
    assert repr(loaded) == repr(fit)


@pytest.mark.slow
def test_foreign_family_needs_its_structure(tmp_path: pathlib.Path) -> None:
    fit = fitted(flow(0), steps=20)
    path = tmp_path / "fit.dlrd"
    fit.save(path)
    loaded = dlrd.load(path, family=flow(1))
    np.testing.assert_array_equal(loaded.sample(1, 5), fit.sample(1, 5))
    with pytest.raises(
        ValueError, match="which dlrd does not know; pass one of the same structure as family"
    ):
        dlrd.load(path)
    with pytest.raises(ValueError, match="family must have the structure of the Transformed saved in"):
        dlrd.load(path, family=dlrd.MeanFieldNormal.standard(2))


def test_file_holds_no_pickle(tmp_path: pathlib.Path) -> None:
    fitted(dlrd.MeanFieldNormal.standard(2), steps=10).save(tmp_path / "fit.dlrd")
    with zipfile.ZipFile(tmp_path / "fit.dlrd") as archive:
        assert archive.testzip() is None
        for name in archive.namelist():
            with archive.open(name) as file:
                np.lib.format.read_array(file, allow_pickle=False)


def test_other_files_are_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "fit.dlrd"
    with pytest.raises(FileNotFoundError):
        dlrd.load(path)
    path.write_text("something else")
    with pytest.raises(ValueError, match="is not a file that dlrd wrote"):
        dlrd.load(path)


def test_summary_agrees_with_the_family() -> None:
    family = dlrd.FullRankNormal(jnp.asarray([1.0, -200.0]), jnp.asarray([[2.0, 0.0], [30.0, 40.0]]))
    fit = fitted(dlrd.FullRankNormal.standard(2), steps=1)
    summary = dlrd.Fit(family, fit.history, fit.outcome, 1, 8, 0.1).summary()
    np.testing.assert_allclose(summary.mean, [1.0, -200.0])
    np.testing.assert_allclose(summary.std, [2.0, 50.0], rtol=1e-6)
    np.testing.assert_allclose(
        summary.quantiles[:, 0], scipy.stats.norm(1, 2).ppf([0.05, 0.5, 0.95]), rtol=1e-6
    )
    lines = str(summary).splitlines()
    assert lines[0].split() == ["mean", "sd", "5%", "50%", "95%"]
    assert [line.split()[0] for line in lines[1:3]] == ["z[0]", "z[1]"]
    assert lines[3] == "All steps of the budget were done."


def test_arviz() -> None:
    posterior = fitted(dlrd.MeanFieldNormal.standard(3)).to_arviz(num=200)
    assert posterior["posterior"]["z"].shape == (1, 200, 3)
    np.testing.assert_allclose(posterior["posterior"]["z"].mean(), 2.0, atol=0.5)


def test_summary_of_draws_agrees_with_the_summary_of_the_normal() -> None:
    family = dlrd.MeanFieldNormal([1e-4, 3.0], np.log([1e-5, 2.0]))
    draws = summarize_draws(np.asarray(family.sample(jax.random.key(0), (10_000,))), "")
    exact = summarize_normal(np.asarray(family.mean), np.asarray(family.std), "")
    # Five standard errors of the mean, the standard deviation and an outer quantile of 10,000 draws.
    error = 5 * np.asarray(family.std) / np.sqrt(10_000)
    assert np.all(np.abs(draws.mean - exact.mean) < error)
    assert np.all(np.abs(draws.std - exact.std) < error)
    assert np.all(np.abs(draws.quantiles - exact.quantiles) < 2.2 * error)
    assert draws.names == exact.names == ["z[0]", "z[1]"]
    assert str(exact).splitlines()[1].split() == ["z[0]", "1.000e-04", "1.000e-05", *str(exact).split()[8:11]]


def test_elbo_error_is_that_of_the_mean() -> None:
    """Over many keys, the ELBO of a fit that does not move scatters as its error says."""
    fits = dlrd.fit_many(
        lambda z: -jnp.sum(z**2),
        dlrd.MeanFieldNormal.standard(3),
        keys=range(200),
        optimizer=optax.sgd(1e-9),
        steps=100,
        progress=False,
    )
    scatter = np.std([fit.elbo for fit in fits])
    # The standard deviation of 200 values is known to a relative 1/√400; five times that.
    np.testing.assert_allclose(np.mean([fit.elbo_error for fit in fits]), scatter, rtol=0.25)
