"""Mixtures: their numbers against numpy and scipy, their gradients against quadrature, their fits."""

import pathlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from scipy import special, stats

import dlrd
from dlrd import (
    FullRankNormal,
    MeanFieldNormal,
    Mixture,
    reparameterized,
    score_function,
    sticking_the_landing,
)
from dlrd.families import Composed, Stratified

WEIGHTS = np.array([0.2, 0.5, 0.3])
LOCS = np.array([[0.5, -2.0], [3.0, 1.0], [-2.0, 4.0]])
LOG_SCALES = np.array([[-1.0, 0.3], [0.5, 0.0], [0.2, -0.4]])
CHOLESKYS = np.array([[[1.5, 0.0], [-0.7, 0.4]], [[0.6, 0.0], [0.3, -1.2]], [[-1.0, 0.0], [0.9, 0.8]]])
SCALES = {MeanFieldNormal: LOG_SCALES, FullRankNormal: CHOLESKYS}
COVARIANCES = {
    MeanFieldNormal: np.exp(2 * LOG_SCALES)[:, :, None] * np.eye(2),
    FullRankNormal: CHOLESKYS @ CHOLESKYS.swapaxes(1, 2),
}
NUM_ESTIMATES = 20_000

# A few operations on numbers of size 1 to 10, each rounded once, with a condition number below 100.
ROUNDING = {"rtol": 1e-13, "atol": 1e-13}


@pytest.fixture(params=[MeanFieldNormal, FullRankNormal], scope="module")
def kind(request):
    return request.param


def mixture(kind):
    return Mixture([kind(*arrays) for arrays in zip(LOCS, SCALES[kind], strict=True)], np.log(WEIGHTS) + 0.7)


@eqx.filter_jit
def log_prob(q, x):
    return q.log_prob(x)


@eqx.filter_jit
def sample(q, num_draws):
    return q.sample(jax.random.key(0), (num_draws,))


def log_prob_by_hand(kind, x):
    log_probs = [
        stats.multivariate_normal(*moments).logpdf(x) for moments in zip(LOCS, COVARIANCES[kind], strict=True)
    ]
    return special.logsumexp(np.stack(log_probs, axis=-1), b=WEIGHTS, axis=-1)


def check_moments(draws, mean, covariance):
    """Means of all coordinates and their products within 5 standard errors, those of the draws themselves."""
    products = draws[:, :, None] * draws[:, None, :]
    exact = covariance + np.outer(mean, mean)
    for values, expected in [(draws, mean), (products, exact)]:
        error = values.std(axis=0) / np.sqrt(len(values))
        np.testing.assert_array_less(np.abs(values.mean(axis=0) - expected), 5 * error)


