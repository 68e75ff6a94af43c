"""`dlrd.fit` with an explicit optimiser: plain stochastic variational inference, exactly."""

from typing import Any

import equinox as eqx
import flowjax.distributions
import flowjax.flows
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dlrd
from dlrd.fitting import loop
from dlrd.paper.problems import synthetic

ADAM = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-1))


def shifted_normal(z: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum((z - 3.0) ** 2 / 0.25)


def same_bits(left: object, right: object) -> bool:
    leaves = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in leaves)


def same_history(left: dlrd.Fit, right: dlrd.Fit) -> bool:
    return all(
        getattr(left.history, name).tobytes() == getattr(right.history, name).tobytes()
        for name in type(left.history).__annotations__
    )


def test_equals_the_plain_loop() -> None:
    """The same estimates, the same optimiser, the same parameters as a loop written by hand."""
    family = dlrd.MeanFieldNormal.standard(4)
    params, rest = eqx.partition(family, eqx.is_inexact_array)

    @jax.jit
    def update(params: Any, opt_state: Any, key: jax.Array) -> tuple[Any, Any]:
        estimate = dlrd.sticking_the_landing(shifted_normal, eqx.combine(params, rest), key, num_draws=3)
        loss_gradient = jax.tree.map(jnp.negative, estimate.gradient)
        updates, opt_state = ADAM.update(loss_gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    opt_state = ADAM.init(params)
    rates = []
    for step in range(200):
        params, opt_state = update(params, opt_state, jax.random.fold_in(jax.random.key(7), step))
        rates.append(float(optax.tree_utils.tree_get(opt_state, "learning_rate")))

    fit = dlrd.fit(shifted_normal, family, key=7, optimizer=ADAM, steps=200, num_draws=3, progress=False)

    # Compiled as a whole, sums may be ordered otherwise: equal up to rounding that Adam can amplify.
    np.testing.assert_allclose(fit.family.mean, params.loc, rtol=1e-3)
    np.testing.assert_allclose(fit.history.learning_rate, rates, rtol=1e-6)
    assert len(fit.history.decays) >= 1
    first_decay = int(np.argmax(np.asarray(rates) < 0.09)) + 1
    assert fit.history.decays[0] == first_decay
    assert fit.outcome is dlrd.Outcome.BUDGET
    assert fit.num_steps == 200


@pytest.mark.parametrize("family_class", [dlrd.MeanFieldNormal, dlrd.FullRankNormal])
def test_finds_a_normal_in_the_family(family_class: type) -> None:
    """The target is in the family, so the noise vanishes at the optimum and the fit gets there."""
    target = dlrd.MeanFieldNormal(jnp.arange(5.0), jnp.linspace(-1, 1, 5))
    optimizer = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(5e-2))
    fit = dlrd.fit(
        target.log_prob, family_class.standard(5), key=0, optimizer=optimizer, steps=4000, progress=False
    )
    assert dlrd.jeffreys(fit.family, target) < 1e-4
    assert abs(fit.elbo) < 1e-2  # log of the normalising constant, 0


def test_chunks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> dlrd.Fit:
        return dlrd.fit(
            shifted_normal, dlrd.FullRankNormal.standard(3), key=1, optimizer=ADAM, steps=700, progress=False
        )

    usual = run()
    for seconds in (1e-9, 1e9):  # chunks of a single step; chunks as long as they can be
        monkeypatch.setattr(loop, "CHUNK_SECONDS", seconds)
        other = run()
        assert same_bits(usual.family, other.family)
        assert same_history(usual, other)


def test_progress_bar_does_not_change_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    fits = [
        dlrd.fit(
            shifted_normal,
            dlrd.MeanFieldNormal.standard(3),
            key=1,
            optimizer=ADAM,
            steps=500,
            progress=progress,
        )
        for progress in (False, True)
    ]
    assert same_bits(fits[0].family, fits[1].family)
    assert same_history(*fits)
    shown = capsys.readouterr().out
    assert "500/500" in shown
    assert "ELBO" in shown


def test_compiles_once_for_all_chunks_and_for_a_second_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = []

    def log_density(z: jax.Array) -> jax.Array:
        traces.append(z)
        return -0.5 * jnp.sum(z**2)

    monkeypatch.setattr(loop, "CHUNK_SECONDS", 1e-9)  # many chunks
    family = dlrd.MeanFieldNormal.standard(2)
    dlrd.fit(log_density, family, key=0, optimizer=ADAM, steps=50, progress=False)
    num_traces = len(traces)
    dlrd.fit(log_density, family, key=1, optimizer=ADAM, steps=60, progress=False)
    assert len(traces) == num_traces


@pytest.mark.parametrize("x64", [False, True])
def test_both_precisions(x64: bool) -> None:
    with jax.enable_x64(x64):
        problem = synthetic(dim=5)
        fit = dlrd.fit(
            problem.log_density,
            dlrd.MeanFieldNormal.standard(5),
            key=0,
            optimizer=ADAM,
            steps=3000,
            progress=False,
        )
        assert fit.family.mean.dtype == (jnp.float64 if x64 else jnp.float32)
        assert dlrd.jeffreys(fit.family, problem.optimum) < 0.05


def test_half_precision_family_keeps_its_type() -> None:
    family = dlrd.MeanFieldNormal(jnp.zeros(2, jnp.bfloat16), jnp.zeros(2, jnp.bfloat16))
    fit = dlrd.fit(shifted_normal, family, key=0, optimizer=ADAM, steps=300, progress=False)
    assert fit.family.mean.dtype == jnp.bfloat16
    assert jnp.all(jnp.abs(fit.family.mean - 3) < 0.5)


