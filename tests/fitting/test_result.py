"""What a fit gives back: draws, a summary, its ELBO."""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.fitting.verdict import Verdict
from dlrd.models import FunctionModel

Ended = Callable[..., dlrd.Fit]


def normal() -> dlrd.FullRankNormal:
    return dlrd.FullRankNormal([1.0, -200.0], [[2.0, 0.0], [30.0, 40.0]])


class InFeet:
    """The variables of a model, in other units."""

    def constrained(self, draws: jax.Array) -> dict[str, jax.Array]:
        return {"height": draws[:, 0] / 0.3048, "slopes": draws[:, 1:]}


def test_draws_are_those_of_the_family(ended: Ended) -> None:
    fit = ended(normal(), model=FunctionModel(jnp.sum, (2,)))
    draws = fit.sample(3, 5)
    assert draws.shape == (5, 2)
    np.testing.assert_array_equal(draws, fit.sample(jax.random.key(3), 5))
    np.testing.assert_allclose(draws, normal().sample(jax.random.key(3), (5,)), rtol=1e-6)


def test_summary_agrees_with_the_family(ended: Ended) -> None:
    summary = ended(normal(), names=("slope", "offset")).summary()
    np.testing.assert_array_equal(summary.mean, [1.0, -200.0])
    np.testing.assert_allclose(summary.std, [2.0, 50.0], rtol=1e-6)
    lines = str(summary).splitlines()
    assert lines[0].split() == ["mean", "sd", "5%", "50%", "95%"]
    assert [line.split()[0] for line in lines[1:3]] == ["slope", "offset"]
    assert lines[3:] == ["All steps of the budget were done."]


def test_summary_says_how_sure_an_automatic_fit_is(ended: Ended, verdict: Verdict) -> None:
    lines = str(ended(normal(), verdict=verdict).summary()).splitlines()
    assert lines[3:] == ["All steps of the budget were done.", *verdict.sentences]


def test_summary_is_that_of_the_variables_of_a_model(ended: Ended) -> None:
    summary = ended(normal(), model=InFeet()).summary()
    assert summary.names == ["height", "slopes[0]"]
    # Five standard errors of 10,000 draws.
    np.testing.assert_allclose(summary.mean, [1 / 0.3048, -200], atol=5 * 50 / np.sqrt(10_000))
    np.testing.assert_allclose(summary.std, [2 / 0.3048, 50], rtol=5 / np.sqrt(20_000))


def test_summary_of_chosen_variables(counties_fit: dlrd.Fit) -> None:
    whole = counties_fit.summary()
    assert whole.names == ["sigma", "level[AITKIN]", "level[ANOKA]"]
    assert counties_fit.summary("level").names == whole.names[1:]
    chosen = counties_fit.summary(["level[ANOKA]", "sigma"])
    assert chosen.names == ["level[ANOKA]", "sigma"]
    np.testing.assert_array_equal(chosen.mean, whole.mean[[2, 0]])
    with pytest.raises(ValueError, match=r"^var_names must be among sigma, level, got str 'nu'$"):
        counties_fit.summary(["sigma", "nu"])


def test_a_key_stands_for_the_same_draws_everywhere(counties_fit: dlrd.Fit) -> None:
    flat = counties_fit.unconstrained_draws(3, 5)
    draws = counties_fit.sample(3, 5)
    np.testing.assert_array_equal(draws["sigma"], jnp.exp(flat[:, 0]))
    np.testing.assert_array_equal(draws["level"], flat[:, 1:])


def test_draws_are_counted(ended: Ended) -> None:
    with pytest.raises(ValueError, match="num must be a whole number of at least 1, got float 2"):
        ended(normal()).sample(0, 2.5)  # pyright: ignore[reportArgumentType] - the wrong type is the test


def test_elbo_is_the_mean_over_the_last_tenth(ended: Ended) -> None:
    fit = ended(normal(), np.arange(30.0), np.arange(30.0))
    assert fit.elbo == 28
    # Errors of 27, 28 and 29 for a mean of three.
    assert fit.elbo_error == pytest.approx(np.sqrt(27**2 + 28**2 + 29**2) / 3)
    assert repr(fit) == "Fit(FullRankNormal, BUDGET, steps=30, decays=1, elbo=28)"


def test_elbo_of_an_automatic_fit_is_that_of_its_verdict(ended: Ended, verdict: Verdict) -> None:
    fit = ended(normal(), verdict=verdict)
    assert (fit.elbo, fit.elbo_error) == (-2.5, 0.125)
    unknown = ended(normal(), verdict=replace(verdict, elbo=float("nan")))
    assert (unknown.elbo, unknown.elbo_error) == (2.0, 0.5)


def test_elbo_of_a_fit_without_steps_is_not_known(ended: Ended) -> None:
    fit = ended(normal(), (), ())
    assert np.isnan([fit.elbo, fit.elbo_error]).all()


@pytest.mark.parametrize("is_known", [True, False])
def test_elbo_error_is_that_of_the_mean(ended: Ended, is_known: bool) -> None:
    """Over many fits, the ELBO scatters as its error says; also where the single steps do not know theirs."""
    rng = np.random.default_rng(0)
    errors = np.full(1000, 3.0 if is_known else np.nan)
    fits = [ended(normal(), rng.normal(scale=3.0, size=1000), errors) for _ in range(200)]
    scatter = np.std([fit.elbo for fit in fits])
    # The standard deviation of 200 values is known to a relative 1/√400; five times that.
    np.testing.assert_allclose(np.mean([fit.elbo_error for fit in fits]), scatter, rtol=0.25)