@pytest.mark.usefixtures("x64")
def test_log_prob_is_the_weighted_sum_of_scipys(kind):
    x = np.random.default_rng(0).normal(scale=3, size=(4, 5, 2))
    # The quadratic form reaches 1e3 far from the mean, so rounding is relative to that.
    np.testing.assert_allclose(log_prob(mixture(kind), x), log_prob_by_hand(kind, x), rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_log_prob_far_away_and_with_vanishing_weights(kind):
    """Densities and weights that are 0 as numbers are not so as logarithms."""
    far = np.array([[300.0, -500.0], [-1e4, 2e4]])
    expected = log_prob_by_hand(kind, far)
    assert np.all(expected < -1e4)
    np.testing.assert_allclose(log_prob(mixture(kind), far), expected, rtol=1e-12)
    component = kind(LOCS[0], SCALES[kind][0])
    value, gradient = eqx.filter_value_and_grad(log_prob)(Mixture([component] * 2, [-2000.0, 0.0]), LOCS[1])
    np.testing.assert_allclose(value, log_prob(component, LOCS[1]), rtol=1e-14)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


@pytest.mark.usefixtures("x64")
def test_moments(kind):
    q = mixture(kind)
    np.testing.assert_allclose(q.weights, WEIGHTS, **ROUNDING)
    np.testing.assert_allclose(q.mean, WEIGHTS @ LOCS, **ROUNDING)
    second = WEIGHTS @ (np.diagonal(COVARIANCES[kind], axis1=1, axis2=2) + LOCS**2)
    np.testing.assert_allclose(q.std, np.sqrt(second - (WEIGHTS @ LOCS) ** 2), **ROUNDING)


@pytest.mark.usefixtures("x64")
def test_draws_have_the_moments(kind):
    draws = np.asarray(sample(mixture(kind), 50_000))
    centered = LOCS - WEIGHTS @ LOCS
    covariance = np.tensordot(WEIGHTS, COVARIANCES[kind] + centered[:, :, None] * centered[:, None, :], 1)
    check_moments(draws, WEIGHTS @ LOCS, covariance)


@pytest.mark.usefixtures("x64")
def test_strata_are_draws_of_the_components(kind):
    q = mixture(kind)
    assert isinstance(q, Stratified)
    strata = np.asarray(q.sample_strata(jax.random.key(0), 50_000))
    assert strata.shape == (50_000, 3, 2)
    for draws, loc, covariance in zip(strata.swapaxes(0, 1), LOCS, COVARIANCES[kind], strict=True):
        check_moments(draws, loc, covariance)
    correlations = np.corrcoef(strata.reshape(len(strata), -1).T)
    between = ~np.kron(np.eye(3, dtype=bool), np.ones((2, 2), dtype=bool))
    np.testing.assert_array_less(np.abs(correlations[between]), 5 / np.sqrt(len(strata)))


@pytest.mark.usefixtures("x64")
def test_parts_are_the_components_and_make_the_same_mixture(kind):
    q = mixture(kind)
    assert isinstance(q, Composed)
    assert [type(part) for part in q.parts] == [kind] * 3
    np.testing.assert_allclose([part.mean for part in q.parts], LOCS, **ROUNDING)
    assert eqx.tree_equal(q.with_parts(q.parts, np.asarray(q.logits)), q)
    reverse = q.with_parts(q.parts[::-1], np.log(WEIGHTS[::-1]))
    np.testing.assert_allclose(reverse.mean, q.mean, **ROUNDING)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.usefixtures("x64")
def test_components_are_drawn_by_their_weights(dtype):
    q = Mixture([MeanFieldNormal([loc], [-4.0]) for loc in (0.0, 1.0, 2.0)], np.log([0.02, 0.38, 0.6]))
    q = jax.tree.map(lambda leaf: leaf.astype(dtype), q)
    weights = np.asarray(special.softmax(np.asarray(q.logits, np.float64)))
    draws = np.round(np.asarray(sample(q, 200_000), np.float64)).ravel()
    shares = np.array([np.mean(draws == loc) for loc in (0, 1, 2)])
    np.testing.assert_array_less(np.abs(shares - weights), 5 * np.sqrt(weights * (1 - weights) / len(draws)))


def test_weights_are_equal_by_default(precision):
    q = Mixture([MeanFieldNormal.standard(2), MeanFieldNormal([1.0, 2.0], [0.0, 0.0])])
    np.testing.assert_array_equal(q.weights, [0.5, 0.5])
    assert {leaf.dtype for leaf in jax.tree.leaves(q)} == {precision}


@pytest.mark.usefixtures("x64")
def test_float32_stays_float32_while_float64_is_on(kind):
    component = jax.tree.map(lambda leaf: leaf.astype("float32"), kind.standard(2))
    q = Mixture([component, component])
    draws = eqx.filter_eval_shape(sample, q, 2)
    log_probs = eqx.filter_eval_shape(log_prob, q, draws)
    assert draws.dtype == log_probs.dtype == q.std.dtype == q.weights.dtype == jnp.float32


@pytest.mark.usefixtures("x64")
def test_made_inside_a_compiled_function(kind):
    def made(locs):
        return Mixture([kind(loc, SCALES[kind][0]) for loc in locs])

    inside = jax.jit(lambda locs: made(locs).log_prob(locs[0]))(LOCS)
    np.testing.assert_allclose(inside, log_prob(made(LOCS), LOCS[0]), rtol=1e-14)


def on_a_line(kind):
    """A mixture in one dimension whose components overlap; one scale of the full-rank normals is negative."""
    scales = np.array([0.8, 0.5, 1.3])
    raw = np.log(scales)[:, None] if kind is MeanFieldNormal else (scales * [1, -1, 1])[:, None, None]
    components = [kind([loc], scale) for loc, scale in zip([-1.0, 0.3, 1.5], raw, strict=True)]
    return Mixture(components, [0.4, -0.3, 0.1])


def two_wells(z):
    return -0.1 * jnp.sum((z**2 - 3) ** 2) + jnp.sum(z)


@eqx.filter_jit
def exact(q):
    """The ELBO by the trapezium rule, and its gradient.

    The rule is exact to rounding for smooth functions with steps far below their width.
    """

    def elbo(q):
        normals = q.components
        scales = (
            normals.cholesky[:, 0, 0] if hasattr(normals, "cholesky") else jnp.exp(normals.log_scale[:, 0])
        )
        grid, step = jnp.linspace(-12, 12, 1201, retstep=True)
        noise = (grid[:, None] - normals.loc[:, 0]) / scales
        densities = jnp.exp(-0.5 * noise**2) / jnp.abs(scales) / jnp.sqrt(2 * jnp.pi)
        density = densities @ (jnp.exp(q.logits) / jnp.sum(jnp.exp(q.logits)))
        # Far out the density is 0 as a number; so is its share of the integral.
        log_density = jnp.log(jnp.where(density > 0, density, 1))
        return step * jnp.sum(density * (jax.vmap(two_wells)(grid[:, None]) - log_density))

    value, gradient = eqx.filter_value_and_grad(elbo)(q)
    return ravel_pytree(gradient)[0], value


@eqx.filter_jit
def many_estimates(estimator, q, keys):
    """Independent gradients as rows, and the ELBO estimates of the same draws."""

    def one(key):
        estimate = estimator(two_wells, q, key, 2)
        return ravel_pytree(estimate.gradient)[0], jnp.mean(estimate.elbo_terms)

    return jax.vmap(one)(keys)


def check_unbiased(estimator, q):
    keys = jax.random.split(jax.random.key(0), NUM_ESTIMATES)
    for samples, expected in zip(many_estimates(estimator, q, keys), exact(q), strict=True):
        samples = np.asarray(samples, np.float64)
        error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
        # 5 standard errors: one false failure in 10⁶ components.
        np.testing.assert_array_less(np.abs(samples.mean(axis=0) - np.asarray(expected)), 5 * error)
        assert np.linalg.norm(error) < 0.1 * np.linalg.norm(expected)  # the comparison says something


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("estimator", [reparameterized, sticking_the_landing, score_function])
def test_gradients_are_unbiased(estimator, kind):
    check_unbiased(estimator, on_a_line(kind))


def test_gradients_are_unbiased_in_float32():
    q = on_a_line(MeanFieldNormal)
    assert {leaf.dtype for leaf in jax.tree.leaves(q)} == {jnp.dtype("float32")}
    check_unbiased(sticking_the_landing, q)


@eqx.filter_jit
def both_estimates(log_density, q):
    """Of sticking the landing and of the plain gradient, with the same draws."""
    return [rule(log_density, q, jax.random.key(0), 6) for rule in (sticking_the_landing, reparameterized)]


@eqx.filter_jit
def weighted_terms_and_score(q):
    """The terms of the estimates above, and the gradient of log q at their draws, held fixed, in the mean."""
    strata = q.sample_strata(jax.random.key(0), 6)
    score = jax.grad(lambda other: jnp.mean(other.log_prob(strata) @ q.weights))(q)
    return (jax.vmap(jax.vmap(two_wells))(strata) - q.log_prob(strata)) @ q.weights, score


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_values_are_the_same_and_gradients_differ_by_the_weighted_score(kind):
    """The weights before the terms keep their gradient in both, so what is left out is the score of log q."""
    q = on_a_line(kind)
    terms, score = weighted_terms_and_score(q)
    landed, plain = both_estimates(two_wells, q)
    difference = jax.tree.map(jnp.subtract, landed.gradient, plain.gradient)
    # A hundred roundings of terms of size up to 100, in whichever order the compiler puts them.
    np.testing.assert_allclose(landed.elbo_terms, terms, atol=1e-12)
    np.testing.assert_allclose(plain.elbo_terms, terms, atol=1e-12)
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, atol=1e-12), difference, score)


