"""What every family keeps, ours and those of flowjax."""

import functools

import equinox as eqx
import flowjax.distributions
import flowjax.flows
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import integrate, stats

from dlrd import FullRankNormal, LowRankNormal, MeanFieldNormal, Mixture, SparseNormal
from dlrd.families import Family, KnowsNoise, log_prob_of, split
from dlrd.families.coupled import Coupled
from dlrd.families.couplings import couplings
from dlrd.families.curvature import diagonal_curvature
from dlrd.families.curved import Curved
from dlrd.families.curved_low_rank import CurvedLowRank
from dlrd.families.pattern import Pattern

DIM = 2
LOC = np.array([0.5, -1.0])


def mean_field():
    return MeanFieldNormal(LOC, [-0.5, 0.4])


def full_rank():
    return FullRankNormal(LOC, [[0.8, 0.0], [-0.9, -0.5]])


def low_rank():
    return LowRankNormal(LOC, [-0.5, 0.4], [[0.7], [-0.6]])


def sparse():
    return SparseNormal.from_precision(LOC, [[1.7, -0.6], [-0.6, 0.9]])


def mixture():
    return Mixture([full_rank(), FullRankNormal([-1.5, 1.0], [[1.2, 0.0], [0.3, 0.7]])], [0.2, -0.3])


def flowjax_normal():
    return flowjax.distributions.Normal(jnp.asarray(LOC), jnp.array([0.6, 1.5]))


def flowjax_flow():
    flow = flowjax.flows.masked_autoregressive_flow(
        jax.random.key(7),
        base_dist=flowjax.distributions.StandardNormal((DIM,)),
        flow_layers=1,
        nn_width=4,
        nn_activation=jnp.tanh,
    )
    # As made, a flow is close to its base: scaled up, its layers bend.
    trainable, rest = eqx.partition(flow, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda leaf: 1.5 * leaf, trainable), rest)


@functools.cache
def made(make, dtype):
    """One object a family and precision, so that what is compiled for it is compiled once."""
    return make()


@pytest.fixture(
    params=[
        mean_field,
        full_rank,
        low_rank,
        sparse,
        mixture,
        flowjax_normal,
        pytest.param(flowjax_flow, marks=pytest.mark.slow),
    ],
    ids=lambda make: make.__name__,
    scope="module",  # keeps the tests of one family together
)
def make(request):
    return lambda: made(request.param, jnp.result_type(float))


COVARIANCES = {
    mean_field: np.diag(np.exp([-1.0, 0.8])),
    full_rank: np.array([[0.64, -0.72], [-0.72, 1.06]]),
    low_rank: np.diag(np.exp([-1.0, 0.8])) + np.array([[0.49, -0.42], [-0.42, 0.36]]),
    sparse: np.array([[0.9, 0.6], [0.6, 1.7]]) / 1.17,
}


@pytest.fixture(params=COVARIANCES, ids=lambda make: make.__name__, scope="module")
def make_normal(request):
    return request.param


def curved(normal=None):
    """The forms that fits work with are normals, too."""
    return Curved(normal or mean_field(), diagonal_curvature(np.ones(DIM)))


def coupled(normal=None):
    pairs = couplings(Pattern(DIM, np.array([1]), np.array([0])))
    assert pairs is not None
    return Coupled(normal or sparse(), pairs, SparseNormal)


def curved_low_rank():
    return CurvedLowRank(low_rank(), diagonal_curvature(np.ones(DIM)))


@pytest.fixture(
    params=[*COVARIANCES, curved, curved_low_rank, coupled], ids=lambda make: make.__name__, scope="module"
)
def make_form(request):
    return request.param


@eqx.filter_jit
def sample(family, key, sample_shape):
    return family.sample(key, sample_shape)


@eqx.filter_jit
def log_prob(family, x):
    return family.log_prob(x)


def parameters(family):
    """The trainable arrays as one vector, and the way back to a family."""
    trainable, rest = eqx.partition(family, eqx.is_inexact_array)
    vector, unravel = ravel_pytree(trainable)
    return vector, lambda vector: eqx.combine(unravel(vector), rest)


