"""The geometry of sparse normals, against dense matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.families import ordering
from dlrd.families._limits import MAX_STRETCH
from dlrd.families.elimination import eliminate
from dlrd.families.pattern import Pattern
from dlrd.families.sparse_geometry import (
    MANY,
    MIN_SHRINKAGE,
    NUM_IN_MANY,
    NUM_SKETCHES,
    NUM_TRIALS,
    changed_factor,
    further_factor,
    sketched,
    stein_change,
)

pytestmark = pytest.mark.usefixtures("x64")

DIM = 16
EPS = float(np.finfo(float).eps)


@pytest.fixture(scope="module")
def elimination():
    """Of a chain, and one that all others depend on."""
    pairs = [(i + 1, i) for i in range(DIM - 2)] + [(DIM - 1, i) for i in range(DIM - 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "SMALL_TAIL", 2)
        found = eliminate(Pattern(DIM, *np.unique(pairs, axis=0).T))
    assert found is not None
    assert found.num_levels > 1
    return found


@pytest.fixture(scope="module")
def compiled():
    return {each.__name__: jax.jit(each) for each in (changed_factor, sketched, stein_change)}


def random_factor(elimination, seed=0):
    """T, with a diagonal of both signs."""
    rng = np.random.default_rng(seed)
    diagonal = rng.uniform(1, 2, DIM) * rng.choice([-1, 1], DIM)
    return jnp.asarray(diagonal), jnp.asarray(0.3 * rng.normal(size=elimination.num_entries))


def random_change(elimination, seed=1):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=DIM)), jnp.asarray(rng.normal(size=elimination.num_entries))


def triangle(elimination, values):
    matrix = np.diag(np.asarray(values[0], float))
    matrix[elimination.rows, elimination.columns] = values[1]
    return matrix


def symmetric(elimination, values):
    matrix = triangle(elimination, values)
    return matrix + np.tril(matrix, -1).T


def precision_of(elimination, factor):
    return triangle(elimination, factor) @ triangle(elimination, factor).T


def test_steins_identity_by_its_sum(elimination, compiled):
    residual, scores = jnp.asarray(np.random.default_rng(2).normal(size=(2, 7, DIM)))
    outer = np.einsum("ni,nj->ij", residual, scores) / len(residual)
    expected = -0.5 * (outer + outer.T)
    diagonal, lower = compiled["stein_change"](elimination, residual, scores)
    # Means of seven products of size 1.
    np.testing.assert_allclose(diagonal, expected.diagonal(), rtol=0, atol=20 * EPS)
    expected = expected[elimination.rows, elimination.columns]
    np.testing.assert_allclose(lower, expected, rtol=0, atol=20 * EPS)


@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_a_positive_change_is_made_as_it_is(elimination, compiled, size):
    """Λ + Δ, where Δ is a precision of its own, however large."""
    factor, other = random_factor(elimination), random_factor(elimination, 3)
    change = jax.tree.map(lambda part: size * part, elimination.product(*other))
    new = compiled["changed_factor"](elimination, factor, change)
    expected = precision_of(elimination, factor) + size * precision_of(elimination, other)
    atol = 4 * DIM * EPS * np.abs(expected).max()
    np.testing.assert_allclose(precision_of(elimination, new), expected, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("shrinkage", "taken"),
    [(0.5, 0.5), (0.79, 0.79), (0.81, 0.81 / 4), (1.0, 0.25), (3.0, 0.75), (4.0, 0.25)],
)
def test_variances_grow_by_a_limited_factor(elimination, compiled, shrinkage, taken):
    """Where the whole precision shrinks: all of a step that leaves a fifth of it, else a quarter, or less."""
    assert 1 - taken > MIN_SHRINKAGE
    factor = random_factor(elimination)
    change = jax.tree.map(lambda part: -shrinkage * part, elimination.product(*factor))
    new = compiled["changed_factor"](elimination, factor, change)
    before, after = (precision_of(elimination, each) for each in (factor, new))
    atol = 4 * DIM * EPS * np.abs(before).max()
    np.testing.assert_allclose(after, (1 - taken) * before, rtol=0, atol=atol)


def test_conditional_precisions_shrink_by_no_more_than_the_limit(elimination, compiled):
    factor = random_factor(elimination)
    num_limited = 0
    for seed in range(20):
        change = jax.tree.map(lambda part: 10 * part, random_change(elimination, seed))
        new = compiled["changed_factor"](elimination, factor, change)
        ratio = np.asarray(new[0] / factor[0]) ** 2
        assert np.all(ratio > MIN_SHRINKAGE)
        whole = precision_of(elimination, factor) + symmetric(elimination, change)
        num_limited += np.linalg.eigvalsh(whole)[0] < 0
    assert num_limited > 10


@pytest.mark.parametrize("size", [-(4.0 ** (NUM_TRIALS + 1)), -np.inf, np.nan])
def test_what_no_trial_makes_small_enough_changes_nothing(elimination, compiled, size):
    factor = random_factor(elimination)
    change = jax.tree.map(lambda part: size * part, elimination.product(*factor))
    for old, new in zip(factor, compiled["changed_factor"](elimination, factor, change), strict=True):
        np.testing.assert_array_equal(new, old)


def test_a_sketch_is_the_image_of_its_vectors(elimination, compiled):
    """T⁻¹ Δ T⁻ᵀ / √2 times them; Δ = Λ shows the vectors themselves."""
    factor, change = random_factor(elimination), random_change(elimination)
    vectors = compiled["sketched"](elimination, factor, elimination.product(*factor))
    vectors = np.asarray(vectors).reshape(NUM_SKETCHES, DIM)
    inverse = np.linalg.inv(triangle(elimination, factor))
    whitened = inverse @ symmetric(elimination, change) @ inverse.T
    actual = np.asarray(compiled["sketched"](elimination, factor, change)).reshape(vectors.shape)
    atol = DIM * EPS * np.linalg.cond(inverse) ** 2 * np.abs(whitened).max()
    np.testing.assert_allclose(actual, vectors @ whitened, rtol=0, atol=atol)
    # Normal, of variance 1 / (2 · number); with 5 standard errors of mean, variance and correlations.
    normals = vectors * np.sqrt(2 * NUM_SKETCHES)
    assert abs(normals.mean()) < 5 / np.sqrt(normals.size)
    assert abs(np.mean(normals**2) - 1) < 5 * np.sqrt(2 / normals.size)
    between = np.tril(normals.T @ normals / NUM_SKETCHES, -1)
    assert np.abs(between).max() < 5 / np.sqrt(NUM_SKETCHES)


def test_its_square_is_that_of_the_fisher_metric(elimination, compiled):
    """½ tr(Σ Δ Σ Δ) within 5 standard errors: of ‖M v‖², v normal, the variance is 2 ‖M²‖²."""
    factor, change = random_factor(elimination), random_change(elimination)
    covariance = np.linalg.inv(precision_of(elimination, factor))
    product = covariance @ symmetric(elimination, change)
    expected = 0.5 * np.trace(product @ product)
    error = np.sqrt(0.5 * np.trace(np.linalg.matrix_power(product, 4)) / NUM_SKETCHES)
    assert abs(np.sum(compiled["sketched"](elimination, factor, change) ** 2) - expected) < 5 * error
    assert 5 * error < expected  # so that the comparison says something


def test_many_dimensions_have_fewer_vectors():
    none = np.zeros(0, int)
    for dim, num in ((MANY, NUM_SKETCHES), (MANY + 1, NUM_IN_MANY)):
        apart = eliminate(Pattern(dim, none, none))
        assert apart is not None
        values = jnp.ones(dim), jnp.zeros(0)
        assert jax.eval_shape(sketched, apart, values, values).shape == (num * dim,)


def test_the_way_goes_on(elimination):
    """Conditional precisions by factors; the columns of T, divided by its diagonal, linearly."""
    before, now = random_factor(elimination, 4), random_factor(elimination, 5)
    new, lower = further_factor(elimination, before, now, 2.0)
    old_diagonal, diagonal = np.asarray(before[0]), np.asarray(now[0])
    np.testing.assert_allclose(new, diagonal * np.abs(diagonal / old_diagonal) ** 2, rtol=10 * EPS)
    slopes, old_slopes = (np.asarray(low / top[elimination.columns]) for top, low in (now, before))
    expected = 3 * slopes - 2 * old_slopes
    atol = 20 * EPS * np.abs([slopes, old_slopes]).max()
    np.testing.assert_allclose(lower / new[elimination.columns], expected, rtol=0, atol=atol)


def test_no_way_is_no_way(elimination):
    before, now = random_factor(elimination, 4), random_factor(elimination, 5)
    for each in (further_factor(elimination, before, now, 0.0), further_factor(elimination, now, now, 7.0)):
        np.testing.assert_array_equal(each[0], now[0])
        # Divided by the diagonal and multiplied again.
        np.testing.assert_allclose(each[1], now[1], rtol=2 * EPS)


def test_signs_of_columns_do_not_matter(elimination):
    before, now = random_factor(elimination, 4), random_factor(elimination, 5)
    flipped = -before[0], -before[1]
    for one, other in zip(
        further_factor(elimination, before, now, 2.0),
        further_factor(elimination, flipped, now, 2.0),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_extrapolated_scales_stay_within_what_numbers_can_hold(elimination):
    now = random_factor(elimination)
    before = 2 * now[0], now[1]
    diagonal, lower = further_factor(elimination, before, now, 1000.0)
    np.testing.assert_allclose(diagonal, now[0] * np.exp(-MAX_STRETCH), rtol=10 * EPS)
    assert np.isfinite(lower).all()


def test_single_precision_stays_single(elimination):
    """Also where jax and the host compute in double precision."""
    factor, change, before = (
        jax.tree.map(lambda part: part.astype("float32"), each)
        for each in (random_factor(elimination), random_change(elimination), random_factor(elimination, 4))
    )
    vectors = jnp.ones((2, DIM), "float32")
    results = [
        jax.eval_shape(changed_factor, elimination, factor, change),
        jax.eval_shape(sketched, elimination, factor, change),
        jax.eval_shape(stein_change, elimination, vectors, vectors),
        further_factor(elimination, before, factor, 1.0),
    ]
    assert {leaf.dtype for leaf in jax.tree.leaves(results)} == {np.dtype("float32")}