@pytest.mark.slow
def test_no_noise_where_the_mixture_is_the_target(kind, precision):
    q = mixture(kind)
    inverses = np.linalg.inv(COVARIANCES[kind])
    factors = WEIGHTS / np.sqrt(np.linalg.det(2 * np.pi * COVARIANCES[kind])) * np.exp(3.5)

    def same_mixture(z):
        centered = z - q.components.loc
        squares = jnp.einsum("ki,kij,kj->k", centered, jnp.asarray(inverses), centered)
        return jax.nn.logsumexp(-0.5 * squares, b=jnp.asarray(factors))

    landed, plain = both_estimates(same_mixture, q)
    # Gradients of size 10 that cancel, with the condition numbers of the covariances, up to 50.
    rounding = 500 * float(jnp.finfo(precision).eps)
    for quiet, noisy in zip(jax.tree.leaves(landed.gradient), jax.tree.leaves(plain.gradient), strict=True):
        np.testing.assert_allclose(quiet, 0, atol=rounding)
        assert np.max(np.abs(noisy)) > 10 * rounding
    # There p/q is constant: every draw gives the ELBO, the logarithm of the evidence.
    np.testing.assert_allclose(landed.elbo_terms, 3.5, atol=rounding)


ADAM = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(5e-2))


def start():
    """Two normals near the origin, either side of it."""
    return Mixture([MeanFieldNormal([loc, 0.0], [0.0, 0.0]) for loc in (-1.0, 1.0)])


