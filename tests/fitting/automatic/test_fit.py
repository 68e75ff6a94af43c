"""`dlrd.fit` without an optimiser, from the call to the verdict."""

import pathlib
import time
from collections.abc import Callable
from typing import Any

import flowjax.distributions
import flowjax.flows
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.bench.posteriors.optimum import elbo_gap, optimum
from dlrd.fitting.verdict import Verdict

TOLERANCE = 1e-2  # the default in few dimensions
LOOK = 256  # draws of the shortest look
COVARIANCE = np.array([[1.0, 0.8, 0.0], [0.8, 2.0, -0.5], [0.0, -0.5, 0.3]])
MEAN = np.array([1.0, -2.0, 0.5])


def correlated(z: jax.Array) -> jax.Array:
    precision = jnp.asarray(np.linalg.inv(COVARIANCE), z.dtype)
    centered = z - jnp.asarray(MEAN, z.dtype)
    return -0.5 * centered @ precision @ centered


def bimodal(z: jax.Array) -> jax.Array:
    """The minor mode is the nearest to 0; the evidence is 1."""
    minor = jnp.log(0.05) - 0.5 * jnp.sum((z - 0.5) ** 2)
    major = jnp.log(0.95) - 0.5 * jnp.sum((z - 6.0) ** 2)
    return jnp.logaddexp(minor, major) - jnp.log(2 * jnp.pi)


