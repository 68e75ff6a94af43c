"""Draws from a Sobol sequence that goes on from step to step."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import dlrd
from dlrd.families import KnowsNoise, Natural, SecondOrder
from dlrd.families.coupled import Coupled
from dlrd.families.couplings import couplings
from dlrd.families.pattern import Pattern
from dlrd.gradients import sobol
from dlrd.gradients.sobol import Driven, sobol_noise
from dlrd.paper.problems import synthetic


def stream(num_steps, num_draws, size, key=0, dtype=jnp.float32):
    """The noise of the first steps, one after the other."""
    each = jax.vmap(lambda step: sobol_noise(jax.random.key(key), step, num_draws, size, dtype))
    return np.asarray(jax.jit(each)(jnp.arange(num_steps))).reshape(-1, size)


def test_a_round_is_a_stratified_sample_in_every_dimension():
    length = 2**sobol.LOG_LENGTH
    uniform = stats.norm.cdf(stream(length // 8, 8, 5))
    for column in uniform.T:
        counts = np.bincount((column * 1024).astype(int), minlength=1024)
        np.testing.assert_array_equal(counts, length // 1024)


@pytest.mark.parametrize("size", [1, 7, sobol.MAX_CHEAP])
def test_the_sequence_is_that_of_scipy(size: int) -> None:
    theirs = stats.qmc.Sobol(size, bits=32, rng=np.random.default_rng(0)).random_base2(sobol.LOG_LENGTH)
    np.testing.assert_array_equal(sobol.load_points(size), (theirs * 2.0**32).astype(np.uint32))


def test_each_draw_is_standard_normal_over_keys():
    each = jax.vmap(lambda key: sobol_noise(jax.random.key(key), jnp.asarray(3), 2, 3, jnp.float32)[1])
    draws = np.asarray(jax.jit(each)(jnp.arange(400)))
    for column in draws.T:
        assert stats.kstest(column, "norm").pvalue > 1e-4


def test_the_second_round_is_shifted_and_steps_may_straddle():
    length = 2**sobol.LOG_LENGTH
    noise = stream(2 * length // 3 + 1, 3, 2)
    first, second = noise[:length], noise[length : 2 * length]
    assert np.all(first != second)
    for column in stats.norm.cdf(second).T:
        np.testing.assert_array_equal(np.bincount((column * 64).astype(int), minlength=64), length // 64)


def test_keys_give_other_noise_and_the_same_key_the_same():
    np.testing.assert_array_equal(stream(4, 8, 3), stream(4, 8, 3))
    assert np.all(stream(4, 8, 3) != stream(4, 8, 3, key=1))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_all_noise_is_finite(dtype):
    extremes = jnp.array([0, 2**32 - 1, 2**31], jnp.uint32)
    noise = sobol._normal(extremes, dtype)
    assert noise.dtype == dtype
    assert bool(jnp.all(jnp.isfinite(noise.astype(jnp.float32))))
    assert noise[0] == -noise[1]


def coupled():
    """Of three coordinates in a chain."""
    pairs = couplings(Pattern(3, np.array([1, 2]), np.array([0, 1])))
    precision = [[2.0, -0.5, 0.0], [-0.5, 1.0, 0.3], [0.0, 0.3, 1.0]]
    return Coupled(dlrd.SparseNormal.from_precision([0.3, -1.0, 2.0], precision), pairs, dlrd.SparseNormal)


def quartic(z):
    return -0.5 * jnp.sum(z**2 * jnp.arange(1, 4)) - 0.1 * jnp.sum(z**4) - z[0] * z[1] - z[1] * z[2]


@pytest.mark.usefixtures("x64")
def test_a_driven_family_is_the_family_with_this_noise():
    q, noise = dlrd.FullRankNormal([1.0, 2.0], [[1.0, 0.0], [0.5, 2.0]]), jnp.asarray(stream(1, 4, 2), float)
    driven = Driven(q, noise)
    assert isinstance(driven, Natural)
    assert isinstance(driven, KnowsNoise)
    np.testing.assert_array_equal(driven.sample(jax.random.key(0), (4,)), q.from_noise(noise))
    np.testing.assert_array_equal(driven.sample_noise(jax.random.key(0), 4), noise)
    np.testing.assert_array_equal(driven.log_prob_of_noise(noise), q.log_prob_of_noise(noise))
    assert driven.directions is None
    step = driven.natural_gradient(noise, noise)
    expected = q.moved(q.natural_gradient(noise, noise))
    np.testing.assert_array_equal(driven.moved(step).family.cholesky, expected.cholesky)
    with pytest.raises(ValueError, match=r"the noise is for \(4,\) draws, asked for \(3,\)"):
        driven.sample(jax.random.key(0), (3,))


@pytest.mark.usefixtures("x64")
def test_a_driven_family_passes_hessians_on():
    """The natural gradient is that of the form that fits work with, at this noise."""
    q, half = coupled(), jnp.asarray(stream(1, 2, 3), float)
    noise = jnp.concatenate([half, -half])
    driven = Driven(q, noise)
    assert isinstance(driven, SecondOrder)
    np.testing.assert_array_equal(driven.directions, q.directions)
    model = dlrd.models.function(quartic, 3)
    estimate = eqx.filter_jit(dlrd.natural_gradient)(model, driven, jax.random.key(0), 4)
    draws = q.from_noise(noise)
    slopes = jax.jit(jax.vmap(jax.grad(quartic)))(draws)
    hessians = jax.jit(jax.vmap(jax.hessian(quartic)))(draws[np.array([0, 2])])
    expected = q.natural_gradient(slopes, noise, jnp.swapaxes(hessians @ q.directions.T, 1, 2))
    found = estimate.gradient.family.normal
    # Sums of a few dozen numbers of size 1 to 10.
    for name in ("loc", "diagonal", "lower"):
        theirs = getattr(expected.normal, name)
        np.testing.assert_allclose(getattr(found, name), theirs, rtol=1e-12, atol=1e-12)
    terms = jax.vmap(quartic)(draws) - q.log_prob(draws)
    np.testing.assert_allclose(estimate.elbo_terms, terms, rtol=1e-12)


def run(draws, keys, average=None):
    problem = synthetic(dim=10)
    fits = dlrd.fit_many(
        problem.log_density,
        dlrd.MeanFieldNormal.standard(10),
        keys=keys,
        optimizer=optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-1)),
        steps=4_000,
        num_draws=8,
        draws=draws,
        average=average,
        progress=False,
    )
    return [float(dlrd.jeffreys(fit.family, problem.optimum)) for fit in fits]


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_fits_are_more_accurate():
    independent, even, pairs = (
        np.median(run(draws, range(8))) for draws in ("independent", "sobol", "sobol_pairs")
    )
    assert even < independent / 2
    assert pairs < independent / 2


@pytest.mark.slow
@pytest.mark.parametrize("family", [dlrd.FullRankNormal.standard(3), dlrd.LowRankNormal.standard(3, rank=2)])
def test_other_normals_take_it_too(family):
    optimizer = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-1))
    fit = dlrd.fit(lambda z: -0.5 * jnp.sum((z - 1) ** 2), family, key=0, optimizer=optimizer, steps=500,
                   draws="sobol", progress=False)  # fmt: skip
    np.testing.assert_allclose(fit.family.mean, 1, atol=0.02)


def fitted(**options):
    return dlrd.fit(
        lambda z: -0.5 * (z @ z),
        **{
            "family": dlrd.MeanFieldNormal.standard(2),
            "key": 0,
            "optimizer": optax.adam(1e-2),
            "steps": 40,
            "draws": "sobol",
            "progress": False,
            **options,
        },
    )


def test_a_resumed_fit_goes_on_in_the_sequence(tmp_path):
    fitted(steps=15, checkpoint=tmp_path)
    resumed, whole = fitted(checkpoint=tmp_path), fitted()
    for ours, theirs in zip(jax.tree.leaves(resumed.family), jax.tree.leaves(whole.family), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": "halton"}, 'draws must be "independent", "sobol" or "sobol_pairs"'),
        ({"draws": "sobol_pairs", "num_draws": 3}, "num_draws must be even"),
        ({"gradient": dlrd.score_function}, "needs a reparameterised gradient"),
        (
            {"family": dlrd.Mixture([dlrd.MeanFieldNormal.standard(2)])},
            "needs a family that is made from noise",
        ),
    ],
)
def test_what_cannot_work_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fitted(**options)
