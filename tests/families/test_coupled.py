"""The sparse normal that is fitted by Hessians: Newton's steps, and the gap to the best of all normals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import solve_triangular

import dlrd
from dlrd import FullRankNormal, SparseNormal
from dlrd.families import member_of, ordering, split
from dlrd.families._limits import MAX_CHANGE
from dlrd.families.coupled import Coupled
from dlrd.families.couplings import couplings
from dlrd.families.pattern import Pattern
from dlrd.families.sparse_curvature import sparse_curvature
from dlrd.families.sparse_geometry import MIN_SHRINKAGE, NUM_SKETCHES

pytestmark = pytest.mark.usefixtures("x64")

DIM = 16
PAIRS = np.unique(
    [(i + 1, i) for i in range(DIM - 2)] + [(DIM - 1, i) for i in range(DIM - 1)], axis=0
)  # of a chain, and one that all others depend on
EPS = float(np.finfo(float).eps)


def log_density(z):
    """A random walk whose states have a common scale, and each a wall on one side."""
    states, log_scale = z[:-1], z[-1]
    walk = jnp.diff(states) * jnp.exp(-log_scale)
    walls = jnp.sum(jnp.exp(0.5 * states)) + 0.5 * jnp.sum(states**2)
    return -0.5 * jnp.sum(walk**2) - (DIM - 2) * log_scale - walls - 0.5 * jnp.sum(z**2)


def random_precision(seed):
    rng = np.random.default_rng(seed)
    lower = np.zeros((DIM, DIM))
    lower[PAIRS[:, 0], PAIRS[:, 1]] = rng.normal(size=len(PAIRS))
    scale = rng.uniform(0.5, 2, DIM)
    matrix = lower + lower.T
    return (matrix + np.diag(1 + np.abs(matrix).sum(axis=1))) * np.outer(scale, scale)


@pytest.fixture(scope="module")
def pairs():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "SMALL_TAIL", 2)
        found = couplings(Pattern(DIM, *PAIRS.T))
    assert found is not None
    assert found.elimination.num_levels > 1
    return found


@pytest.fixture(scope="module")
def make(pairs):
    """A normal with this mean and precision, in the form that fits work with."""

    def coupled(loc, precision, kind=FullRankNormal, dtype="float64"):
        curvature = sparse_curvature(pairs, pairs.seeds(float) @ precision)
        assert curvature is not None
        return Coupled(SparseNormal.at(loc, curvature, dtype), pairs, kind)

    with jax.enable_x64(True):
        yield coupled


@pytest.fixture(scope="module")
def q(make):
    with jax.enable_x64(True):
        return make(0.3 * np.random.default_rng(0).normal(size=DIM), random_precision(0))


@jax.jit
def derivatives(draws):
    return jax.vmap(jax.grad(log_density))(draws), jax.vmap(jax.hessian(log_density))(draws)


@eqx.filter_jit
def moved(family, step):
    return family.moved(step)


@eqx.filter_jit
def fisher_coordinates(family, gradient):
    return family.fisher_coordinates(gradient)


@eqx.filter_jit
def natural_gradient(family, slopes, noise, products=None):
    return family.natural_gradient(slopes, noise, *([] if products is None else [products]))


def change_of(family):
    """What a gradient says about the precision, as a matrix."""
    elimination = family.normal.elimination
    rows, columns = elimination.order[elimination.rows], elimination.order[elimination.columns]
    matrix = np.zeros((DIM, DIM))
    matrix[elimination.order, elimination.order] = family.normal.diagonal
    matrix[rows, columns] = matrix[columns, rows] = family.normal.lower
    return matrix


def precision_of(family):
    return family.normal.precision.toarray()


def scaled(gradient, size):
    return jax.tree.map(lambda leaf: size * leaf if eqx.is_inexact_array(leaf) else leaf, gradient)


@eqx.filter_jit
def towards(family, target, precision):
    """The natural gradient for a normal target, from a few draws."""
    noise = family.sample_noise(jax.random.key(1), 4)
    slopes = -(family.from_noise(noise) - target) @ precision
    products = jnp.broadcast_to(-family.directions @ precision, (4, *family.directions.shape))
    return family.natural_gradient(slopes, noise, products)


def rounding(*matrices):
    """Of sums over all coordinates, amplified by at most the worst condition number."""
    return DIM * EPS * max(np.linalg.cond(each) for each in matrices)


def test_the_gradient_is_that_of_the_hessians(q):
    """E[∇ log p + Λ (z − μ)] and E[−∇² log p] − Λ, with the means over these draws for the expectations."""
    noise = jnp.asarray(np.random.default_rng(1).normal(size=(5, DIM)))
    draws = q.from_noise(noise)
    slopes, hessians = derivatives(draws)
    products = hessians @ q.directions.T
    gradient = natural_gradient(q, slopes, noise, jnp.swapaxes(products, 1, 2))
    precision = precision_of(q)
    expected = np.mean(slopes + (draws - q.mean) @ precision, axis=0)
    size = np.abs(slopes).max() + np.abs(precision).sum(axis=1).max()
    np.testing.assert_allclose(gradient.normal.loc, expected, rtol=0, atol=rounding(precision) * size)
    expected = np.mean(-hessians, axis=0) - precision
    size = np.abs(hessians).max() + np.abs(precision).max()
    np.testing.assert_allclose(change_of(gradient), expected, rtol=0, atol=DIM * EPS * size)


def test_gradients_alone_say_the_same(q):
    """The means over many steps, by Stein's identity and by Hessians, within 5 standard errors."""

    def both(key):
        noise = q.sample_noise(key, 16)
        draws = q.from_noise(noise)
        slopes, hessians = derivatives(draws)
        ways = (), (jnp.swapaxes(hessians @ q.directions.T, 1, 2),)
        steps = [q.natural_gradient(slopes, noise, *products).normal for products in ways]
        return [(step.loc, jnp.concatenate(step.factor)) for step in steps]

    keys = jax.random.split(jax.random.key(2), 4000)
    (loc, stein), (same_loc, exact) = jax.jit(lambda keys: jax.lax.map(both, keys))(keys)
    atol = rounding(precision_of(q)) * np.abs(loc).max()
    np.testing.assert_allclose(loc, same_loc, rtol=0, atol=atol)
    error = np.std(stein - exact, axis=0) / np.sqrt(len(keys))
    np.testing.assert_array_less(np.abs(np.mean(stein - exact, axis=0)), 5 * error)
    # The comparison says something, and Hessians have less noise.
    wanted = np.mean(exact, axis=0)
    assert np.linalg.norm(error) < 0.05 * np.linalg.norm(wanted)
    assert np.linalg.norm(np.std(exact, axis=0)) < np.linalg.norm(np.std(stein, axis=0))


