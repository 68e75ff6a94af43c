"""Many runs in one compiled program."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dlrd
from dlrd.paper.problems import synthetic


def adam(rate: jax.Array | float) -> optax.GradientTransformation:
    return optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(rate))


def test_each_run_is_the_run_alone() -> None:
    problem = synthetic(dim=6)
    family = dlrd.MeanFieldNormal.standard(6)
    keys, rates = [3, 4], [1e-1, 1e-2]
    with jax.enable_x64(True):
        fits = dlrd.fit_many(
            problem.log_density,
            family,
            keys=keys,
            learning_rates=rates,
            optimizer=adam,
            steps=400,
            num_draws=2,
            progress=False,
        )
        assert len(fits) == 4
        for fit, (rate, key) in zip(fits, itertools.product(rates, keys), strict=True):
            alone = dlrd.fit(
                problem.log_density,
                family,
                key=key,
                optimizer=adam(rate),
                steps=400,
                num_draws=2,
                progress=False,
            )
            # Batched sums may be ordered otherwise; in float32 families that is about 1e-7 a step.
            np.testing.assert_allclose(fit.family.mean, alone.family.mean, atol=1e-3)
            np.testing.assert_array_equal(fit.history.decays, alone.history.decays)
            assert fit.history.learning_rate[0] == pytest.approx(rate)


def test_keys_alone() -> None:
    fits = dlrd.fit_many(
        lambda z: -0.5 * ((z - 1) @ (z - 1)),
        dlrd.FullRankNormal.standard(2),
        keys=range(3),
        optimizer=adam(1e-2),
        steps=50,
        progress=False,
    )
    assert len({fit.elbo for fit in fits}) == 3


def test_a_failing_run_does_not_harm_the_others() -> None:
    def quartic(z: jax.Array) -> jax.Array:
        return -jnp.sum(z**4)

    fits = dlrd.fit_many(
        quartic,
        dlrd.MeanFieldNormal(jnp.full(2, 3.0), jnp.full(2, -3.0)),
        keys=[0],
        learning_rates=[1e-1, 1e-4],
        optimizer=lambda rate: optax.chain(optax.identity(), dlrd.dynamic_decay(rate)),
        steps=500,
        guard=False,
        progress=False,
    )
    assert [fit.outcome for fit in fits] == [dlrd.Outcome.DIVERGED, dlrd.Outcome.BUDGET]
    assert fits[0].num_steps < fits[1].num_steps == 500
    assert len(fits[0].history.step) == fits[0].num_steps
    assert all(jnp.all(jnp.isfinite(fit.family.mean)) for fit in fits)


def test_progress_shows_all_runs(capsys: pytest.CaptureFixture[str]) -> None:
    dlrd.fit_many(
        lambda z: -0.5 * (z @ z),
        dlrd.MeanFieldNormal.standard(2),
        keys=range(3),
        optimizer=adam(1e-2),
        steps=50,
    )
    assert "3× 50/50" in capsys.readouterr().out


def shifted(z: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum((z - 2.0) ** 2) - 0.1 * jnp.sum(z**4)


def test_automatic_fits_are_those_of_fit() -> None:
    family = dlrd.MeanFieldNormal.standard(2)
    many = dlrd.fit_many(shifted, family, keys=[0, 1], progress=False)
    for key, each in enumerate(many):
        alone = dlrd.fit(shifted, family, key=key, progress=False)
        assert each.outcome is dlrd.Outcome.CERTIFIED
        np.testing.assert_array_equal(each.family.loc, alone.family.loc)


def test_automatic_fits_take_no_learning_rates() -> None:
    with pytest.raises(ValueError, match="learning_rates must be given only together with optimizer"):
        dlrd.fit_many(
            shifted, dlrd.MeanFieldNormal.standard(2), keys=[0], learning_rates=[0.1], progress=False
        )