def weighted_proposals(family, draws):
    """As many points of a heavy-tailed distribution as there are draws, and q over its density there."""
    proposal = stats.multivariate_t(draws.mean(axis=0), np.cov(draws.T), df=3, seed=2)
    proposals = proposal.rvs(len(draws))
    return proposals, np.exp(log_prob(family, proposals) - proposal.logpdf(proposals))


def rounding(dtype):
    """For a hundred rounded operations on numbers of size 1, in whichever order they are done."""
    return {"rtol": 100 * float(jnp.finfo(dtype).eps), "atol": 100 * float(jnp.finfo(dtype).eps)}


def test_meets_the_protocol(make):
    assert isinstance(make(), Family)


@pytest.mark.parametrize("sample_shape", [(), (3,), (2, 3)])
def test_shapes_and_types(make, precision, sample_shape):
    family = make()
    draws = eqx.filter_eval_shape(sample, family, jax.random.key(0), sample_shape)
    log_probs = eqx.filter_eval_shape(log_prob, family, draws)
    assert draws.shape == (*sample_shape, DIM)
    assert log_probs.shape == sample_shape
    assert draws.dtype == log_probs.dtype == precision


@pytest.mark.usefixtures("x64")
def test_a_batch_is_its_points_one_by_one(make):
    family = make()
    draws = sample(family, jax.random.key(0), (2, 3))
    one_by_one = [[log_prob(family, draw) for draw in row] for row in draws]
    np.testing.assert_allclose(log_prob(family, draws), np.array(one_by_one), **rounding(draws.dtype))


@pytest.mark.usefixtures("x64")
def test_draws_depend_on_the_key_alone(make):
    first, again, other = (sample(make(), jax.random.key(seed), (2, 3)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.all(np.asarray(first) != np.asarray(other))


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_without_compilation_the_same(make):
    family = make()
    draws = sample(family, jax.random.key(0), (2, 3))
    np.testing.assert_allclose(family.sample(jax.random.key(0), (2, 3)), draws, **rounding(draws.dtype))
    np.testing.assert_allclose(family.log_prob(draws), log_prob(family, draws), **rounding(draws.dtype))


@pytest.mark.usefixtures("x64")
def test_one_draw_is_the_default(make):
    assert eqx.filter_eval_shape(lambda family: family.sample(jax.random.key(0)), make()).shape == (DIM,)


@pytest.mark.usefixtures("x64")
def test_the_density_is_normalized_and_the_draws_follow_it(make):
    family = make()
    draws = np.asarray(sample(family, jax.random.key(0), (20_000,)))
    proposals, weights = weighted_proposals(family, draws)
    assert abs(weights.mean() - 1) < 5 * weights.std() / np.sqrt(len(weights))
    for statistic in (lambda z: z, lambda z: z**2, lambda z: z[:, :1] * z[:, 1:], lambda z: z > 0):
        drawn = statistic(draws)
        weighted = statistic(proposals) * weights[:, None]
        error = np.sqrt(drawn.var(axis=0) / len(drawn) + weighted.var(axis=0) / len(weighted))
        np.testing.assert_array_less(np.abs(drawn.mean(axis=0) - weighted.mean(axis=0)), 5 * error)


@pytest.mark.usefixtures("x64")
def test_flattens_and_comes_back(make):
    family = make()
    leaves, structure = jax.tree.flatten(family)
    assert any(eqx.is_inexact_array(leaf) for leaf in leaves)
    assert eqx.tree_equal(jax.tree.unflatten(structure, leaves), family)


@pytest.mark.usefixtures("x64")
def test_vmap_over_a_stack_of_families(make):
    vector, rebuild = parameters(make())
    factors = np.array([1.0, 0.9, 1.1])
    keys = jax.random.split(jax.random.key(0), len(factors))

    @jax.jit
    @jax.vmap
    def draw_and_evaluate(factor, key):
        family = rebuild(factor * vector)
        draws = family.sample(key, (2, 3))
        return draws, family.log_prob(draws)

    draws, log_probs = draw_and_evaluate(factors, keys)
    for index, factor in enumerate(factors):
        family = rebuild(factor * vector)
        np.testing.assert_allclose(draws[index], sample(family, keys[index], (2, 3)), **rounding(draws.dtype))
        np.testing.assert_allclose(log_probs[index], log_prob(family, draws[index]), **rounding(draws.dtype))


@pytest.mark.usefixtures("x64")
def test_derivatives_are_those_of_finite_differences(make):
    vector, rebuild = parameters(make())
    direction = np.random.default_rng(3).normal(size=vector.shape)
    direction /= np.linalg.norm(direction)

    def values(distance):
        family = rebuild(vector + distance * direction)
        return jnp.append(family.sample(jax.random.key(0)), family.log_prob(jnp.array([0.3, -0.8])))

    step = 1e-5
    values_and_slopes = jax.jit(lambda distance: (values(distance), jax.jacrev(values)(distance)))
    differences = (values_and_slopes(step)[0] - values_and_slopes(-step)[0]) / (2 * step)
    # The difference is wrong by step² times a third derivative, and by rounding, 1e-15 / step: 1e-10 each.
    np.testing.assert_allclose(values_and_slopes(0.0)[1], differences, rtol=1e-7, atol=1e-8)
    assert np.all(np.abs(differences) > 1e-3)


@pytest.mark.usefixtures("x64")
def test_moments_of_normals(make_normal):
    q, covariance = made(make_normal, jnp.result_type(float)), COVARIANCES[make_normal]
    np.testing.assert_array_equal(q.mean, LOC)
    np.testing.assert_allclose(q.std, np.sqrt(np.diagonal(covariance)), **rounding(q.std.dtype))
    np.testing.assert_allclose(q.scale_tril @ q.scale_tril.T, covariance, **rounding(q.std.dtype))
    np.testing.assert_array_equal(jnp.triu(q.scale_tril, 1), 0)


@pytest.mark.usefixtures("x64")
def test_density_of_normals_is_scipys(make_normal):
    points = np.random.default_rng(0).normal(scale=3, size=(20, DIM))
    expected = stats.multivariate_normal(LOC, COVARIANCES[make_normal]).logpdf(points)
    # The quadratic form reaches 1e3 far from the mean, so rounding is relative to that.
    actual = log_prob(made(make_normal, jnp.result_type(float)), points)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_draws_of_normals_have_the_mean_and_covariance(make_normal):
    """Within 5 standard errors, those of a normal sample."""
    draws = np.asarray(sample(made(make_normal, jnp.result_type(float)), jax.random.key(0), (20_000,)))
    covariance = COVARIANCES[make_normal]
    variance = np.diagonal(covariance)
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - LOC), 5 * np.sqrt(variance / len(draws)))
    errors = np.sqrt((np.outer(variance, variance) + covariance**2) / len(draws))
    np.testing.assert_array_less(np.abs(np.cov(draws.T) - covariance), 5 * errors)