def eight_schools(z: jax.Array) -> jax.Array:
    """Centred: its density grows without bound where all schools agree."""
    effects = jnp.asarray([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = jnp.asarray([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    mean, log_spread, schools = z[0], z[1], z[2:]
    prior = -0.5 * (mean / 5) ** 2 - jnp.log1p(jnp.exp(2 * log_spread) / 25) + log_spread
    level = -0.5 * jnp.sum((schools - mean) ** 2) * jnp.exp(-2 * log_spread) - 8 * log_spread
    return prior + level - 0.5 * jnp.sum(((effects - schools) / errors) ** 2)


def uncentred_schools(z: jax.Array) -> jax.Array:
    """The schools' effects in units of their spread."""
    effects = z[0] + jnp.exp(z[1]) * z[2:]
    return eight_schools(jnp.concatenate([z[:2], effects])) + 8 * z[1]


def funnel(z: jax.Array) -> jax.Array:
    """Neal's, with four arms."""
    return -(z[0] ** 2) / 18 - 2 * z[0] - 0.5 * jnp.sum(z[1:] ** 2) * jnp.exp(-z[0])


def walled(z: jax.Array) -> jax.Array:
    return jnp.where(z[0] > 0, -z[0] - 0.5 * jnp.sum(z[1:] ** 2), -jnp.inf)


def mixed(z: jax.Array) -> jax.Array:
    return jnp.logaddexp(-0.5 * (z[0] + 2) ** 2, jnp.log(0.5) - 0.5 * (z[0] - 3) ** 2)


def fit(log_density: Callable[[jax.Array], jax.Array], family: Any, **changed: Any) -> dlrd.Fit:
    return dlrd.fit(log_density, family, **({"key": 0, "progress": False} | changed))


def verdict(fit: dlrd.Fit) -> Verdict:
    assert fit.verdict is not None
    return fit.verdict


def says(fit: dlrd.Fit, words: str) -> bool:
    return any(words in warning for warning in verdict(fit).warnings)


def same_bits(left: dlrd.Fit, right: dlrd.Fit) -> bool:
    families = zip(jax.tree.leaves(left.family), jax.tree.leaves(right.family), strict=True)
    histories = zip(vars(left.history).values(), vars(right.history).values(), strict=True)
    return (left.outcome, repr(left.verdict)) == (right.outcome, repr(right.verdict)) and all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in [*families, *histories]
    )


@pytest.fixture(scope="module")
def mean_field() -> dlrd.Fit:
    return fit(correlated, dlrd.MeanFieldNormal.standard(3))


@pytest.fixture(scope="module")
def centred_hierarchy() -> dlrd.Fit:
    """To a tolerance that cannot be reached: what it warns of is known long before."""
    return fit(eight_schools, dlrd.FullRankNormal.standard(10), max_gradients=20_000, tolerance=1e-5)


def check_correlated(fit: dlrd.Fit, best: Any) -> None:
    """Certified, and rightly so."""
    exact = dlrd.FullRankNormal(MEAN, np.linalg.cholesky(COVARIANCE))
    assert fit.outcome is dlrd.Outcome.CERTIFIED
    assert verdict(fit).gap < TOLERANCE
    assert float(dlrd.kl(fit.family, exact) - dlrd.kl(best, exact)) < TOLERANCE
    log_evidence = 0.5 * np.linalg.slogdet(2 * np.pi * COVARIANCE)[1]
    # At the full-rank optimum no noise is left, but that of single precision.
    error = 4 * verdict(fit).elbo_error + 1e-4
    assert abs(fit.elbo - log_evidence + float(dlrd.kl(fit.family, exact))) < error


def test_mean_field_of_a_correlated_normal(mean_field: dlrd.Fit) -> None:
    scale = np.diagonal(np.linalg.inv(COVARIANCE)) ** -0.5
    check_correlated(mean_field, dlrd.MeanFieldNormal(MEAN, np.log(scale)))
    assert mean_field.family.mean.dtype == jnp.float32
    assert not says(mean_field, "other mode")
    assert not says(mean_field, "funnel")


def test_double_precision() -> None:
    with jax.enable_x64(True):
        found = fit(correlated, dlrd.MeanFieldNormal.standard(3))
        assert found.family.mean.dtype == jnp.float64
        scale = np.diagonal(np.linalg.inv(COVARIANCE)) ** -0.5
        check_correlated(found, dlrd.MeanFieldNormal(MEAN, np.log(scale)))


def test_full_rank_of_a_correlated_normal(precision: jnp.dtype) -> None:
    found = fit(correlated, dlrd.FullRankNormal.standard(3))
    assert found.family.mean.dtype == precision
    check_correlated(found, dlrd.FullRankNormal(MEAN, np.linalg.cholesky(COVARIANCE)))
    assert verdict(found).tail_shape < 0.5
    assert verdict(found).warnings == []


@pytest.mark.slow
def test_half_precision_family_keeps_its_type() -> None:
    family = dlrd.MeanFieldNormal(jnp.zeros(3, jnp.bfloat16), jnp.zeros(3, jnp.bfloat16))
    found = fit(correlated, family, max_gradients=2000)
    assert found.family.mean.dtype == jnp.bfloat16
    # Eight bits: a hundredth of a mean of two, beside standard deviations of at least 0.4.
    np.testing.assert_allclose(np.asarray(found.family.mean, float), MEAN, atol=0.2)


def test_low_rank_normal() -> None:
    exact = dlrd.LowRankNormal(jnp.arange(4.0), jnp.linspace(-1, 1, 4), [[1.0], [-2.0], [0.5], [3.0]])
    found = fit(exact.log_prob, dlrd.LowRankNormal.standard(4, rank=1))
    assert found.outcome is dlrd.Outcome.CERTIFIED
    assert verdict(found).gap < TOLERANCE
    assert dlrd.kl(found.family, exact) < TOLERANCE
    assert abs(found.elbo + float(dlrd.kl(found.family, exact))) < 4 * verdict(found).elbo_error + 1e-5


def test_ends_in_the_major_mode_and_tells_of_the_other() -> None:
    found = fit(bimodal, dlrd.MeanFieldNormal.standard(2))
    assert found.outcome is dlrd.Outcome.CERTIFIED
    np.testing.assert_allclose(found.family.mean, 6.0, atol=0.1)
    assert says(found, "1 other mode(s) were found, with an ELBO lower by 2.9")  # log(0.95/0.05)


def test_one_start_ends_in_the_nearest_mode() -> None:
    found = fit(bimodal, dlrd.MeanFieldNormal.standard(2), starts=1)
    np.testing.assert_allclose(found.family.mean, 0.5, atol=0.1)


def test_centred_hierarchy(centred_hierarchy: dlrd.Fit) -> None:
    assert centred_hierarchy.outcome is dlrd.Outcome.BUDGET
    assert says(centred_hierarchy, "depends on z[1], as in a funnel")
    assert says(centred_hierarchy, "non-centred")
    assert np.isfinite(centred_hierarchy.family.mean).all()
    assert 0 < centred_hierarchy.family.mean[0] < 10  # the grand mean is about 4.4


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("key", range(4))
def test_certificate_of_a_centred_hierarchy_is_right(key: int) -> None:
    """Its best mean-field normal ends a ridge along which half the squared gradient says far too little."""
    found = fit(eight_schools, dlrd.MeanFieldNormal.standard(10), key=key)
    assert isinstance(found.family, dlrd.MeanFieldNormal)
    best = optimum(eight_schools, found.family)
    gap, error = elbo_gap(eight_schools, found.family, best.family)
    assert found.outcome is dlrd.Outcome.CERTIFIED
    assert gap - 2 * error < TOLERANCE


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("keys", [range(1), pytest.param(range(1, 6), marks=pytest.mark.slow)])
def test_certificates_of_an_uncentred_hierarchy_are_right(keys: range) -> None:
    """Its best normal is not at the mode, where the fit begins, nor where the gradient there would lead."""
    found = [fit(uncentred_schools, dlrd.FullRankNormal.standard(10), key=key) for key in keys]
    best: Any = optimum(uncentred_schools, dlrd.FullRankNormal.standard(10)).family
    for each in found:
        gap, error = elbo_gap(uncentred_schools, each.family, best)
        assert each.outcome is dlrd.Outcome.CERTIFIED
        assert gap - 2 * error < TOLERANCE


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("key", range(4))
def test_neck_of_a_funnel_is_left_again(key: int) -> None:
    """The family as given ends far above what starts in the neck, whose short run looks settled."""

    def deep_funnel(z: jax.Array) -> jax.Array:
        return -0.5 * (z[0] / 3) ** 2 - 4.5 * z[0] - 0.5 * jnp.sum(z[1:] ** 2) * jnp.exp(-z[0])

    found = fit(deep_funnel, dlrd.MeanFieldNormal.standard(10), key=key)
    # The best has the variance 1/(1/9 + 9/2) for z[0] and exp(mean - variance/2) for the others, mean 0.
    variance = 1 / (1 / 9 + 9 / 2)
    entropy = 0.5 * (10 * np.log(2 * np.pi * np.e) + np.log(variance) - 9 * variance / 2)
    best = entropy - variance / 18 - 4.5
    assert found.outcome is dlrd.Outcome.CERTIFIED
    assert abs(found.elbo - best) < TOLERANCE + 4 * verdict(found).elbo_error


def test_funnel() -> None:
    """The best mean-field normal and the ELBO of any other are known."""

    def elbo(mean: Any, std: Any) -> float:
        inverse = np.exp(-mean[0] + std[0] ** 2 / 2)
        arms = -0.5 * np.sum(std[1:] ** 2 + mean[1:] ** 2) * inverse
        return -(mean[0] ** 2 + std[0] ** 2) / 18 - 2 * mean[0] + arms + np.sum(np.log(std))

    found = fit(funnel, dlrd.MeanFieldNormal.standard(5))
    variance = 9 / 19
    best = elbo(np.zeros(5), np.sqrt([variance, *[np.exp(-variance / 2)] * 4]))
    gap = best - elbo(np.asarray(found.family.mean, float), np.asarray(found.family.std, float))
    assert gap > -1e-5
    assert found.outcome is dlrd.Outcome.CERTIFIED
    assert gap < TOLERANCE
    # The budget: a tolerance that cannot be reached.
    budget = 6000
    short = fit(funnel, dlrd.MeanFieldNormal.standard(5), tolerance=1e-9, max_gradients=budget)
    assert short.outcome is dlrd.Outcome.BUDGET
    assert budget - 2 * LOOK < verdict(short).num_gradients <= budget


def test_density_without_a_curvature() -> None:
    """Laplace's: the best normal has the standard deviation √(π/2), as −σ √(2/π) + log σ tells."""
    found = fit(lambda z: -jnp.sum(jnp.abs(z - 1)), dlrd.MeanFieldNormal.standard(3), max_gradients=20_000)
    best = 3 * (-1 + 0.5 * np.log(np.pi / 2) + 0.5 * np.log(2 * np.pi * np.e))
    assert found.outcome is dlrd.Outcome.CERTIFIED
    assert abs(found.elbo - best) < TOLERANCE + 4 * verdict(found).elbo_error


@pytest.mark.usefixtures("x64")
def test_first_gradient_of_a_googol() -> None:
    found = fit(
        lambda z: -0.5 * jnp.sum(z**2) - jnp.sum((z / 5) ** 140),
        dlrd.MeanFieldNormal(jnp.full(3, 25.0), jnp.zeros(3)),
    )
    is_right = np.allclose(found.family.mean, 0, atol=0.1) and np.allclose(found.family.std, 1, atol=0.1)
    assert is_right or found.outcome in (dlrd.Outcome.BUDGET, dlrd.Outcome.DIVERGED)


def test_density_with_a_wall() -> None:
    found = fit(walled, dlrd.MeanFieldNormal(jnp.ones(3), jnp.zeros(3)))
    assert found.outcome is dlrd.Outcome.DIVERGED
    assert says(found, "log_density is not finite at")
    assert says(found, "Transform bounded parameters")
    assert np.isfinite(found.family.mean).all()
    assert np.isfinite(found.family.std).all()


def test_start_where_there_is_no_density() -> None:
    with pytest.raises(ValueError, match="log_density is -inf at 8 of the 8 first draws"):
        fit(walled, dlrd.MeanFieldNormal(jnp.full(3, -50.0), jnp.zeros(3)))


@pytest.mark.parametrize("max_gradients", [30, 150])
@pytest.mark.parametrize("kind", [dlrd.FullRankNormal, dlrd.MeanFieldNormal])
def test_not_one_gradient_more_than_the_budget(kind: Any, max_gradients: int) -> None:
    """By the model's own count; and the fit is near all the same, the mode being so."""
    num_evaluated = 0

    def evaluate(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal num_evaluated
        num_evaluated += len(z)
        shifted = z - [3.0, -1.0, 0.5]
        return -0.5 * np.sum(shifted**2 / [1.0, 4.0, 0.25], axis=1), -shifted / [1.0, 4.0, 0.25]

    found = fit(dlrd.models.host(evaluate, 3), kind.standard(3), tolerance=1e-6, max_gradients=max_gradients)
    assert num_evaluated == verdict(found).num_gradients <= max_gradients
    assert np.all(np.abs(found.family.mean - np.array([3.0, -1.0, 0.5])) < np.array([1.0, 2.0, 0.5]))
    assert np.isfinite(found.elbo)


def test_seconds_are_a_budget() -> None:
    """Of a model that takes a hundredth of a second each time, and of a tolerance beyond all means."""

    def evaluate(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        time.sleep(0.01)
        return -0.25 * np.sum(z**4, axis=1), -(z**3)

    model = dlrd.models.host(evaluate, 2)
    found = fit(model, dlrd.FullRankNormal.standard(2), tolerance=1e-12, max_seconds=1.0)
    assert found.outcome is dlrd.Outcome.BUDGET
    assert verdict(found).num_gradients < 50_000


@pytest.mark.parametrize("max_gradients", [7400, 7800, 8600])
def test_budget_of_a_mixture(max_gradients: int) -> None:
    """Whatever it is spent on: the comparisons of a family without a certificate count too."""
    mixture = dlrd.Mixture([dlrd.MeanFieldNormal([0.0], [0.0]), dlrd.MeanFieldNormal([3.0], [0.0])])
    found = fit(mixed, mixture, tolerance=1e-9, max_gradients=max_gradients)
    assert found.outcome is dlrd.Outcome.BUDGET
    assert verdict(found).num_gradients <= max_gradients


def test_mixture() -> None:
    mixture = dlrd.Mixture([dlrd.MeanFieldNormal([0.0], [0.0]), dlrd.MeanFieldNormal([3.0], [0.0])])
    found = fit(mixed, mixture)
    assert found.outcome in (dlrd.Outcome.AGREED, dlrd.Outcome.BUDGET)
    log_evidence = np.log(1.5 * np.sqrt(2 * np.pi))
    # Twice as many steps twice gave no more than the tolerance, so little is left.
    assert abs(found.elbo - log_evidence) < 4 * TOLERANCE + 4 * verdict(found).elbo_error


def test_mixture_goes_on_bit_for_bit(tmp_path: pathlib.Path) -> None:
    """In the middle of a round."""
    mixture = dlrd.Mixture([dlrd.MeanFieldNormal([0.0], [0.0]), dlrd.MeanFieldNormal([3.0], [0.0])])
    whole = fit(mixed, mixture, tolerance=1e-9, max_gradients=20_000)
    calls = 0

    def pressed(reading: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 9:
            raise KeyboardInterrupt

    def parted(progress: Any) -> dlrd.Fit:
        checkpoint = tmp_path / "fit"
        return fit(
            mixed, mixture, tolerance=1e-9, max_gradients=20_000, checkpoint=checkpoint, progress=progress
        )

    assert parted(pressed).outcome is dlrd.Outcome.INTERRUPTED
    resumed = parted(False)
    assert resumed.num_steps == whole.num_steps
    for one, other in zip(jax.tree.leaves(resumed.family), jax.tree.leaves(whole.family), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_flow() -> None:
    base = flowjax.distributions.Normal(jnp.zeros(3), 1.0)
    flow = flowjax.flows.masked_autoregressive_flow(
        jax.random.key(0), base_dist=base, nn_width=4, nn_depth=1, flow_layers=1
    )
    found = fit(correlated, flow, max_gradients=20_000)
    assert found.outcome in (dlrd.Outcome.AGREED, dlrd.Outcome.BUDGET)
    assert verdict(found).num_gradients <= 20_000
    log_evidence = 0.5 * np.linalg.slogdet(2 * np.pi * COVARIANCE)[1]
    assert np.mean(found.history.elbo[:10]) < found.elbo < log_evidence + 4 * verdict(found).elbo_error


def test_same_key_same_result_with_and_without_a_bar(
    mean_field: dlrd.Fit, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = fit(correlated, dlrd.MeanFieldNormal.standard(3), progress=True)
    assert same_bits(shown, mean_field)
    assert "gradients" in capsys.readouterr().out
    steps: list[int] = []
    told = fit(correlated, dlrd.MeanFieldNormal.standard(3), progress=steps.append)
    assert same_bits(told, mean_field)
    assert steps[-1] == told.num_steps
    other = fit(correlated, dlrd.MeanFieldNormal.standard(3), key=1)
    assert not same_bits(other, mean_field)


@pytest.mark.slow
@pytest.mark.parametrize("num_draws", [1, 3, 600])
def test_any_number_of_draws(num_draws: int) -> None:
    """Also those that do not make pairs, or are more than the first steps have gradients."""
    found = fit(correlated, dlrd.MeanFieldNormal.standard(3), num_draws=num_draws)
    scale = np.diagonal(np.linalg.inv(COVARIANCE)) ** -0.5
    check_correlated(found, dlrd.MeanFieldNormal(MEAN, np.log(scale)))
    assert found.num_draws == num_draws
    assert verdict(found).gradients["steps"] == num_draws * found.num_steps


def test_verdict_counts_what_was_spent(mean_field: dlrd.Fit) -> None:
    spent = verdict(mean_field)
    assert spent.gradients["steps"] == mean_field.num_steps * mean_field.num_draws
    assert spent.gradients["certificates"] >= LOOK
    assert spent.num_gradients == sum(spent.gradients.values())
    assert mean_field.history.step[-1] == mean_field.num_steps


def test_summary_says_how_sure_it_is(mean_field: dlrd.Fit, centred_hierarchy: dlrd.Fit) -> None:
    text = str(mean_field.summary())
    assert mean_field.outcome.sentence in text
    assert "of the family's best nearby (tolerance 0.01)." in text
    assert f"Gradients: {verdict(mean_field).num_gradients:,} (start " in text
    assert "k̂ = " in text
    text = str(centred_hierarchy.summary())
    assert "Warning: how narrow the posterior is along" in text


def test_family_that_is_too_narrow_is_told_apart() -> None:
    """Of a normal with a correlation of 0.99 the best mean-field one has a hundredth of the variance along
    the diagonal: the ratios have a Pareto tail of shape 1 − 1/100. Of four such pairs, few draws show it."""

    def ridge(z: jax.Array) -> jax.Array:
        left, right = z[:4], z[4:]
        return -0.5 * jnp.sum(left**2 - 1.98 * left * right + right**2) / (1 - 0.99**2)

    found = fit(ridge, dlrd.MeanFieldNormal.standard(8))
    assert found.outcome is dlrd.Outcome.CERTIFIED
    shape, error = verdict(found).tail_shape, verdict(found).tail_shape_error
    assert max(0.7, 0.99 - 4 * error) < shape < 0.99 + 4 * error
    assert says(found, "heavier tails")
    assert says(found, f"try {dlrd.MeanFieldNormal.richer}")


def test_saved_fit_keeps_its_verdict(
    mean_field: dlrd.Fit, centred_hierarchy: dlrd.Fit, tmp_path: pathlib.Path
) -> None:
    for i, found in enumerate((mean_field, centred_hierarchy)):
        found.save(tmp_path / f"{i}.dlrd")
        loaded = dlrd.load(tmp_path / f"{i}.dlrd")
        assert loaded.verdict == found.verdict
        assert same_bits(loaded, found)
