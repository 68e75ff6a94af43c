"""The natural gradients: exact relations, exact zeros, and what happens at bad draws."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families import split
from dlrd.families._limits import MAX_CHANGE
from dlrd.families.coupled import Coupled
from dlrd.families.couplings import couplings
from dlrd.families.pattern import Pattern
from dlrd.gradients.natural import hessian_rows

KEY = jax.random.key(3)
natural_gradient = eqx.filter_jit(dlrd.natural_gradient)
sticking_the_landing = eqx.filter_jit(dlrd.sticking_the_landing)


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def quartic(z: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum((z - 1.0) ** 2 * jnp.arange(1, len(z) + 1)) - 0.1 * jnp.sum(z**4) - z[0] * z[1]


def random_root(dim: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.tril(rng.normal(size=(dim, dim)), -1) + np.diag(rng.uniform(0.5, 2, dim))


def normal_density(mean: Any, covariance: Any):
    precision = jnp.linalg.inv(jnp.asarray(covariance))
    return lambda z: -0.5 * (z - mean) @ precision @ (z - mean)


def test_mean_field_is_the_gradient_divided_by_the_fisher_information() -> None:
    q = dlrd.MeanFieldNormal([0.3, -1.0, 2.0], [0.1, -0.5, 0.7])
    plain = sticking_the_landing(quartic, q, KEY, 16).gradient
    natural = natural_gradient(quartic, q, KEY, 16).gradient
    # The information is 1/σ² for μ, of which one factor 1/σ is in the units, and 2 for log σ.
    np.testing.assert_allclose(natural.loc, q.std * plain.loc)
    np.testing.assert_allclose(natural.log_scale, plain.log_scale / 2)


def test_full_rank_is_the_gradient_in_whitened_coordinates() -> None:
    root = random_root(3)
    q = dlrd.FullRankNormal([0.3, -1.0, 2.0], root)
    plain = sticking_the_landing(quartic, q, KEY, 16).gradient
    natural = natural_gradient(quartic, q, KEY, 16).gradient
    np.testing.assert_allclose(natural.loc, root.T @ plain.loc)
    # The diagonal has information 2; below, the mean of two estimates of the same expectation, of which the
    # plain gradient has the one.
    diagonal = np.diagonal(root.T @ np.asarray(plain.cholesky)) / 2
    np.testing.assert_allclose(np.diagonal(natural.cholesky), diagonal)


def test_full_rank_does_not_depend_on_the_units() -> None:
    units = np.array([1e-3, 1.0, 1e4])
    q = dlrd.FullRankNormal([0.3, -1.0, 2.0], random_root(3))
    scaled = dlrd.FullRankNormal(q.loc * units, q.cholesky * units[:, None])
    here = natural_gradient(quartic, q, KEY, 8).gradient
    there = natural_gradient(lambda z: quartic(z / units), scaled, KEY, 8).gradient
    np.testing.assert_allclose(here.loc, there.loc)
    np.testing.assert_allclose(here.cholesky, there.cholesky)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mean_field", "full_rank", "low_rank", "sparse"])
def test_no_noise_at_an_optimum_within_the_family(kind: str) -> None:
    families = {
        "mean_field": dlrd.MeanFieldNormal([1.0, 2.0], [0.5, -0.5]),
        "full_rank": dlrd.FullRankNormal([1.0, 2.0], random_root(2)),
        "low_rank": dlrd.LowRankNormal([1.0, 2.0], [0.5, -0.5], [[1.0], [2.0]]),
        "sparse": dlrd.SparseNormal.from_precision([1.0, 2.0], [[2.0, -0.5], [-0.5, 1.0]]),
    }
    q = families[kind]
    root = np.asarray(q.scale_tril)
    estimate = natural_gradient(normal_density(q.mean, root @ root.T), q, KEY, 5)
    for leaf in jax.tree.leaves(estimate.gradient):
        np.testing.assert_allclose(leaf, 0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mean_field", "full_rank", "low_rank", "sparse"])
def test_a_small_step_raises_the_elbo(kind: str) -> None:
    """With the same draws before and after."""
    families = {
        "mean_field": dlrd.MeanFieldNormal([0.3, -1.0, 2.0], [0.1, -0.5, 0.7]),
        "full_rank": dlrd.FullRankNormal([0.3, -1.0, 2.0], random_root(3)),
        "low_rank": dlrd.LowRankNormal([0.3, -1.0, 2.0], [0.1, -0.5, 0.7], [[1.0], [0.5], [-1.0]]),
        "sparse": dlrd.SparseNormal.from_precision(
            [0.3, -1.0, 2.0], [[2.0, -0.5, 0.0], [-0.5, 1.0, 0.3], [0.0, 0.3, 1.0]]
        ),
    }
    q, step = families[kind], 1e-4
    estimate = natural_gradient(quartic, q, KEY, 4096)
    moved = q.moved(jax.tree.map(lambda leaf: step * leaf, estimate.gradient))
    before = jnp.mean(dlrd.reparameterized(quartic, q, KEY, 4096).elbo_terms)
    after = jnp.mean(dlrd.reparameterized(quartic, moved, KEY, 4096).elbo_terms)
    assert after > before


def test_bad_draws_are_left_out() -> None:
    """Of draws on both sides of a wall, those within stand for all."""

    def walled(z: jax.Array) -> jax.Array:
        return jnp.where(z[0] > 0, -0.5 * jnp.sum(z**2), -jnp.inf)

    q = dlrd.MeanFieldNormal.standard(2)
    noise = np.asarray(q.sample_noise(KEY, 8))
    assert 0 < np.sum(noise[:, 0] > 0) < 8
    estimate = natural_gradient(walled, q, KEY, 8)
    assert np.isfinite(estimate.elbo_terms).all()
    np.testing.assert_allclose(estimate.gradient.loc, 0, atol=1e-12)


def coupled() -> Coupled:
    """Of three coordinates in a chain."""
    pairs = couplings(Pattern(3, np.array([1, 2]), np.array([0, 1])))
    assert pairs is not None
    precision = [[2.0, -0.5, 0.0], [-0.5, 1.0, 0.3], [0.0, 0.3, 1.0]]
    normal = dlrd.SparseNormal.from_precision([0.3, -1.0, 2.0], precision)
    return Coupled(normal, pairs, dlrd.SparseNormal)


# Sums of a few dozen numbers of size 1 to 10.
ROUNDING = {"rtol": 1e-12, "atol": 1e-12}


@jax.jit
def derivatives(draws: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.vmap(jax.grad(quartic))(draws), jax.vmap(jax.hessian(quartic))(draws)


@pytest.mark.parametrize("num_draws", [1, 5, 8])
def test_a_pair_of_hessians_tells_the_precision(num_draws: int) -> None:
    """The means come from all draws, the precision from two of them that are mirror images."""
    q = coupled()
    noise = q.sample_noise(KEY, num_draws)
    draws, rows = q.from_noise(noise), np.array(hessian_rows(num_draws))
    assert len(rows) == min(num_draws, 2)
    if num_draws > 1:
        np.testing.assert_array_equal(noise[rows[0]], -noise[rows[1]])
    slopes, hessians = derivatives(draws)
    products = jnp.swapaxes(hessians[rows] @ q.directions.T, 1, 2)
    expected, _ = split(q.natural_gradient(slopes, noise, products))
    estimate = natural_gradient(quartic, q, KEY, num_draws)
    assert estimate.is_natural
    assert jax.tree.structure(estimate.gradient) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(estimate.gradient), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, **ROUNDING)


def test_hessians_are_those_of_good_draws() -> None:
    """Of two mirror images on both sides of a wall; the first good draw stands for the one beyond."""

    def walled(z: jax.Array) -> jax.Array:
        return jnp.where(side * (z[0] - 0.3) > 0, quartic(z), -jnp.inf)

    q = coupled()
    draws = q.from_noise(q.sample_noise(KEY, 8))
    side = -float(jnp.sign(draws[0, 0] - 0.3))
    is_good = np.asarray(side * (draws[:, 0] - 0.3) > 0)
    assert not is_good[0]
    _, hessians = derivatives(draws)
    wanted = -np.mean(hessians[np.array([np.argmax(is_good), 4])], axis=0) - q.normal.precision.toarray()
    estimate = natural_gradient(walled, q, KEY, 8)
    assert np.isfinite(estimate.elbo_terms).all()
    order = q.normal.elimination.order
    np.testing.assert_allclose(estimate.gradient.normal.diagonal, wanted.diagonal()[order], **ROUNDING)


def test_densities_of_draws_are_known_by_their_noise() -> None:
    """A scale far below the rounding of the draws: the ELBO's terms have no noise where q is the target."""
    q = dlrd.MeanFieldNormal([1.0, 1.0], [np.log(1e-20), 0.0])
    estimate = natural_gradient(lambda z: -0.5 * (z[1] - 1) ** 2, q, KEY, 4)
    noise = np.asarray(q.sample_noise(KEY, 4))
    expected = 0.5 * noise[:, 0] ** 2 + np.log(2 * np.pi) + np.log(1e-20)
    np.testing.assert_allclose(estimate.elbo_terms, expected, rtol=1e-14)


