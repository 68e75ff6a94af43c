"""What a fit gives back: draws, a summary, a file, an ArviZ object."""

import pathlib
from dataclasses import replace
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
from dlrd.fitting import History, archive
from dlrd.fitting.verdict import Rung, Verdict
from dlrd.models import FunctionModel

VERDICT = Verdict(
    tolerance=1e-2,
    gap=float("nan"),
    gap_error=float("nan"),
    elbo=-2.5,
    elbo_error=0.125,
    tail_shape=0.3,
    tail_shape_error=0.1,
    is_certain=False,
    gradients={"start": 5, "steps": 40},
    warnings=["beware."],
    rungs=[Rung("MeanFieldNormal", -3.0, 0.5, 20, 0.5), Rung("FullRankNormal", -2.5, 0.3, 25, 0.5)],
)


def ended(family: Family, elbo: Any = (1.0, 2.0), elbo_error: Any = (0.5, 0.5), **changed: Any) -> dlrd.Fit:
    """A fit with this course, as if it had been run."""
    num = len(elbo)
    history = History(
        step=np.arange(1, num + 1),
        elbo=np.asarray(elbo, float),
        elbo_error=np.asarray(elbo_error, float),
        learning_rate=np.full(num, 0.1),
        snr=np.full(num, np.nan),
        decays=np.array([2]),
    )
    return dlrd.Fit(
        **(
            {
                "family": family,
                "history": history,
                "outcome": dlrd.Outcome.BUDGET,
                "num_steps": num,
                "num_draws": 8,
                "seconds": 0.25,
                "names": tuple(f"z[{i}]" for i in range(2)),
            }
            | changed
        )
    )


def normal() -> dlrd.FullRankNormal:
    return dlrd.FullRankNormal([1.0, -200.0], [[2.0, 0.0], [30.0, 40.0]])


def flow(key: int) -> Family:
    base = flowjax.distributions.Normal(jnp.zeros(2), 1.0)
    return flowjax.flows.masked_autoregressive_flow(
        jax.random.key(key), base_dist=base, nn_width=4, nn_depth=1, flow_layers=1
    )


class InFeet:
    """The variables of a model, in other units."""

    def constrained(self, draws: jax.Array) -> dict[str, jax.Array]:
        return {"height": draws[:, 0] / 0.3048, "slopes": draws[:, 1:]}


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
@pytest.mark.parametrize("verdict", [None, VERDICT], ids=["explicit", "automatic"])
def test_load_gives_the_saved_fit(family: Family, verdict: Verdict | None, tmp_path: pathlib.Path) -> None:
    monitored = {"step": np.array([1, 2]), "mean": np.ones((2, 3))}
    fit = ended(family, verdict=verdict, monitored=monitored)
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


def test_foreign_family_needs_its_structure(tmp_path: pathlib.Path) -> None:
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
    with pytest.raises(ValueError, match=r"fit\.dlrd is not a saved fit of format 3, got 1"):
        dlrd.load(tmp_path / "fit.dlrd")


def test_loaded_fit_gets_its_variables_from_a_model(tmp_path: pathlib.Path) -> None:
    ended(normal()).save(tmp_path / "fit.dlrd")
    model: Any = InFeet()
    draws = dlrd.load(tmp_path / "fit.dlrd", model=model).sample(0, 3)
    plain = dlrd.load(tmp_path / "fit.dlrd").sample(0, 3)
    np.testing.assert_allclose(draws["height"], plain[:, 0] / 0.3048, rtol=1e-6)
    np.testing.assert_array_equal(draws["slopes"], plain[:, 1:])


def test_draws_are_those_of_the_family() -> None:
    fit = ended(normal(), model=FunctionModel(jnp.sum, (2,)))
    draws = fit.sample(3, 5)
    assert draws.shape == (5, 2)
    np.testing.assert_array_equal(draws, fit.sample(jax.random.key(3), 5))
    np.testing.assert_allclose(draws, normal().sample(jax.random.key(3), (5,)), rtol=1e-6)