def test_no_gradient_where_it_is_the_target(q):
    precision = precision_of(q)
    noise = q.normal.sample_noise(jax.random.key(0), 3)  # without mirror images
    slopes = -(q.from_noise(noise) - q.mean) @ precision
    products = jnp.broadcast_to(-q.directions @ precision, (3, *q.directions.shape))
    size = np.abs(slopes).max()
    for gradient in (natural_gradient(q, slopes, noise), natural_gradient(q, slopes, noise, products)):
        np.testing.assert_allclose(gradient.normal.loc, 0, atol=rounding(precision) * size)
        # Stein's identity multiplies by a score once more.
        np.testing.assert_allclose(change_of(gradient), 0, atol=rounding(precision) * size**2)


@pytest.mark.parametrize("ratio", [1.01 * MIN_SHRINKAGE, 1.0, 1e6])
def test_a_full_step_lands_on_a_normal_target(make, ratio):
    """Newton's, from a mean within the limit, and where the precision shrinks by no more than the limit."""
    precision, other = random_precision(7), random_precision(0)
    largest = np.linalg.eigvals(np.linalg.solve(precision, precision + other)).real.max()
    start = make(np.ones(DIM), (precision + other) / (ratio * largest))
    root = np.linalg.cholesky(precision)
    # In whichever order coordinates are whitened, none is longer than the whole.
    shift = np.linalg.solve(root.T, np.full(DIM, 0.99 * MAX_CHANGE / np.sqrt(DIM)))
    target = np.asarray(start.mean) + shift
    there = moved(start, towards(start, target, precision))
    limit = rounding(precision, precision_of(start))
    np.testing.assert_allclose(precision_of(there), precision, rtol=0, atol=limit * np.abs(precision).max())
    np.testing.assert_allclose(there.mean, target, rtol=0, atol=limit * np.abs(target).max())


