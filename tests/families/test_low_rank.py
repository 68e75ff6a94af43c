"""The normal with a diagonal and low-rank covariance."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import dlrd
from dlrd import FullRankNormal, LowRankNormal


def example(dim=5, rank=2):
    rng = np.random.default_rng(0)
    return LowRankNormal(rng.normal(size=dim), 0.3 * rng.normal(size=dim), rng.normal(size=(dim, rank)))


def dense(q):
    """The same distribution with its whole covariance, by NumPy."""
    return np.diag(np.exp(2 * np.asarray(q.log_scale))) + np.asarray(q.factor) @ np.asarray(q.factor).T


@pytest.mark.usefixtures("x64")
def test_the_density_is_that_of_the_whole_covariance():
    q = example()
    points = np.random.default_rng(1).normal(size=(7, 3, 5))
    expected = stats.multivariate_normal(q.loc, dense(q)).logpdf(points)
    np.testing.assert_allclose(q.log_prob(jnp.asarray(points)), expected, rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_the_density_of_a_draw_is_known_from_its_noise():
    q = example()
    noise = q.sample_noise(jax.random.key(0), 6).reshape(3, 2, 7)
    np.testing.assert_allclose(q.log_prob_of_noise(noise), q.log_prob(q.from_noise(noise)), rtol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("lengths", [[1e4], [1e4, 1e4], [1e4, 1e2, 1.0]])
def test_single_precision_bears_factors_far_longer_than_the_scales(lengths):
    """A condition of 1e8, also where no column of F shows that one direction of three is a short one."""
    rng, dim, rank = np.random.default_rng(2), 20, len(lengths)
    axes, turn = (np.linalg.qr(rng.normal(size=(size, rank)))[0] for size in (dim, rank))
    log_scale = 0.5 * rng.normal(size=dim)
    factor = np.exp(log_scale)[:, None] * (axes * lengths @ turn)
    single = LowRankNormal(*(jnp.asarray(array, "float32") for array in (np.zeros(dim), log_scale, factor)))
    q = jax.tree.map(lambda leaf: leaf.astype("float64"), single)
    noise = jnp.asarray(rng.normal(size=(16, dim + rank)), "float32")
    draws = single.from_noise(noise)
    # In units of σ a draw is as long as F, and each of its coordinates is rounded.
    rounding = np.finfo("float32").eps * max(lengths) * dim
    exact = q.log_prob(draws.astype("float64"))
    np.testing.assert_allclose(single.log_prob(draws), exact, atol=rounding)
    exact = q.log_prob_of_noise(noise.astype("float64"))
    np.testing.assert_allclose(single.log_prob_of_noise(noise), exact, atol=rounding)
    if min(lengths) == max(lengths):  # F itself is then rounded in no direction that matters
        small = np.finfo("float32").eps * dim
        np.testing.assert_allclose(single.log_prob_of_noise(noise), exact, rtol=small)
    scores = single.natural_gradient(jnp.zeros_like(draws), noise).loc * jnp.exp(single.log_scale)
    centered = q.from_noise(noise.astype("float64"))
    expected = np.mean(np.linalg.solve(dense(q), centered.T), axis=1) * np.exp(q.log_scale)
    np.testing.assert_allclose(scores, expected, atol=np.finfo("float32").eps * max(lengths))


@pytest.mark.usefixtures("x64")
def test_covariance_std_and_root_agree():
    q = example()
    np.testing.assert_allclose(q.covariance, dense(q), rtol=1e-14)
    np.testing.assert_allclose(q.std, np.sqrt(np.diag(dense(q))), rtol=1e-14)
    np.testing.assert_allclose(q.scale_tril @ q.scale_tril.T, dense(q), rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_divergences_see_the_same_distribution():
    q = example()
    p = FullRankNormal(q.loc, np.linalg.cholesky(dense(q)))
    assert dlrd.jeffreys(p, q) < 1e-20
    standard = FullRankNormal.standard(5)
    np.testing.assert_allclose(dlrd.kl(standard, q), dlrd.kl(standard, p), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_gradients_have_no_noise_where_the_family_is_the_target():
    q = example()
    estimate = dlrd.sticking_the_landing(q.log_prob, q, jax.random.key(0), 4)
    for leaf in jax.tree.leaves(estimate.gradient):
        np.testing.assert_allclose(leaf, 0, atol=1e-13)


@pytest.fixture(scope="module")
def fit():
    """Of a normal of its own rank, in double precision."""
    with jax.enable_x64(True):
        return dlrd.fit(
            example(dim=8, rank=1).log_prob,
            LowRankNormal.standard(8, rank=1),
            key=0,
            optimizer=optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(3e-2)),
            steps=4_000,
            num_draws=8,
            progress=False,
        )


@pytest.mark.usefixtures("x64")
def test_a_fit_finds_a_covariance_of_its_own_rank(fit):
    # The family contains the target, so the noise vanishes on the way and only the distance is left.
    assert dlrd.jeffreys(fit.family, example(dim=8, rank=1)) < 1e-3


@pytest.mark.slow
def test_a_hundred_thousand_dimensions_take_no_square_matrix():
    q = LowRankNormal.standard(100_000, rank=4)  # a square matrix would take 40 GB
    draws = q.sample(jax.random.key(0), (2,))
    assert draws.shape == (2, 100_000)
    gradient = jax.grad(lambda q: jnp.sum(q.log_prob(draws)))(q)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(gradient))


@pytest.mark.usefixtures("x64")
def test_saved_summarized_and_loaded(fit, tmp_path):
    np.testing.assert_allclose(fit.summary().std, fit.family.std, rtol=1e-12)
    fit.save(tmp_path / "fit.dlrd")
    loaded = dlrd.load(tmp_path / "fit.dlrd").family
    for ours, theirs in zip(jax.tree.leaves(loaded), jax.tree.leaves(fit.family), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0, 0.0], [0.0], [[1.0], [1.0]]), "log_scale must have shape"),
        (([0.0, 0.0], [0.0, 0.0], [[1.0]]), "factor must have shape"),
        (([0.0, 0.0], [0.0, 0.0], [1.0, 1.0]), "factor must have shape"),
        (([0.0, 0.0], [0.0, 0.0], np.zeros((2, 0))), "rank at least 1"),
    ],
)
def test_bad_shapes_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        LowRankNormal(*arguments)


def test_bad_ranks_are_refused():
    with pytest.raises(ValueError, match="rank must be a whole number"):
        LowRankNormal.standard(3, rank=0)
    assert LowRankNormal.standard(3, rank=10).factor.shape == (3, 3)
