"""Simulators as models: the density of the same model in jax, whatever way its gradient comes."""

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import dlrd
from dlrd.models import Emulable, Labelled, Model, Observed, Predictive, Simulated, priors

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = pytest.mark.usefixtures("x64")
TIME = np.linspace(0, 5, 20)
PRIOR = {"k": priors.lognormal(3.0, 0.5), "c": priors.half_normal(0.5)}
NOISE = 0.05


def oscillation(x: np.ndarray) -> np.ndarray:
    return np.exp(-x[1] * TIME) * np.cos(np.sqrt(x[0]) * TIME)


def with_jacobian(x: np.ndarray) -> Any:
    decay, root = np.exp(-x[1] * TIME), np.sqrt(x[0])
    columns = [-decay * np.sin(root * TIME) * TIME / (2 * root), -TIME * decay * np.cos(root * TIME)]
    return oscillation(x), np.stack(columns, axis=1)


def with_pullback(x: np.ndarray) -> Any:
    outputs, jacobian = with_jacobian(x)
    return outputs, lambda sensitivity: sensitivity @ jacobian


DATA = oscillation(np.array([4.0, 0.3])) + NOISE * np.random.default_rng(0).normal(size=20)


def log_density_itself(x: np.ndarray) -> Any:
    outputs, jacobian = with_jacobian(x)
    residuals = (outputs - DATA) / NOISE
    value = -0.5 * residuals @ residuals - 20 * np.log(NOISE * np.sqrt(2 * np.pi))
    return value, -residuals @ jacobian / NOISE


def likelihood(outputs: jax.Array, variables: dict[str, jax.Array]) -> jax.Array:
    return jnp.sum(norm.logpdf(DATA, outputs, NOISE))


KNOWN: dict[str, Any] = {"data": DATA, "noise": NOISE}
CASES: dict[str, tuple[Any, dict[str, Any], str, int]] = {
    "jacobian": (with_jacobian, KNOWN, "given", 1),
    "pullback": (with_pullback, KNOWN, "given", 1),
    "covariance": (with_jacobian, {"data": DATA, "noise": NOISE**2 * np.eye(20)}, "given", 1),
    "surrogate, until it is learnt by differences": (oscillation, {**KNOWN, "step": 1e-4}, "surrogate", 5),
    "differences": (oscillation, {**KNOWN, "step": 1e-4, "gradient": "differences"}, "differences", 5),
    "log density": (log_density_itself, {}, "given", 1),
    "own, by a jacobian": (with_jacobian, {"likelihood": likelihood}, "given", 1),
    "own, by a pullback": (with_pullback, {"likelihood": likelihood}, "given", 2),
    "own, by differences": (oscillation, {"likelihood": likelihood, "step": 1e-4}, "surrogate", 5),
    "values": (with_pullback, {**KNOWN, "gradient": "none"}, "none", 1),
    "own, values": (oscillation, {"likelihood": likelihood, "gradient": "none"}, "none", 1),
}


def in_jax(free: jax.Array) -> jax.Array:
    """The same, by hand: k is log-normal, and so log k normal; c half-normal, its logarithm standardised."""
    k = 3.0 * jnp.exp(0.5 * free[0])
    support = PRIOR["c"].support
    log_c = jnp.asarray(support.center) + jnp.asarray(support.scale) * free[1]
    c = jnp.exp(log_c)
    log_prior = norm.logpdf(free[0]) + norm.logpdf(c, 0, 0.5) + jnp.log(2.0) + log_c + jnp.log(support.scale)
    outputs = jnp.exp(-c * TIME) * jnp.cos(jnp.sqrt(k) * TIME)
    return log_prior + jnp.sum(norm.logpdf(DATA, outputs, NOISE))