@pytest.mark.parametrize(("distance", "size"), [(10.0, 1e-3), (10.0, 1e3), (0.0, 1e-6)])
def test_full_steps_land_on_a_normal_target_from_anywhere(q, distance, size):
    """In as many as the limits take: a mean moves by half a unit each, a precision shrinks by a quarter."""
    precision = size * random_precision(7)
    target = np.asarray(q.mean) + np.linalg.solve(np.linalg.cholesky(precision).T, np.full(DIM, distance))
    family = q
    for _ in range(200):  # none of the whitened coordinates is longer than √DIM times the distance
        family = moved(family, towards(family, target, precision))
    limit = rounding(precision, precision_of(q))
    np.testing.assert_allclose(precision_of(family), precision, rtol=0, atol=limit * np.abs(precision).max())
    np.testing.assert_allclose(family.mean, target, rtol=0, atol=limit * np.abs(target).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1.0, 1e6, 1e30])
def test_no_step_leaves_the_normals(q, make, dtype, size):
    rng = np.random.default_rng(3)
    family = make(q.mean, precision_of(q), dtype=dtype)
    for _ in range(10):
        step = jax.tree.map(
            lambda leaf: (
                jnp.asarray(size * rng.normal(size=leaf.shape), dtype) if eqx.is_inexact_array(leaf) else leaf
            ),
            family,
        )
        before, family = family, moved(family, step)
        for leaf in jax.tree.leaves(eqx.filter(family, eqx.is_inexact_array)):
            assert leaf.dtype == dtype
            assert np.isfinite(leaf).all()
        normal = family.normal
        assert np.all((normal.diagonal / before.normal.diagonal) ** 2 > MIN_SHRINKAGE)
        shift = normal.elimination.permuted(normal.loc - before.normal.loc)
        whitened = np.asarray(normal.elimination.times_upper(*normal.factor, shift), float)
        # As the differences of rounded means tell, in units of the standard deviations.
        spread = np.abs(precision_of(family)).max() ** 0.5 * float(np.abs(normal.loc).max())
        assert np.abs(whitened).max() < MAX_CHANGE + DIM * float(np.finfo(dtype).eps) * (1 + spread)


def test_half_the_square_of_the_coordinates_is_the_gap(q, make):
    """That of a normal target nearby, to the second order.

    With Λ′ = T (I + M) Tᵀ for the target's precision, the ratio of the one to the other is within 1 ± ‖M‖.
    Of ¼ ‖M‖² the sketch has a standard error of ‖M²‖ / √(2 · number).
    """
    precision, other = precision_of(q), random_precision(8)
    nearby = precision + 0.02 * (other - np.diag(3 * other.diagonal()))
    root = np.linalg.cholesky(precision)
    change = np.linalg.solve(root, np.linalg.solve(root, nearby - precision).T)
    target = np.asarray(q.mean) + np.linalg.solve(root.T, np.full(DIM, 0.01))
    gap = float(dlrd.kl(q.member, FullRankNormal(target, np.linalg.cholesky(np.linalg.inv(nearby)))))
    coordinates = np.asarray(fisher_coordinates(q, towards(q, target, nearby)))
    mean, sketch = np.split(coordinates, [DIM])
    whitened = np.linalg.solve(root, nearby @ (target - q.mean))
    np.testing.assert_allclose(mean @ mean, whitened @ whitened, rtol=rounding(precision))
    exact = 0.5 * (whitened @ whitened) + 0.25 * np.sum(change**2)
    norm = np.linalg.norm(change, 2)
    assert norm < 0.2
    assert abs(exact - gap) < norm * gap
    error = np.linalg.norm(change @ change) / np.sqrt(2 * NUM_SKETCHES) / 2
    assert abs(0.5 * (sketch @ sketch) - 0.25 * np.sum(change**2)) < 5 * error
    assert abs(0.5 * (coordinates @ coordinates) - gap) < norm * gap + 5 * error
    assert norm * gap + 5 * error < gap  # the comparison says something
    products = q.inner_products(coordinates[None], np.stack([coordinates, -coordinates]))
    np.testing.assert_allclose(products, [[coordinates @ coordinates, -coordinates @ coordinates]])