@pytest.mark.usefixtures("x64")
def test_an_empty_batch_of_draws(make_normal):
    q = made(make_normal, jnp.result_type(float))
    draws = q.sample(jax.random.key(0), (0,))
    assert draws.shape == (0, DIM)
    assert q.log_prob(draws).shape == (0,)


@pytest.mark.usefixtures("x64")
def test_single_precision_stays_while_double_is_on(make_normal):
    q = jax.tree.map(
        lambda leaf: leaf.astype("float32") if eqx.is_inexact_array(leaf) else leaf, make_normal()
    )
    draws = q.sample(jax.random.key(0), (2,))
    assert draws.dtype == q.log_prob(draws).dtype == q.std.dtype == q.scale_tril.dtype == jnp.float32


@pytest.mark.parametrize("kind", [MeanFieldNormal, FullRankNormal, SparseNormal])
def test_standard_is_the_standard_normal_in_the_default_type(kind, precision):
    q = kind.standard(4)
    np.testing.assert_array_equal(q.mean, np.zeros(4))
    np.testing.assert_array_equal(q.scale_tril, np.eye(4))
    assert {leaf.dtype for leaf in jax.tree.leaves(split(q)[0])} == {precision}
    # log(2π) is rounded, summed and scaled: a handful of roundings.
    origin = float(q.log_prob(jnp.zeros(4)))
    assert origin == pytest.approx(-2 * np.log(2 * np.pi), rel=5 * float(jnp.finfo(precision).eps))