@pytest.mark.slow
def test_flowjax_flow() -> None:
    """Any distribution of flowjax is a family: fits a correlated normal in two dimensions."""
    covariance = jnp.asarray([[1.0, 0.8], [0.8, 1.0]])
    target = dlrd.FullRankNormal(jnp.asarray([1.0, -1.0]), jnp.linalg.cholesky(covariance))
    base = flowjax.distributions.Normal(jnp.zeros(2), 1.0)
    flow = flowjax.flows.masked_autoregressive_flow(
        jax.random.key(0), base_dist=base, nn_width=8, nn_depth=1, flow_layers=1
    )
    optimizer = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-2))
    fit = dlrd.fit(target.log_prob, flow, key=0, optimizer=optimizer, steps=1500, progress=False)
    assert fit.elbo > -0.1  # the evidence is 0
    draws = np.asarray(fit.sample(0, 4000))
    # Four standard errors of a mean of 4000 draws, and what the flow may lack.
    np.testing.assert_allclose(draws.mean(axis=0), [1.0, -1.0], atol=4 / np.sqrt(4000) + 0.05)
    assert "z[1]" in str(fit.summary())


def test_values_only_gradient() -> None:
    fit = dlrd.fit(
        shifted_normal,
        dlrd.MeanFieldNormal.standard(3),
        key=0,
        optimizer=ADAM,
        steps=2000,
        num_draws=16,
        gradient=dlrd.score_function,
        progress=False,
    )
    np.testing.assert_allclose(fit.family.mean, 3.0, atol=0.1)


def test_optimizer_without_readings() -> None:
    fit = dlrd.fit(
        shifted_normal,
        dlrd.MeanFieldNormal.standard(2),
        key=0,
        optimizer=optax.adam(1e-2),
        steps=10,
        progress=False,
    )
    assert np.isnan(fit.history.learning_rate).all()
    assert np.isnan(fit.history.snr).all()
    assert len(fit.history.decays) == 0


def test_optimizer_that_wants_the_loss() -> None:
    """Transformations with extra arguments get the loss, −ELBO, as `value`."""

    def update(updates: Any, state: Any, params: Any = None, *, value: jax.Array) -> tuple[Any, Any]:
        return updates, {"snr": value}  # a name that the history shows

    optimizer = optax.chain(
        optax.adam(1e-2), optax.GradientTransformationExtraArgs(lambda params: {"snr": 0.0}, update)
    )
    fit = dlrd.fit(
        shifted_normal,
        dlrd.MeanFieldNormal.standard(2),
        key=0,
        optimizer=optimizer,
        steps=20,
        progress=False,
    )
    np.testing.assert_array_equal(fit.history.snr, -fit.history.elbo)


def test_without_optimizer_it_ends_by_itself() -> None:
    problem = synthetic(dim=50)
    fit = dlrd.fit(problem.log_density, dlrd.MeanFieldNormal.standard(50), key=0, progress=False)
    assert fit.outcome is dlrd.Outcome.CERTIFIED
    assert fit.verdict is not None
    assert fit.verdict.num_gradients < 100_000
    assert fit.verdict.gap < 0.01
    # The divergence to the optimum is the gap and more, as the posterior is correlated.
    assert dlrd.jeffreys(fit.family, problem.optimum) < 5e-2


def test_log_density_object_that_holds_arrays() -> None:
    class Model(eqx.Module):
        center: jax.Array

        def __call__(self, z: jax.Array) -> jax.Array:
            return -0.5 * jnp.sum((z - self.center) ** 2)

    fit = dlrd.fit(
        Model(jnp.asarray([1.0, 2.0])),
        dlrd.MeanFieldNormal.standard(2),
        key=0,
        optimizer=ADAM,
        steps=1000,
        progress=False,
    )
    np.testing.assert_allclose(fit.family.mean, [1.0, 2.0], atol=0.05)


def test_diverging_run_returns_the_last_good_state() -> None:
    """Gradient ascent with a rate far above 2/curvature explodes; what is returned is finite."""

    def steep(z: jax.Array) -> jax.Array:
        return -jnp.sum(z**4)

    optimizer = optax.chain(optax.identity(), dlrd.dynamic_decay(0.1))
    fit = dlrd.fit(
        steep,
        dlrd.MeanFieldNormal(jnp.full(2, 3.0), jnp.zeros(2)),
        key=0,
        optimizer=optimizer,
        steps=1000,
        progress=False,
    )
    assert fit.outcome is dlrd.Outcome.DIVERGED
    assert "smaller learning rate" in fit.outcome.sentence
    assert 0 < fit.num_steps < 1000
    assert fit.history.step[-1] == fit.num_steps
    assert jnp.all(jnp.isfinite(fit.family.mean))
    assert np.isfinite(fit.history.elbo).all()


def test_log_density_that_turns_nan_ends_the_run() -> None:
    def holed(z: jax.Array) -> jax.Array:
        return jnp.where(jnp.all(z < 2), -0.5 * jnp.sum((z - 5.0) ** 2), jnp.nan)

    family = dlrd.MeanFieldNormal(jnp.full(2, -3.0), jnp.full(2, -3.0))
    fit = dlrd.fit(holed, family, key=0, optimizer=ADAM, steps=1000, progress=False)
    assert fit.outcome is dlrd.Outcome.DIVERGED
    assert jnp.all(jnp.isfinite(fit.family.mean))
    assert jnp.all(fit.family.mean > -3)