def test_summary_agrees_with_the_family() -> None:
    summary = ended(normal(), names=("slope", "offset")).summary()
    np.testing.assert_array_equal(summary.mean, [1.0, -200.0])
    np.testing.assert_allclose(summary.std, [2.0, 50.0], rtol=1e-6)
    lines = str(summary).splitlines()
    assert lines[0].split() == ["mean", "sd", "5%", "50%", "95%"]
    assert [line.split()[0] for line in lines[1:3]] == ["slope", "offset"]
    assert lines[3:] == ["All steps of the budget were done."]


def test_summary_says_how_sure_an_automatic_fit_is() -> None:
    lines = str(ended(normal(), verdict=VERDICT).summary()).splitlines()
    assert lines[3:] == ["All steps of the budget were done.", *VERDICT.sentences]


def test_summary_is_that_of_the_variables_of_a_model() -> None:
    summary = ended(normal(), model=InFeet()).summary()
    assert summary.names == ["height", "slopes[0]"]
    # Five standard errors of 10,000 draws.
    np.testing.assert_allclose(summary.mean, [1 / 0.3048, -200], atol=5 * 50 / np.sqrt(10_000))
    np.testing.assert_allclose(summary.std, [2 / 0.3048, 50], rtol=5 / np.sqrt(20_000))


def test_arviz() -> None:
    posterior = ended(dlrd.MeanFieldNormal([2.0] * 3, [0.0] * 3)).to_arviz(num=200)
    assert posterior["posterior"]["z"].shape == (1, 200, 3)
    # Five standard errors of 600 draws.
    np.testing.assert_allclose(posterior["posterior"]["z"].mean(), 2.0, atol=5 / np.sqrt(600))


def test_arviz_gets_the_variables_of_a_model() -> None:
    posterior = ended(normal(), model=InFeet()).to_arviz(num=20)["posterior"]
    assert {name: values.shape for name, values in posterior.items()} == {
        "height": (1, 20),
        "slopes": (1, 20, 1),
    }


def test_elbo_is_the_mean_over_the_last_tenth() -> None:
    fit = ended(normal(), np.arange(30.0), np.arange(30.0))
    assert fit.elbo == 28
    # Errors of 27, 28 and 29 for a mean of three.
    assert fit.elbo_error == pytest.approx(np.sqrt(27**2 + 28**2 + 29**2) / 3)
    assert repr(fit) == "Fit(FullRankNormal, BUDGET, steps=30, decays=1, elbo=28)"


def test_elbo_of_an_automatic_fit_is_that_of_its_verdict() -> None:
    fit = ended(normal(), verdict=VERDICT)
    assert (fit.elbo, fit.elbo_error) == (-2.5, 0.125)
    unknown = ended(normal(), verdict=replace(VERDICT, elbo=float("nan")))
    assert (unknown.elbo, unknown.elbo_error) == (2.0, 0.5)


def test_elbo_of_a_fit_without_steps_is_not_known() -> None:
    fit = ended(normal(), (), ())
    assert np.isnan([fit.elbo, fit.elbo_error]).all()


@pytest.mark.parametrize("is_known", [True, False])
def test_elbo_error_is_that_of_the_mean(is_known: bool) -> None:
    """Over many fits, the ELBO scatters as its error says; also where the single steps do not know theirs."""
    rng = np.random.default_rng(0)
    errors = np.full(1000, 3.0 if is_known else np.nan)
    fits = [ended(normal(), rng.normal(scale=3.0, size=1000), errors) for _ in range(200)]
    scatter = np.std([fit.elbo for fit in fits])
    # The standard deviation of 200 values is known to a relative 1/√400; five times that.
    np.testing.assert_allclose(np.mean([fit.elbo_error for fit in fits]), scatter, rtol=0.25)


def test_sparse_normal_is_read_with_its_pattern(tmp_path: pathlib.Path) -> None:
    precision = np.diag(np.full(6, 3.0)) + np.diag(np.ones(5), 1) + np.diag(np.ones(5), -1)
    family = dlrd.SparseNormal.from_precision(np.arange(6.0), precision)
    ended(family, names=tuple("abcdef")).save(tmp_path / "fit.dlrd")
    loaded: Any = dlrd.load(tmp_path / "fit.dlrd").family
    assert eqx.tree_equal(loaded, family)
    assert np.array_equal(loaded.precision.toarray(), family.precision.toarray())