def divergence(loc, precision, target, wanted):
    """From N(target, wanted⁻¹), but for constants, as a function of the mean and precision."""
    root, shift = jnp.linalg.cholesky(precision), loc - target
    inverse = solve_triangular(root, jnp.eye(DIM), lower=True)
    trace = jnp.sum((inverse @ wanted) * inverse)
    return 0.5 * (trace + shift @ wanted @ shift) + jnp.sum(jnp.log(jnp.diagonal(root)))


def test_a_displacement_times_the_gradient_is_the_gain(q, make):
    """To the first order: minus the derivative of the divergence along the way."""
    precision, wanted = precision_of(q), random_precision(9)
    target = np.asarray(q.mean) + 0.1
    shift = 1e-3 * np.random.default_rng(4).normal(size=DIM)
    change = 0.02 * (wanted - precision) + 0.005 * (random_precision(10) - precision)
    before = make(q.mean - shift, precision - change)
    point, way = (q.mean, jnp.asarray(precision)), (jnp.asarray(shift), jnp.asarray(change))
    _, loss = jax.jvp(lambda *at: divergence(*at, target, wanted), point, way)
    root = np.linalg.cholesky(precision)
    whitened, gradient = (
        np.linalg.solve(root, np.linalg.solve(root, each).T) for each in (change, wanted - precision)
    )
    gain = shift @ wanted @ (target - q.mean) + 0.5 * np.sum(whitened * gradient)
    assert gain == pytest.approx(-float(loss), rel=rounding(precision))
    coordinates = np.asarray(fisher_coordinates(q, towards(q, target, wanted)))
    pairing = float(q.inner_products(coordinates[None], q.displacement(before)[None])[0, 0])
    # The variance of (A v)·(B v), v normal, is ‖AᵀB‖² + tr((AᵀB)²).
    product = whitened @ gradient
    error = 0.5 * np.sqrt((np.sum(product**2) + np.trace(product @ product)) / NUM_SKETCHES)
    assert abs(pairing - gain) < 5 * error
    assert 5 * error < abs(gain)  # the comparison says something


def test_a_displacement_is_the_gradient_that_would_lead_back(q, make):
    """In the metric of where it leads to: Λ (μ − μ′) and Λ − Λ′, those of a normal target at both ends."""
    before = make(np.asarray(q.mean) - 0.1, random_precision(5))
    precision = precision_of(q)
    shift = precision @ np.full(DIM, 0.1)
    elimination = q.normal.elimination
    change = jax.tree.map(jnp.subtract, *(elimination.product(*each.normal.factor) for each in (q, before)))
    step = Coupled(q.normal.replaced(jnp.asarray(shift), change), q.couplings, q.kind)
    actual, expected = q.displacement(before), fisher_coordinates(q, step)
    assert isinstance(actual, np.ndarray)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=rounding(precision) * np.abs(expected).max())
    np.testing.assert_array_equal(q.displacement(q), 0)