@pytest.mark.parametrize("size", [1e3, 1e100, 1e200])
def test_no_step_leaves_the_limits(size: float) -> None:
    mean_field = dlrd.MeanFieldNormal.standard(2)
    moved = mean_field.moved(dlrd.MeanFieldNormal([size, -size], [size, -size]))
    np.testing.assert_allclose(moved.loc, [MAX_CHANGE, -MAX_CHANGE])
    np.testing.assert_allclose(moved.log_scale, [MAX_CHANGE, -MAX_CHANGE])
    full_rank = dlrd.FullRankNormal.standard(2)
    changed = full_rank.moved(dlrd.FullRankNormal([0.0, 0.0], [[size, 0.0], [size, -size]]))
    np.testing.assert_allclose(np.linalg.norm(changed.cholesky - np.eye(2)), MAX_CHANGE)


def test_families_without_a_geometry_are_refused() -> None:
    mixture = dlrd.Mixture([dlrd.MeanFieldNormal.standard(1), dlrd.MeanFieldNormal([2.0], [0.0])])
    with pytest.raises(TypeError, match="natural_gradient needs a family that knows its geometry"):
        natural_gradient(lambda z: -jnp.sum(z**2), mixture, KEY, 4)


def test_fit_with_a_rule_alone_reaches_a_badly_scaled_posterior() -> None:
    """Scales from 1e-3 to 1e3 and a strong correlation, from N(0, I), with one rate for all."""
    scales = np.array([1e-3, 1.0, 1e3])
    covariance = np.array([[1, 0.95, 0], [0.95, 1, 0.3], [0, 0.3, 1]]) * np.outer(scales, scales)
    mean = jnp.asarray([0.01, -2.0, 500.0])
    fit = dlrd.fit(
        normal_density(mean, covariance),
        dlrd.FullRankNormal.standard(3),
        key=0,
        optimizer=dlrd.dynamic_decay(0.3, factor=0.3, min_travel=3.0),
        gradient=dlrd.natural_gradient,
        draws="sobol",
        average="tail",
        steps=1000,
        progress=False,
    )
    exact = dlrd.FullRankNormal(mean, np.linalg.cholesky(covariance))
    assert dlrd.jeffreys(fit.family, exact) < 1e-8
