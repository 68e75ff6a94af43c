"""NumPyro models as models: densities, supports, data, predictions, all against NumPyro itself."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints
from numpyro.distributions.transforms import OrderedTransform, biject_to
from numpyro.infer import MCMC, NUTS
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import log_density

import dlrd
from dlrd.models import Labelled, Model, Observed, Predictive, Reparameterizable, StartsChains

Y = np.array([0.3, -1.2, 2.0, 0.7])
NUM_SDS = 5
"""Of a Monte Carlo error, that a mean may be off."""


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def groups(errors: Any, y: Any) -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    scale = numpyro.sample("scale", dist.HalfNormal(5.0))
    with numpyro.plate("group", len(errors)):
        effect = numpyro.sample("effect", dist.Normal(mean, scale))
        numpyro.sample("y", dist.Normal(effect, errors), obs=y)
    numpyro.deterministic("ratio", scale / mean)


ERRORS = np.array([1.0, 0.5, 2.0, 1.5])


def groups_model() -> Any:
    return dlrd.models.numpyro(groups, ERRORS, y=Y)


def draws_of(model: Model, num: int = 6) -> jax.Array:
    return jax.random.normal(jax.random.key(3), (num, model.dim))


def normals(size: int) -> dist.Distribution:
    return dist.Normal(0.0, 1.0).expand([size]).to_event(1)


SUPPORTS: dict[str, Callable[[], Any]] = {
    "real": lambda: dist.StudentT(3.0, 1.0, 2.0),
    "real vector": lambda: dist.MultivariateNormal(jnp.zeros(2), jnp.array([[2.0, 0.5], [0.5, 1.0]])),
    "positive": lambda: dist.Gamma(2.0, 3.0),
    "above a bound": lambda: dist.Pareto(2.0, 3.0),
    "unit interval": lambda: dist.Beta(2.0, 3.0),
    "interval": lambda: dist.Uniform(-1.0, 4.0),
    "truncated": lambda: dist.TruncatedNormal(0.0, 1.0, high=2.0),
    "simplex": lambda: dist.Dirichlet(jnp.array([2.0, 3.0, 4.0])),
    "ordered": lambda: dist.TransformedDistribution(normals(3), OrderedTransform()),
    "positive ordered": lambda: dist.ImproperUniform(constraints.positive_ordered_vector, (), (3,)),
    "correlation root": lambda: dist.LKJCholesky(3, 2.0),
    "correlation": lambda: dist.LKJ(3, 2.0),
    "covariance": lambda: dist.Wishart(5.0, jnp.eye(2)),
    "zero sum": lambda: dist.ZeroSumNormal(1.0, (4,)),
    "improper": lambda: dist.ImproperUniform(constraints.positive, (2,), ()),
    "improper vector": lambda: dist.ImproperUniform(constraints.simplex, (), (3,)),
}


@pytest.mark.parametrize("name", SUPPORTS)
def test_the_density_is_that_of_numpyro_with_the_jacobian(name: str) -> None:
    prior = SUPPORTS[name]()

    def of_one() -> None:
        x = numpyro.sample("x", prior)
        numpyro.sample("y", dist.Normal(jnp.sum(x), 1.0), obs=0.5)

    model = dlrd.models.numpyro(of_one)
    draws = draws_of(model)
    transform = biject_to(prior.support)
    variables = model.constrained(draws)["x"]
    free = draws.reshape(len(draws), *transform.inverse_shape(prior.batch_shape + prior.event_shape))
    mapped, is_inside = jax.jit(lambda z, x: (jax.vmap(transform)(z), prior.support(x)))(free, variables)
    np.testing.assert_allclose(variables, mapped, rtol=1e-12)
    assert np.all(is_inside)

    @jax.jit
    @jax.vmap
    def expected(z: jax.Array, x: jax.Array) -> jax.Array:
        return log_density(of_one, (), {}, {"x": x})[0] + jnp.sum(transform.log_abs_det_jacobian(z, x))

    np.testing.assert_allclose(model.values(draws, None), expected(free, variables), rtol=1e-11)
    np.testing.assert_allclose(model.unconstrained({"x": variables}), draws, atol=1e-9)


def test_gradients_are_those_of_the_values() -> None:
    model = groups_model()
    draws = np.asarray(draws_of(model))
    values, gradients = map(np.asarray, model.values_and_gradients(jnp.asarray(draws), None))
    np.testing.assert_allclose(values, model.values(jnp.asarray(draws), None), rtol=1e-12)
    values_fn = jax.jit(lambda points: model.values(points, None))
    differences = [
        np.asarray(values_fn(draws + each) - values_fn(draws - each)) / 2e-6
        for each in 1e-6 * np.eye(model.dim)
    ]
    # Rounding of the values over the step; the step's own error is smaller.
    tolerance = 1e-15 * np.max(np.abs(values)) / 1e-6 * 10
    np.testing.assert_allclose(gradients, np.stack(differences, axis=1), rtol=1e-6, atol=tolerance)


def test_a_support_that_depends_on_another_site() -> None:
    def bounded() -> None:
        top = numpyro.sample("top", dist.HalfNormal(1.0))
        numpyro.sample("x", dist.Uniform(0.0, top).expand([3]).to_event(1))

    model = dlrd.models.numpyro(bounded)
    draws = draws_of(model)
    variables = model.constrained(draws)
    assert np.all(variables["x"] < variables["top"][:, None])
    np.testing.assert_allclose(model.unconstrained(variables), draws, atol=1e-9)
    # Uniform on (0, top): of each coordinate only the logistic density is left.
    expected = dist.HalfNormal(1.0).log_prob(variables["top"]) + draws[:, 0]
    expected += jnp.sum(jax.nn.log_sigmoid(draws[:, 1:]) + jax.nn.log_sigmoid(-draws[:, 1:]), axis=1)
    np.testing.assert_allclose(model.values(draws, None), expected, rtol=1e-12)


def test_it_can_all_that_answers_ask_for() -> None:
    model = groups_model()
    for capability in (Model, Labelled, Observed, Predictive, Reparameterizable, StartsChains):
        assert isinstance(model, capability)
    assert model.dim == 6
    assert model.names == ("effect[0]", "effect[1]", "effect[2]", "effect[3]", "mean", "log scale")
    assert model.dims == {"effect": ("group",), "y": ("group",)}
    np.testing.assert_array_equal(model.coords["group"], np.arange(4))
    np.testing.assert_array_equal(model.observed_data["y"], Y)
    assert list(model.constant_data) == ["errors"]
    assert list(model.constrained(draws_of(model))) == ["mean", "scale", "effect", "ratio"]


@pytest.mark.parametrize("y", [np.array([2.1, 3.4, 2.9]), np.array([1.0, np.nan, 2.0], np.float32)])
def test_data_are_no_covariates_in_any_precision(y: np.ndarray) -> None:
    def rows(x: Any, y: Any) -> None:
        slope = numpyro.sample("slope", dist.Normal())
        with numpyro.handlers.mask(mask=~np.isnan(y)):
            numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)

    model = dlrd.models.numpyro(rows, np.array([0.1, 0.2, 0.3]), y)
    assert list(model.observed_data) == ["y"]
    assert list(model.constant_data) == ["x"]


def test_coordinates_are_in_the_order_of_numpyros_samplers() -> None:
    model = groups_model()
    (draw,) = draws_of(model, 1)
    np.testing.assert_array_equal(ravel_pytree(model.unraveled(draw))[0], draw)


def test_models_of_the_same_data_are_equal() -> None:
    model = groups_model()
    assert model == dlrd.models.numpyro(groups, ERRORS.copy(), y=Y.copy())
    assert hash(model) == hash(groups_model())
    assert model != dlrd.models.numpyro(groups, ERRORS, y=Y + 1)
    assert model != dlrd.models.numpyro(groups, ERRORS, Y)
    assert model != dlrd.models.function(lambda z: -z @ z, 6)


def test_data_that_change_later_change_nothing() -> None:
    y = Y.copy()
    model = dlrd.models.numpyro(groups, ERRORS, y)
    draws = draws_of(model)
    before = model.values(draws, None)
    y[:] = 100.0
    np.testing.assert_array_equal(model.values(draws, None), before)
    assert dlrd.models.numpyro(groups, ERRORS, y) != model


def test_arguments_in_trees_and_other_than_arrays() -> None:
    def of_tree(data: Any, names: Any, power: int) -> None:
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(slope * data["x"] ** power, 1.0), obs=jnp.log(data["y"]))

    data = {"x": ERRORS, "y": np.exp(Y)}
    model = dlrd.models.numpyro(of_tree, data, ["one", "two"], power=2)
    assert sorted(model.constant_data) == ["data.x", "data.y"]
    np.testing.assert_allclose(model.observed_data["y"], Y)
    assert model == dlrd.models.numpyro(of_tree, data, ["one", "two"], power=2)
    assert model != dlrd.models.numpyro(of_tree, data, ["one", "two"], power=3)
    assert model != dlrd.models.numpyro(of_tree, data, ["one", "two"], power=2.0)


def test_predictions_are_new_data() -> None:
    """The data that were given are far away: what comes out has the mean and spread of the model."""
    model = dlrd.models.numpyro(groups, ERRORS, Y + 1e6)
    num = 4_000
    draws = jnp.tile(draws_of(model, 1), (num, 1))
    y = np.asarray(model.predictions(draws, jax.random.key(1))["y"])
    assert y.shape == (num, 4)
    effect = np.asarray(model.constrained(draws[:1])["effect"][0])
    np.testing.assert_array_less(np.abs(y.mean(axis=0) - effect), NUM_SDS * ERRORS / num**0.5)
    np.testing.assert_array_less(np.abs(y.std(axis=0) - ERRORS), NUM_SDS * ERRORS / (2 * num) ** 0.5)
    again = model.predictions(draws, jax.random.key(1))["y"]
    np.testing.assert_array_equal(again, y)


def series(y: Any) -> None:
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))

    def transition(state: Any, seen: Any) -> tuple[Any, None]:
        state = numpyro.sample("state", dist.LogNormal(jnp.log(state), scale))
        numpyro.sample("y", dist.Normal(state, 0.1), obs=seen)
        return state, None

    scan(transition, jnp.ones(()), y)


def test_scan() -> None:
    """States of a chain with a support: the density by hand, new data around them, likelihoods."""
    model = dlrd.models.numpyro(series, Y)
    draws = draws_of(model)
    variables = model.constrained(draws)
    np.testing.assert_allclose(model.unconstrained(variables), draws, atol=1e-9)

    @jax.jit
    def by_hand(state: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
        before = jnp.concatenate([jnp.ones((len(draws), 1)), state[:, :-1]], axis=1)
        pointwise = dist.Normal(state, 0.1).log_prob(Y)
        steps = dist.Normal(jnp.log(before), scale[:, None]).log_prob(jnp.log(state))
        prior = dist.HalfNormal(1.0).log_prob(scale) + jnp.log(scale)
        return jnp.sum(steps + pointwise, axis=1) + prior, pointwise

    state = variables["state"]
    expected, pointwise = by_hand(state, variables["scale"])
    np.testing.assert_allclose(model.values(draws, None), expected, rtol=1e-11)
    np.testing.assert_allclose(model.log_likelihood(draws)["y"], pointwise, rtol=1e-12)
    predicted = model.predictions(draws, jax.random.key(0))["y"]
    assert not np.any(predicted == Y)
    np.testing.assert_array_less(np.abs(predicted - state), NUM_SDS * 0.1)


def test_log_likelihoods_are_of_each_observation() -> None:
    model = groups_model()
    draws = draws_of(model, 150)  # more than one batch
    expected = dist.Normal(model.constrained(draws)["effect"], ERRORS).log_prob(Y)
    np.testing.assert_allclose(model.log_likelihood(draws)["y"], expected, rtol=1e-12)


def test_a_factor_counts_and_is_no_data() -> None:
    def penalized() -> None:
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.factor("penalty", -3 * x)
        numpyro.sample("y", dist.Normal(x, 1.0), obs=0.5)

    model = dlrd.models.numpyro(penalized)
    draws = draws_of(model)
    x = draws[:, 0]
    expected = dist.Normal(0.0, 1.0).log_prob(x) - 3 * x + dist.Normal(x, 1.0).log_prob(0.5)
    np.testing.assert_allclose(model.values(draws, None), expected, rtol=1e-12)
    assert list(model.log_likelihood(draws)) == list(model.observed_data) == ["y"]
    assert list(model.predictions(draws, jax.random.key(0))) == ["y"]


def test_missing_data_are_fitted() -> None:
    def with_gaps(y: Any, is_known: Any) -> None:
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        with numpyro.plate("row", len(y)):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y, obs_mask=is_known)

    model = dlrd.models.numpyro(with_gaps, Y, np.array([True, True, False, True]))
    assert set(model.constrained(draws_of(model))) == {"mean", "y_unobserved", "y"}


def test_reparam_gives_the_same_variables() -> None:
    decentred = numpyro.handlers.reparam(groups, config={"effect": LocScaleReparam(0)})
    model = dlrd.models.numpyro(decentred, ERRORS, Y)
    draws = draws_of(model)
    variables = model.constrained(draws)
    assert model.dims["effect"] == ("group",)
    centred = groups_model()
    there = centred.unconstrained(variables)
    # The density of the effects in other coordinates: the Jacobian is a scale for each.
    difference = model.values(draws, None) - centred.values(there, None)
    np.testing.assert_allclose(difference, 4 * jnp.log(variables["scale"]), rtol=1e-10)
    assert model.reparameterization(range(model.dim)) is None


def test_a_centred_hierarchy_says_how_it_is_decentred() -> None:
    model = groups_model()
    code = 'numpyro.handlers.reparam(model, config={"effect": LocScaleReparam(0)})'
    assert model.reparameterization([3]) == code
    assert model.reparameterization([4, 5]) is None
    assert callable(eval(code, {"numpyro": numpyro, "model": groups, "LocScaleReparam": LocScaleReparam}))


def test_param_sites_stay_where_they_are() -> None:
    def with_param() -> None:
        scale = numpyro.param("width", 2.0)
        numpyro.sample("x", dist.Normal(0.0, scale))

    with pytest.warns(UserWarning, match="param sites are not fitted, and width will stay"):
        model = dlrd.models.numpyro(with_param)
    np.testing.assert_allclose(model.values(jnp.ones((1, 1)), None), dist.Normal(0.0, 2.0).log_prob(1.0))


def mixed(y: Any) -> None:
    share = numpyro.sample("share", dist.Beta(2.0, 2.0))
    means = numpyro.sample("means", normals(2))
    with numpyro.plate("row", len(y)):
        kind = numpyro.sample("kind", dist.Bernoulli(share), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(means[kind], 0.1), obs=y)


def test_discrete_sites_are_summed_over() -> None:
    model = dlrd.models.numpyro(mixed, Y)
    draws = draws_of(model)
    variables = model.constrained(draws)
    assert list(variables) == ["share", "means"]

    @jax.jit
    @jax.vmap
    def by_hand(share: jax.Array, means: jax.Array) -> jax.Array:
        first, second = (dist.Normal(mean, 0.1).log_prob(Y) for mean in means)
        likelihood = jnp.sum(jnp.logaddexp(jnp.log1p(-share) + first, jnp.log(share) + second))
        prior = jnp.sum(dist.Normal(0.0, 1.0).log_prob(means)) + dist.Beta(2.0, 2.0).log_prob(share)
        return likelihood + prior + jnp.log(share * (1 - share))

    means = np.asarray(variables["means"])
    np.testing.assert_allclose(model.values(draws, None), by_hand(variables["share"], means), rtol=1e-11)
    np.testing.assert_allclose(model.unconstrained(variables), draws, atol=1e-9)
    predicted = np.asarray(model.predictions(draws, jax.random.key(0))["y"])
    distances = np.abs(predicted[:, :, None] - means[:, None])
    np.testing.assert_array_less(np.min(distances, axis=2), NUM_SDS * 0.1)
    assert model.log_likelihood(draws) == {}


@pytest.mark.parametrize("num_chains", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_chains_start_where_they_are_told(num_chains: int) -> None:
    """With no step at all to take, what NUTS gives back is the start."""
    model = groups_model()
    draws = draws_of(model, num_chains)
    chains = MCMC(
        NUTS(groups, step_size=1e-12, adapt_step_size=False, max_tree_depth=1),
        num_warmup=0,
        num_samples=1,
        num_chains=num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    chains.run(jax.random.key(0), ERRORS, Y, init_params=model.chain_starts(draws))
    variables = model.constrained(draws)
    for name, values in chains.get_samples().items():
        np.testing.assert_allclose(values, variables[name], rtol=1e-6)


def test_a_fit_is_the_posterior_under_the_models_names() -> None:
    """Of a normal with a normal prior it is known: precisions add up."""

    def conjugate(y: Any) -> None:
        mean = numpyro.sample("mean", dist.Normal(1.0, 2.0))
        with numpyro.plate("row", len(y)):
            numpyro.sample("y", dist.Normal(mean, 0.5), obs=y)
        numpyro.deterministic("twice", 2 * mean)

    fit = dlrd.fit(dlrd.models.numpyro(conjugate, Y), progress=False)
    precision = 1 / 4 + len(Y) / 0.25
    exact = (1 / 4 + Y.sum() / 0.25) / precision
    assert fit.outcome.name == "CERTIFIED"
    assert fit.names == ("mean",)
    # Within the tolerance of 0.01 nats, a mean is within sqrt(0.02) sds.
    np.testing.assert_allclose(fit.family.mean[0], exact, atol=0.02**0.5 * precision**-0.5)
    draws = fit.sample(0, 100)
    np.testing.assert_array_equal(draws["twice"], 2 * draws["mean"])
    evidence = dist.MultivariateNormal(jnp.ones(4), 0.25 * jnp.eye(4) + 4.0).log_prob(Y)
    np.testing.assert_allclose(fit.elbo, evidence, atol=0.01 + NUM_SDS * fit.elbo_error)


def test_a_model_must_be_a_function() -> None:
    with pytest.raises(TypeError, match="model must be a function with NumPyro's primitives, got int 3"):
        dlrd.models.numpyro(3)  # pyright: ignore[reportArgumentType] - the mistake is the test


def test_a_missing_library_is_named() -> None:
    code = """
import sys
sys.modules["numpyro"] = None
import dlrd
try:
    dlrd.models.numpyro
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == ("dlrd.models.numpyro needs NumPyro, which is not installed: pip install numpyro\n")


def test_programs_are_not_shared_between_precisions() -> None:
    """What jax has traced in one holds numbers that the other cannot do with."""

    def shifted(offsets: np.ndarray) -> None:
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z - offsets, 1.0), obs=np.zeros(3))

    offsets = np.arange(3.0)
    for is_double in (False, True):
        with jax.enable_x64(is_double):
            model = dlrd.models.numpyro(shifted, offsets)
            assert model == dlrd.models.numpyro(shifted, offsets)
            found = dlrd.fit(model, starts=1, progress=False)
        assert found.outcome is dlrd.Outcome.CERTIFIED