@pytest.mark.parametrize(
    "make",
    [
        lambda: MeanFieldNormal([0.7], [-0.4]),
        lambda: FullRankNormal([0.7], [[-0.4]]),
        lambda: LowRankNormal([0.7], [-0.9], [[0.3]]),
        lambda: SparseNormal.from_precision([0.7], [[4.0]]),
    ],
    ids=["mean_field", "full_rank", "low_rank", "sparse"],
)
@pytest.mark.usefixtures("x64")
def test_density_on_a_line_integrates_to_one(make):
    # The trapezium rule is exact to rounding for a smooth density with steps below its standard deviation
    # (0.67, 0.4 and 0.5 twice), which is negligible at the ends.
    grid = np.linspace(-9.3, 10.7, 201)
    assert integrate.trapezoid(np.exp(make().log_prob(grid[:, None])), grid) == pytest.approx(1, abs=1e-13)


@pytest.mark.usefixtures("x64")
def test_the_density_of_a_draw_by_its_noise(make_form):
    family = made(make_form, jnp.result_type(float))
    assert isinstance(family, KnowsNoise)
    noise = family.sample_noise(jax.random.key(0), 6).reshape(3, 2, -1)
    draws = family.from_noise(noise)
    expected = family.log_prob(draws)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(family.log_prob_of_noise(noise), expected, **rounding(draws.dtype))
    np.testing.assert_array_equal(log_prob_of(family, noise, None), family.log_prob_of_noise(noise))
    assert family.log_prob_of_noise(noise[0, 0]).shape == ()


@pytest.mark.usefixtures("x64")
def test_a_family_without_noise_is_asked_at_the_draws():
    family = made(mixture, jnp.result_type(float))
    assert not isinstance(family, KnowsNoise)
    draws = sample(family, jax.random.key(0), (2, 3))
    np.testing.assert_array_equal(log_prob_of(family, None, draws), family.log_prob(draws))


SMALL = 1e-20


def narrow_low_rank():
    """Wide along (1, 1) alone."""
    return LowRankNormal([1.0, 1.0], [np.log(SMALL)] * 2, [[1.0], [1.0]])


def narrow_sparse():
    """T has an inverse diagonal of the scale, and a coordinate depends on the other with all its weight."""
    q = sparse()
    return SparseNormal([1.0, 1.0], [1 / SMALL, 1.0], [0.5 / SMALL], q.elimination)


@pytest.mark.parametrize(
    "make",
    [
        lambda: MeanFieldNormal([1.0, 1.0], [np.log(SMALL), 0.0]),
        lambda: FullRankNormal([1.0, 1.0], [[SMALL, 0.0], [0.5, -1.0]]),
        lambda: FullRankNormal([1.0, 1.0], [[1.0, 0.0], [3.0, SMALL]]),
        narrow_low_rank,
        narrow_sparse,
        lambda: curved(MeanFieldNormal([1.0, 1.0], [np.log(SMALL), 0.0])),
        lambda: coupled(narrow_sparse()),
    ],
    ids=["mean_field", "full_rank", "full_rank_below", "low_rank", "sparse", "curved", "coupled"],
)
def test_a_scale_far_below_the_rounding_of_the_draws(make, precision):
    """The draws no longer show the noise of this scale: they are rounded to the mean's digits."""
    family = make()
    noise = family.sample_noise(jax.random.key(0), 4)
    assert noise.dtype == precision
    exact = np.asarray(noise, float)
    expected = np.sum(stats.norm.logpdf(exact[:, :DIM]), axis=1) - np.log(SMALL)
    if isinstance(family, LowRankNormal):
        # With the variances SMALL² along (1, −1)/√2 and 2 along (1, 1)/√2, where the shared noise is all.
        across = (exact[:, 0] - exact[:, 1]) / np.sqrt(2)
        standard = stats.norm.logpdf(across) + stats.norm.logpdf(exact[:, 2])
        expected = standard - np.log(SMALL) - 0.5 * np.log(2)
    # A dozen operations, on numbers that are no larger than the logarithm of the scale.
    atol = 12 * float(jnp.finfo(precision).eps) * -np.log(SMALL)
    np.testing.assert_allclose(family.log_prob_of_noise(noise), expected, rtol=0, atol=atol)
