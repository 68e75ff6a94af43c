"""Models outside jax."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd


def quartic(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    assert isinstance(draws, np.ndarray)
    assert draws.dtype == float
    return -np.sum(draws**4, axis=1), -4 * draws**3


def quartic_in_jax(z: jax.Array) -> jax.Array:
    return -jnp.sum(z**4)


MODEL = dlrd.models.host(quartic, 3)
KEY = jax.random.key(0)


def test_values_and_gradients(precision: jnp.dtype) -> None:
    draws = jax.random.normal(KEY, (5, 3), dtype=float)
    values, gradients = jax.jit(MODEL.values_and_gradients)(draws, None)
    assert values.dtype == gradients.dtype == precision
    rtol = 10 * float(jnp.finfo(precision).eps)
    np.testing.assert_allclose(values, -np.sum(np.asarray(draws, float) ** 4, axis=1), rtol=rtol)
    np.testing.assert_allclose(gradients, -4 * np.asarray(draws, float) ** 3, rtol=rtol)
    np.testing.assert_array_equal(jax.jit(MODEL.values)(draws, None), values)


@pytest.mark.parametrize("estimator", [dlrd.natural_gradient, dlrd.sticking_the_landing, dlrd.score_function])
def test_estimates_are_those_of_the_same_density_in_jax(estimator: Any) -> None:
    with jax.enable_x64(True):
        family = dlrd.FullRankNormal.standard(3)
        outside, inside = (
            jax.jit(lambda family, key, model=model: estimator(model, family, key, 8))(family, KEY)
            for model in (MODEL, quartic_in_jax)
        )
        assert outside.num_failed == 0
        found, wanted = ((each.elbo_terms, each.gradient) for each in (outside, inside))
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("estimator", [dlrd.natural_gradient, dlrd.sticking_the_landing, dlrd.score_function])
def test_failed_draws_are_left_out(estimator: Any) -> None:
    """What is left is unbiased: the mean over many steps, half of whose draws fail, is the exact gradient."""

    def failing(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = -0.5 * np.sum((draws - 1) ** 2, axis=1), 1 - draws
        has_failed = rng.random(len(draws)) < 0.5
        return np.where(has_failed, np.nan, values), np.where(has_failed[:, None], np.nan, gradients)

    rng = np.random.default_rng(0)
    model, family = dlrd.models.host(failing, 2), dlrd.MeanFieldNormal.standard(2)
    estimate = jax.jit(lambda key: estimator(model, family, key, 16).gradient.loc)
    each = np.stack([estimate(key) for key in jax.random.split(KEY, 300)])
    assert np.isfinite(each).all()
    error = each.std(axis=0) / np.sqrt(len(each))
    assert (np.abs(each.mean(axis=0) - 1) < 4 * error + 1e-6).all()


def test_many_runs_at_once() -> None:
    """With an axis of runs in front of the draws."""
    optimizer = dlrd.dynamic_decay
    fits = dlrd.fit_many(
        MODEL,
        dlrd.MeanFieldNormal.standard(3),
        keys=range(2),
        learning_rates=[1e-2, 1e-3],
        optimizer=optimizer,
        steps=5,
        progress=False,
    )
    alone = dlrd.fit(
        MODEL, dlrd.MeanFieldNormal.standard(3), key=1, optimizer=optimizer(1e-2), steps=5, progress=False
    )
    np.testing.assert_allclose(fits[1].family.mean, alone.family.mean, rtol=1e-5)


def test_values_alone_are_enough_for_an_automatic_fit() -> None:
    calls = []

    def values(draws: np.ndarray) -> np.ndarray:
        calls.append(len(draws))
        return -0.5 * np.sum((draws - 1) ** 2, axis=1)

    found = dlrd.fit(
        dlrd.models.host(values, 2, has_gradient=False),
        dlrd.MeanFieldNormal.standard(2),
        num_draws=64,
        max_gradients=60_000,
        progress=False,
    )
    assert found.outcome in (dlrd.Outcome.AGREED, dlrd.Outcome.BUDGET)
    assert found.verdict is not None
    assert np.isnan(found.verdict.gap)
    assert found.verdict.gradients["start"] == found.verdict.gradients["curvature"] == 0
    assert sum(calls) <= 60_000 + 256 + 1  # and one for the check of its shape
    np.testing.assert_allclose(found.family.mean, 1, atol=0.2)


def test_gradients_that_do_not_exist_are_not_asked_for() -> None:
    model = dlrd.models.host(lambda draws: -np.sum(draws**2, axis=1), 2, has_gradient=False)
    for name in ("natural_gradient", "sticking_the_landing", "reparameterized"):
        with pytest.raises(ValueError, match=f"{name} needs the gradient of the log density"):
            dlrd.fit(model, gradient=getattr(dlrd, name), progress=False)
    found = dlrd.fit(model, optimizer=dlrd.dynamic_decay(1e-2), steps=5, progress=False)
    assert found.num_steps == 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dlrd.models.host(3.0, 2), "evaluate must be a function of an array of draws, got float 3.0"),
        (lambda: dlrd.models.host(quartic, 0), "dim must be a whole number of at least 1"),
        (lambda: dlrd.models.host(quartic, 3, names=["a"]), "names must be 3 different ones"),
    ],
    ids=range(3),
)
def test_says_what_is_wrong(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_wrong_shapes_are_named() -> None:
    model = dlrd.models.host(lambda draws: (np.sum(draws, axis=1), draws[:, :1]), 2)
    with pytest.raises(Exception, match=r"evaluate must give an array of shape \(256, 2\), got \(256, 1\)"):
        model.values_and_gradients(jnp.zeros((256, 2)), None)
