"""`dlrd.fit` from the call to the result: plain stochastic variational inference, exactly, or by itself."""

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
from dlrd.models import FunctionModel
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
    target = dlrd.MeanFieldNormal([0.0, 1.0, 2.0], [-1.0, 0.0, 1.0])
    optimizer = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(5e-2))
    fit = dlrd.fit(
        target.log_prob, family_class.standard(3), key=0, optimizer=optimizer, steps=2000, progress=False
    )
    assert dlrd.jeffreys(fit.family, target) < 1e-4
    assert abs(fit.elbo) < 1e-2  # log of the normalising constant, 0


def test_progress_bar_does_not_change_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    fits = [
        dlrd.fit(
            shifted_normal,
            dlrd.MeanFieldNormal.standard(3),
            key=1,
            optimizer=ADAM,
            steps=100,
            progress=progress,
        )
        for progress in (False, True)
    ]
    assert same_bits(fits[0].family, fits[1].family)
    assert same_history(*fits)
    shown = capsys.readouterr().out
    assert "100/100" in shown
    assert "ELBO" in shown


def test_second_fit_is_not_traced_again() -> None:
    shapes: list[int] = []  # of the batches for which it is traced

    class Spied(FunctionModel):
        def values(self, draws: jax.Array, key: jax.Array | None) -> jax.Array:
            shapes.append(len(draws))
            return super().values(draws, key)

    model = Spied(shifted_normal, (2,))
    for key, steps, expected in ((0, 20, [1, 8]), (1, 30, [])):
        shapes.clear()
        dlrd.fit(
            model, dlrd.MeanFieldNormal.standard(2), key=key, optimizer=ADAM, steps=steps, progress=False
        )
        assert shapes == expected


def test_without_a_family_the_model_says_the_dimension() -> None:
    model = FunctionModel(shifted_normal, (2,))
    fit = dlrd.fit(model, key=0, optimizer=ADAM, steps=1, progress=False)
    assert isinstance(fit.family, dlrd.FullRankNormal)
    assert fit.family.mean.shape == (2,)
    with pytest.raises(ValueError, match="family must be given where log_density is a plain function"):
        dlrd.fit(shifted_normal, key=0, optimizer=ADAM, steps=1, progress=False)


def test_family_of_another_dimension_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"family must have draws of 2 numbers, as the model has, got \(3,\)"
    ):
        dlrd.fit(FunctionModel(shifted_normal, (2,)), dlrd.MeanFieldNormal.standard(3), progress=False)


@pytest.mark.parametrize("x64", [False, True])
def test_both_precisions(x64: bool) -> None:
    with jax.enable_x64(x64):
        problem = synthetic(dim=3)
        fit = dlrd.fit(
            problem.log_density,
            dlrd.MeanFieldNormal.standard(3),
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


def test_without_optimizer_it_ends_by_itself() -> None:
    problem = synthetic(dim=10)
    fit = dlrd.fit(problem.log_density, dlrd.MeanFieldNormal.standard(10), key=0, progress=False)
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