def test_extrapolation(q, make):
    before = make(np.asarray(q.mean) - 0.1, random_precision(5))
    same = q.extrapolated(before, 0.0)
    np.testing.assert_array_equal(same.mean, q.mean)
    np.testing.assert_array_equal(same.normal.diagonal, q.normal.diagonal)
    np.testing.assert_allclose(same.normal.lower, q.normal.lower, rtol=2 * EPS)
    further = q.extrapolated(before, 2.0)
    np.testing.assert_allclose(further.mean, np.asarray(q.mean) + 0.2, rtol=0, atol=10 * EPS)
    ratio = np.asarray(q.normal.diagonal / before.normal.diagonal)
    np.testing.assert_allclose(further.normal.diagonal, q.normal.diagonal * ratio**2, rtol=10 * EPS)
    assert np.linalg.eigvalsh(precision_of(further))[0] > 0


def test_users_get_the_kind_that_they_asked_for(q, make):
    assert isinstance(q.member, FullRankNormal)
    assert member_of(q).mean is q.normal.loc
    covariance = np.linalg.inv(precision_of(q))
    atol = rounding(covariance) * np.abs(covariance).max()
    np.testing.assert_allclose(q.member.cholesky @ q.member.cholesky.T, covariance, rtol=0, atol=atol)
    np.testing.assert_array_equal(np.triu(q.member.cholesky, 1), 0)
    np.testing.assert_allclose(q.std**2, covariance.diagonal(), rtol=0, atol=atol)
    sparse = make(q.mean, precision_of(q), SparseNormal)
    assert sparse.member is sparse.normal


def test_it_is_the_normal_that_it_carries(q):
    key, points = jax.random.key(0), jnp.asarray(np.random.default_rng(0).normal(size=(3, DIM)))
    np.testing.assert_array_equal(q.sample(key, (2,)), q.normal.sample(key, (2,)))
    np.testing.assert_array_equal(q.log_prob(points), q.normal.log_prob(points))
    np.testing.assert_array_equal(q.log_prob_of_noise(points), q.normal.log_prob_of_noise(points))
    np.testing.assert_array_equal(q.from_noise(points), q.normal.from_noise(points))
    assert q.noise_size == DIM


@pytest.mark.parametrize("num_draws", [1, 2, 5, 6])
def test_draws_have_mirror_images(q, num_draws):
    noise = np.asarray(q.sample_noise(jax.random.key(0), num_draws))
    assert noise.shape == (num_draws, DIM)
    half = -(-num_draws // 2)
    np.testing.assert_array_equal(noise[half:], -noise[: num_draws - half])
    assert len(np.unique(np.abs(noise[:, 0]))) == half


def test_the_mean_and_the_factor_are_trained(q):
    trained, _ = split(q)
    shapes = sorted(leaf.shape for leaf in jax.tree.leaves(trained))
    assert shapes == [(DIM,), (DIM,), (q.normal.elimination.num_entries,)]


def test_few_directions_tell_the_hessian(q):
    assert q.directions.shape == (q.couplings.coloring.num_colors, DIM)
    assert len(q.directions) < DIM / 2


def test_single_precision_stays_single(q, make):
    """Also where jax and the host compute in double precision."""
    single = make(q.mean, precision_of(q), dtype="float32")
    assert single.directions.dtype == np.float32
    noise = single.sample_noise(jax.random.key(0), 2)
    products = jnp.ones((2, *single.directions.shape), "float32")
    gradient = eqx.filter_eval_shape(single.natural_gradient, noise, noise, products)
    coordinates = eqx.filter_eval_shape(single.fisher_coordinates, single)
    families = gradient, eqx.filter_eval_shape(single.moved, single), single.extrapolated(single, 2.0)
    leaves = [
        leaf for leaf in jax.tree.leaves((*families, coordinates)) if jnp.issubdtype(leaf.dtype, jnp.inexact)
    ]
    assert {leaf.dtype for leaf in leaves} == {np.dtype("float32")}