def two_normals(z):
    """Weights 0.3 and 0.7, centres (−2, 0) and (2, 1), standard deviations 0.6 and 1.2."""
    centers, scales = jnp.array([[-2.0, 0.0], [2.0, 1.0]]), jnp.array([0.6, 1.2])
    squares = jnp.sum((z - centers) ** 2, axis=1) / scales**2
    return jax.nn.logsumexp(-0.5 * squares, b=jnp.array([0.3, 0.7]) / scales**2)


@pytest.mark.slow
def test_a_fit_finds_the_weights(precision):
    """The target is in the family, so the noise vanishes at the optimum and the fit gets there."""
    fit = dlrd.fit(two_normals, start(), key=0, optimizer=ADAM, steps=3000, progress=False)
    assert {leaf.dtype for leaf in jax.tree.leaves(fit.family)} == {precision}
    np.testing.assert_allclose(fit.family.weights, [0.3, 0.7], atol=1e-3)
    np.testing.assert_allclose(fit.family.components.loc, [[-2.0, 0.0], [2.0, 1.0]], atol=1e-3)
    np.testing.assert_allclose(np.exp(fit.family.components.log_scale), [[0.6] * 2, [1.2] * 2], atol=1e-3)
    assert fit.elbo == pytest.approx(np.log(2 * np.pi), abs=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_each_of_many_fits_is_the_fit_alone():
    arguments = {"optimizer": ADAM, "steps": 200, "num_draws": 2, "progress": False}
    fits = dlrd.fit_many(two_normals, start(), keys=[3, 4], **arguments)
    for fit, key in zip(fits, [3, 4], strict=True):
        alone = dlrd.fit(two_normals, start(), key=key, **arguments)
        # Batched sums may be ordered otherwise: rounding that the steps amplify.
        np.testing.assert_allclose(fit.family.logits, alone.family.logits, atol=1e-8)
        np.testing.assert_allclose(fit.family.mean, alone.family.mean, atol=1e-8)


def test_load_gives_the_saved_fit(tmp_path: pathlib.Path):
    fit = dlrd.fit(two_normals, start(), key=0, optimizer=ADAM, steps=20, progress=False)
    fit.save(tmp_path / "fit.dlrd")
    loaded = dlrd.load(tmp_path / "fit.dlrd", family=start())
    assert eqx.tree_equal(loaded.family, fit.family)
    assert repr(loaded) == repr(fit)
    other = Mixture([MeanFieldNormal.standard(2)] * 3)
    with pytest.raises(ValueError, match="family must have the structure of the Mixture saved in"):
        dlrd.load(tmp_path / "fit.dlrd", family=other)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Mixture([]), ValueError, r"components must be a list of at least one family, got \[\]"),
        (
            lambda: Mixture(MeanFieldNormal.standard(2)),
            ValueError,
            r"components must be a list.*got MeanFieldNormal\(",
        ),
        (lambda: Mixture([1.0, 2.0]), TypeError, "components must be families, got 1.0 among them"),
        (
            lambda: Mixture([MeanFieldNormal.standard(2), FullRankNormal.standard(2)]),
            ValueError,
            r"components must be of one type.*a MeanFieldNormal of \(2,\), \(2,\) and a FullRankNormal of",
        ),
        (
            lambda: Mixture([FullRankNormal.standard(2), FullRankNormal.standard(3)]),
            ValueError,
            r"equal shapes.*a FullRankNormal of \(2,\), \(2, 2\) and a FullRankNormal of \(3,\), \(3, 3\)",
        ),
        (
            lambda: Mixture([start(), start()]),
            TypeError,
            "components must not be mixtures, got one; list its components instead",
        ),
        (
            lambda: Mixture([MeanFieldNormal.standard(2)] * 3, [0.0, 0.0]),
            ValueError,
            r"logits must have shape \(3,\), an entry for each component, got \(2,\)",
        ),
        (lambda: Mixture([MeanFieldNormal.standard(2)], [1j]), TypeError, "logits must be real, got"),
    ],
)
def test_errors_name_the_argument_and_the_value(make, error, message):
    with pytest.raises(error, match=message):
        make()