@pytest.mark.parametrize("name", CASES)
def test_is_the_density_of_the_model_in_jax(name: str) -> None:
    run, settings, gradient, cost = CASES[name]
    model = dlrd.models.simulator(run, PRIOR, workers=1, **settings)
    draws = 0.3 * jax.random.normal(jax.random.key(0), (5, 2)) + jnp.array([0.5, 0.2])
    expected = jax.vmap(jax.value_and_grad(in_jax))(draws)
    np.testing.assert_allclose(jax.jit(model.values)(draws, None), expected[0], rtol=1e-12)
    assert (model.gradient, model.runs_a_gradient) == (gradient, cost)
    assert model.has_gradient == (gradient != "none")
    if model.has_gradient:
        values, gradients = jax.jit(model.values_and_gradients)(draws, None)
        np.testing.assert_allclose(values, expected[0], rtol=1e-12)
        # Central differences leave the square of the step, times third derivatives of about a hundred.
        exact = gradient == "given"
        np.testing.assert_allclose(
            gradients, expected[1], rtol=1e-9 if exact else 1e-5, atol=0 if exact else 1e-3
        )
    model.close()


@pytest.fixture(scope="module")
def fitted() -> Iterator[dlrd.Fit]:
    """Every fifth run of a process fails; and the level of the noise is unknown, too."""
    num_run = [0]

    def failing(x: np.ndarray) -> Any:
        num_run[0] += 1
        if num_run[0] % 5 == 0:
            raise ValueError("no convergence")
        return with_pullback(x)

    with jax.enable_x64(True):
        model = dlrd.models.simulator(failing, PRIOR, DATA, priors.half_normal(0.2), workers=2)
        yield dlrd.fit(model, max_gradients=4000, starts=4, num_draws="workers", progress=False)
        model.close()


def test_failures_change_nothing_but_the_number_of_runs(fitted: dlrd.Fit) -> None:
    def log_density(v: dict[str, jax.Array]) -> jax.Array:
        outputs = jnp.exp(-v["c"] * TIME) * jnp.cos(jnp.sqrt(v["k"]) * TIME)
        log_prior = norm.logpdf(jnp.log(v["k"]), jnp.log(3.0), 0.5) - jnp.log(v["k"])
        log_prior += norm.logpdf(v["c"], 0, 0.5) + norm.logpdf(v["noise"], 0, 0.2)
        return log_prior + jnp.sum(norm.logpdf(DATA, outputs, v["noise"]))

    supports = {name: dlrd.positive() for name in ("k", "c", "noise")}
    exact = dlrd.fit(dlrd.models.function(log_density, supports), progress=False).summary()
    assert fitted.outcome is dlrd.Outcome.CERTIFIED
    found = fitted.summary()
    assert found.names == exact.names == ["k", "c", "noise"]
    # Both are within 0.01 nats of the best normal: means within √0.02 of a standard deviation each.
    np.testing.assert_allclose(found.mean, exact.mean, atol=2 * 0.02**0.5 * exact.std.max(), rtol=0)
    np.testing.assert_allclose(found.mean / exact.std, exact.mean / exact.std, atol=2 * 0.02**0.5)
    np.testing.assert_allclose(found.std, exact.std, rtol=2 * 0.02**0.5)


def test_counts_reach_the_verdict(fitted: dlrd.Fit) -> None:
    model: Any = fitted.model
    records = model.runs.session.log.records
    num_failed = sum(not record.is_good for record in records)
    assert 0.1 < num_failed / len(records) < 0.3
    assert fitted.verdict is not None
    assert f"{num_failed:,} of {len(records):,} runs failed (raised {num_failed:,})" in fitted.sentence
    assert (
        f"Runs: {len(records):,}, of which {num_failed:,} failed. Gradients: by the simulator"
        in fitted.sentence
    )


def test_a_step_has_a_multiple_of_the_workers_as_draws(fitted: dlrd.Fit) -> None:
    assert fitted.num_draws == 8


def test_the_report_tells_of_runs(fitted: dlrd.Fit, tmp_path: pathlib.Path) -> None:
    fitted.report(tmp_path / "fit.html")
    page = (tmp_path / "fit.html").read_text(encoding="utf-8")
    assert "<dt>Outside</dt><dd>Runs: " in page
    assert "runs failed (raised" in page


def test_predictions_have_the_spread_of_the_data(fitted: dlrd.Fit) -> None:
    found = fitted.predict(0, 40)
    assert found["data"].shape == found["outputs"].shape == (40, 20)
    is_good = np.isfinite(found["outputs"]).all(axis=1)
    assert is_good.sum() > 30
    spread = np.nanstd(found["data"] - found["outputs"])
    draws = fitted.sample(0, 40)["noise"][is_good]
    np.testing.assert_allclose(spread, np.sqrt(np.mean(draws**2)), rtol=5 / np.sqrt(2 * 20 * is_good.sum()))
    outputs = [oscillation(each) for each in np.stack([fitted.sample(0, 40)[name] for name in "kc"], axis=1)]
    np.testing.assert_allclose(found["outputs"][is_good], np.array(outputs)[is_good], rtol=1e-12)
    assert fitted.log_likelihood(0, 40)["data"].shape == (40, 20)


def test_for_arviz_nothing_is_run(fitted: dlrd.Fit) -> None:
    model: Any = fitted.model
    before = len(model.runs.session.log.records)
    groups = fitted.to_arviz()
    assert set(groups.posterior.data_vars) == {"k", "c", "noise"}
    assert "posterior_predictive" not in groups
    np.testing.assert_array_equal(groups.observed_data["data"], DATA)
    assert len(model.runs.session.log.records) == before


def test_what_it_can_do(fitted: dlrd.Fit) -> None:
    for capability in (Model, Labelled, Observed, Predictive, Simulated):
        assert isinstance(fitted.model, capability)


def test_a_simulator_that_never_works_is_said_before_the_fit() -> None:
    model = dlrd.models.simulator(lambda x: 1 / 0, PRIOR, DATA, NOISE, workers=1, retries=0)
    with pytest.raises(ValueError, match="failed at all of 8 points; the last: raised, ZeroDivisionError"):
        dlrd.fit(model, progress=False)
    model.close()


@pytest.mark.parametrize("noise", [{"noise": priors.half_normal(0.2)}, {"likelihood": likelihood}])
def test_outputs_are_learnt_where_no_gradient_is_given(noise: dict[str, Any]) -> None:
    """As many runs in the log as the fit says, and the posterior that gradients lead to."""
    data = {} if "likelihood" in noise else {"data": DATA}
    found, exact = (
        dlrd.fit(
            dlrd.models.simulator(run, PRIOR, workers=2, **data, **noise),
            max_gradients=budget,
            starts=1,
            progress=False,
        )
        for run, budget in ((oscillation, 500), (with_pullback, 4000))
    )
    model: Any = found.model
    assert isinstance(model, Emulable)
    assert found.outcome is exact.outcome is dlrd.Outcome.CERTIFIED
    assert found.verdict is not None
    assert len(model.runs.session.log.records) == found.verdict.num_gradients
    assert "Gradients: of a polynomial that is learnt from the runs" in found.sentence
    # Both are within 0.01 nats of the best normal: means within √0.02 of a standard deviation each.
    np.testing.assert_allclose(
        (found.family.mean - exact.family.mean) / exact.family.std, 0.0, atol=2 * 0.02**0.5
    )
    np.testing.assert_allclose(found.family.std, exact.family.std, rtol=2 * 0.02**0.5)
    model.close()
    exact.model.close()


def test_a_log_density_alone_cannot_be_learnt() -> None:
    model = dlrd.models.simulator(lambda x: -float(x @ x), PRIOR, workers=1)
    assert model.gradient == "differences"
    model.close()
    model = dlrd.models.simulator(lambda x: -float(x @ x), PRIOR, workers=1, gradient="surrogate")
    with pytest.raises(ValueError, match='gradient="surrogate" needs outputs with data or a likelihood'):
        model.has_gradient  # noqa: B018 - the error is the test
    model.close()


def test_a_gradient_that_is_not_given_cannot_be_taken() -> None:
    model = dlrd.models.simulator(oscillation, PRIOR, DATA, NOISE, workers=1, gradient="given")
    with pytest.raises(ValueError, match='gradient="given" needs a simulator that returns its outputs and'):
        model.has_gradient  # noqa: B018 - the error is the test
    model.close()
