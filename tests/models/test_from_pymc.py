"""PyMC models as dlrd's: the same density as PyMC's own, and answers under its names."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import ordered
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import dlrd
from dlrd.models import Labelled, Model, Observed, Predictive, StartsChains

rng = np.random.default_rng(0)
DATA = rng.normal(size=12)
GROUP = np.repeat([0, 1, 2], 4)
FEATURES = rng.normal(size=(12, 3))
pytestmark = pytest.mark.usefixtures("python_mode")


@pytest.fixture
def python_mode() -> Any:
    """PyTensor's functions without the minutes that its compiler would take."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield


def hierarchy() -> None:
    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfNormal("tau", 2)
    effect = pm.Normal("effect", mu, tau, dims="school")
    sigma = pm.Exponential("sigma", 1)
    mean = pm.Deterministic("mean", effect[pm.Data("group", GROUP, dims="row")], dims="row")
    pm.Normal("y", mean, sigma, observed=DATA, dims="row")


def regression() -> None:
    features = pm.Data("features", FEATURES, dims=("row", "feature"))
    slopes = pm.Normal("slopes", 0, 1, dims="feature")
    pm.StudentT("y", nu=pm.Gamma("nu", 2, 0.1), mu=features @ slopes, sigma=1, observed=DATA, dims="row")


def weights() -> None:
    pm.Dirichlet("w", np.ones(3))
    pm.ZeroSumNormal("shift", 1, shape=4)


def bounded() -> None:
    low = pm.Normal("low")
    pm.Uniform("between", low, low + 2)
    pm.TruncatedNormal("above", 0, 1, lower=0.5)
    pm.Beta("p", 2, 3)


def cutpoints() -> None:
    cuts = pm.Normal("cuts", 0, 2, shape=3, transform=ordered, initval=[-1, 0, 1])
    pm.OrderedLogistic("answer", eta=pm.Normal("eta"), cutpoints=cuts, observed=[0, 1, 3, 2])


def series() -> None:
    rho = pm.Uniform("rho", -1, 1)
    pm.AR("state", rho=[rho], sigma=1, init_dist=pm.Normal.dist(0, 1), steps=4)
    pm.GaussianRandomWalk("walk", sigma=1, init_dist=pm.Normal.dist(0, 1), steps=3)


def mixture() -> None:
    means = pm.Normal("means", [-2, 2], 1)
    pm.NormalMixture("y", w=pm.Dirichlet("w", [1, 1]), mu=means, sigma=1, observed=DATA)
    pm.Potential("apart", -((means[1] - means[0]) ** 2) / 50)


def correlation() -> None:
    root, *_ = pm.LKJCholeskyCov("root", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1, shape=2))
    pm.MvNormal("y", np.zeros(2), chol=root, observed=FEATURES[:, :2])


def missing() -> None:
    with pytest.warns(pm.exceptions.ImputationWarning):
        pm.Normal("y", pm.Normal("mu"), 1, observed=np.array([0.5, np.nan, 1.0]))


MODELS = (hierarchy, regression, weights, bounded, cutpoints, series, mixture, correlation, missing)


def made(build: Callable[[], None]) -> tuple[pm.Model, Any]:
    with pm.Model(coords={"school": ["a", "b", "c"], "feature": ["x", "y", "z"]}) as model:
        build()
        return model, dlrd.models.pymc()


def draws_of(model: Any, num: int = 3) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(num, model.dim))


def points(model: pm.Model, draws: np.ndarray) -> list[dict[str, np.ndarray]]:
    """The draws as PyMC has them, by a way of its own."""
    template = model.initial_point()
    names = [value.name for value in model.value_vars]
    ends = np.cumsum([template[name].size for name in names])
    return [
        {
            name: part.reshape(template[name].shape)
            for name, part in zip(names, np.split(draw, ends[:-1]), strict=True)
        }
        for draw in draws
    ]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("build", MODELS)
def test_density_variables_and_likelihood_are_those_of_pymc(build: Callable[[], None]) -> None:
    theirs, ours = made(build)
    draws = draws_of(ours)
    at = points(theirs, draws)
    log_density = theirs.compile_logp()
    # Sums of some tens of terms of either sign.
    expected = [log_density(point) for point in at]
    np.testing.assert_allclose(ours.values(jnp.asarray(draws), None), expected, rtol=1e-10)
    variables = theirs.free_RVs + theirs.deterministics
    functions = theirs.compile_fn(
        theirs.replace_rvs_by_values(variables), inputs=theirs.value_vars, on_unused_input="ignore"
    )
    found = ours.constrained(draws)
    assert list(found) == [variable.name for variable in variables]
    for values, each in zip(zip(*map(functions, at), strict=True), found, strict=True):
        np.testing.assert_allclose(found[each], np.stack(values), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.unconstrained(found), draws, atol=1e-10)
    likelihood = ours.log_likelihood(draws)
    assert list(likelihood) == [variable.name for variable in theirs.observed_RVs]
    for name, values in likelihood.items():
        terms = theirs.compile_logp(vars=[theirs[name]], sum=False)
        np.testing.assert_allclose(values, [terms(point)[0] for point in at], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("build", [hierarchy, correlation])
def test_gradients_are_those_of_pymc(build: Callable[[], None], precision: jnp.dtype) -> None:
    theirs, ours = made(build)
    draws = draws_of(ours)
    values, gradients = ours.values_and_gradients(jnp.asarray(draws), None)
    assert values.dtype == gradients.dtype == precision
    slope = theirs.compile_dlogp()
    tolerance = 1e-9 if precision == jnp.float64 else 1e-4
    np.testing.assert_allclose(
        gradients, [slope(point) for point in points(theirs, draws)], rtol=tolerance, atol=tolerance
    )


def test_one_model_serves_both_precisions() -> None:
    """Data that were rounded for one of them would be seen in the other."""
    theirs, ours = made(hierarchy)
    draws = draws_of(ours)
    expected = [theirs.compile_logp()(point) for point in points(theirs, draws)]
    for has_x64, tolerance in ((False, 1e-5), (True, 1e-12), (False, 1e-5)):
        with jax.enable_x64(has_x64):
            np.testing.assert_allclose(ours.values(jnp.asarray(draws), None), expected, rtol=tolerance)
            assert ours.constrained(jnp.asarray(draws))["tau"].dtype == jnp.asarray(draws).dtype


def test_names_say_what_is_fitted() -> None:
    assert made(hierarchy)[1].names == ("mu", "log tau", "effect[0]", "effect[1]", "effect[2]", "log sigma")
    assert made(bounded)[1].names == ("low", "logit between", "free above", "logit p")
    assert made(weights)[1].names == ("free w[0]", "free w[1]", *(f"free shift[{i}]" for i in range(3)))


def test_axes_and_data() -> None:
    _, model = made(hierarchy)
    for capability in (Model, Labelled, Predictive, Observed, StartsChains):
        assert isinstance(model, capability)
    assert model.dims == {"group": ("row",), "effect": ("school",), "mean": ("row",), "y": ("row",)}
    assert model.coords["school"].tolist() == ["a", "b", "c"]
    assert model.observed_data.keys() == {"y"}
    np.testing.assert_array_equal(model.observed_data["y"], DATA)
    np.testing.assert_array_equal(model.constant_data["group"], GROUP)


def test_data_are_those_of_the_moment() -> None:
    with pm.Model() as theirs:
        x = pm.Data("x", [1.0, 2.0])
        pm.Normal("y", pm.Normal("slope") * x, 1, observed=[0.0, 1.0])
        before = dlrd.models.pymc()
        pm.set_data({"x": [3.0, 4.0]})
    after = dlrd.models.pymc(theirs)
    draw = jnp.ones((1, 1))
    squares = [np.sum((np.array([0.0, 1.0]) - x) ** 2) for x in ([1.0, 2.0], [3.0, 4.0])]
    difference = before.values(draw, None) - after.values(draw, None)
    np.testing.assert_allclose(difference, (squares[1] - squares[0]) / 2, rtol=1e-5)


def slopes(x: np.ndarray, y: np.ndarray, power: int = 1) -> Any:
    with pm.Model():
        mean = pm.Deterministic("mean", pm.Normal("slope") * x**power)
        pm.Normal("y", mean, 1, observed=y)
        return dlrd.models.pymc()


def test_models_of_other_data_are_one_to_programs() -> None:
    y = np.zeros(3)
    one, same, other = slopes(DATA[:3], y), slopes(DATA[3:6], y), slopes(DATA[:3], y, power=2)
    (_, form), (own, same_form) = jax.tree.flatten(one), jax.tree.flatten(same)
    assert form == same_form != jax.tree.structure(slopes(DATA[:4], np.zeros(4)))
    assert one != same
    draw = jnp.array([[2.0]])
    np.testing.assert_array_equal(form.unflatten(own).values(draw, None), same.values(draw, None))
    for model, x in ((one, DATA[:3]), (same, DATA[3:6]), (other, DATA[:3] ** 2)):
        squares = jnp.sum((2 * x) ** 2) + 4.0
        # Three observations and one slope, each with the constant of a standard normal.
        exact = -0.5 * squares - 2 * np.log(2 * np.pi)
        np.testing.assert_allclose(model.values(draw, None), [exact], rtol=1e-5)
        np.testing.assert_allclose(model.constrained(draw)["mean"], [2 * x], rtol=1e-6)


def test_data_that_decide_about_lengths_are_the_models_own() -> None:
    def chosen(mask: np.ndarray) -> Any:
        with pm.Model():
            effect = pm.Normal("effect", shape=3)
            sums = pt.cumsum(effect[pt.as_tensor(mask) > 0])
            pm.Potential("sum", sums[-1] * pt.as_tensor(DATA[:3]).sum())
            return dlrd.models.pymc()

    one, other = chosen(np.array([1, 1, 0])), chosen(np.array([0, 1, 1]))
    assert jax.tree.structure(one) != jax.tree.structure(other)
    draw = jnp.array([[1.0, 2.0, 4.0]])
    difference = other.values(draw, None) - one.values(draw, None)
    np.testing.assert_allclose(difference, 3 * DATA[:3].sum(), rtol=1e-5)


def test_starting_values_of_the_model_stay() -> None:
    theirs, _ = made(cutpoints)
    np.testing.assert_array_equal(theirs.rvs_to_initial_values[theirs["cuts"]], [-1, 0, 1])


def test_starts_of_chains_are_points_of_pymc() -> None:
    theirs, model = made(hierarchy)
    draws = draws_of(model)
    starts = model.chain_starts(jnp.asarray(draws))
    assert [set(start) for start in starts] == [{"mu", "tau", "effect", "sigma"}] * 3
    with theirs:
        start_fn = pm.initial_point.make_initial_point_fn(
            model=theirs, overrides={theirs[k]: v for k, v in starts[1].items()}
        )
    point = start_fn(0)
    for name, values in points(theirs, draws)[1].items():
        np.testing.assert_allclose(point[name], values, rtol=1e-5, atol=1e-6)


def test_predictions_are_made_by_the_model() -> None:
    _, model = made(hierarchy)
    draw = model.unconstrained(
        {"mu": [0.0], "tau": [1.0], "effect": [[100.0, 200.0, 300.0]], "sigma": [1e-3]}
    )
    draws = jnp.repeat(draw, 5, axis=0)
    found = model.predictions(draws, jax.random.key(3))
    assert found["y"].shape == (5, 12)
    np.testing.assert_allclose(
        found["y"], np.tile([100.0, 200.0, 300.0], (5, 1)).repeat(4, axis=1), rtol=1e-3
    )
    np.testing.assert_array_equal(found["y"], model.predictions(draws, jax.random.key(3))["y"])
    assert (found["y"] != model.predictions(draws, jax.random.key(4))["y"]).all()


class Untranslatable(Op):
    """An operation that jax knows nothing of."""

    def make_node(self, *inputs: Any) -> Apply:
        return Apply(self, list(inputs), [inputs[0].type()])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        output_storage[0][0] = inputs[0]


def random_length() -> None:
    length = pm.Uniform("length", 1, 9)
    pm.Normal("values", 0, 1, shape=pt.cast(length, "int64"))


def discrete() -> None:
    pm.Normal("y", pm.Bernoulli("kind", 0.5) + pm.Poisson("number", 3), 1, observed=0.0)


def in_minibatches() -> None:
    batch = pm.Minibatch(DATA, batch_size=4)
    pm.Normal("y", pm.Normal("mu"), 1, observed=batch, total_size=len(DATA))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: None, "model must have at least one variable that is not observed, got none"),
        (
            discrete,
            "must be continuous, got kind, number; sum it out, as with pm.Mixture or pymc_extras.marg",
        ),
        (in_minibatches, "must take all of its data, got one with pm.Minibatch"),
        (random_length, "must have a fixed shape, got values, whose shape is random"),
        (
            lambda: pm.Potential("odd", Untranslatable()(pm.Normal("x"))),
            "can turn into jax, got Untranslatable",
        ),
        (lambda: pm.Potential("noise", pm.Normal("x") * pm.Normal.dist()), "draws random numbers of its own"),
    ],
    ids=["empty", "discrete", "minibatch", "shape", "operation", "noise"],
)
def test_what_cannot_be_fitted_is_said_in_a_sentence(build: Callable[[], None], message: str) -> None:
    with pm.Model() as theirs:
        build()
    with pytest.raises(ValueError, match=message):
        dlrd.models.pymc(theirs)


def test_a_model_is_needed() -> None:
    with pytest.raises(TypeError, match="model must be given outside of `with"):
        dlrd.models.pymc()
    with pytest.raises(TypeError, match="model must be a PyMC model, got"):
        dlrd.models.pymc(lambda z: z)  # pyright: ignore[reportArgumentType] - the mistake is the test


def run(code: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}  # NumPyro may set it
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=clean).stdout


@pytest.mark.parametrize("has_x64", [False, True])
def test_no_setting_changes(has_x64: bool) -> None:
    """Though PyTensor turns double precision on when imported for jax, and PyMC asks for 100 devices."""
    code = f"""
import os, jax, pymc as pm
jax.config.update("jax_enable_x64", {has_x64})
import dlrd.models, dlrd.models.from_pymc
before = dict(jax.config.values), dict(os.environ)
with pm.Model(), jax.enable_x64(not {has_x64}):
    pm.Normal("x")
    dlrd.models.pymc().values(jax.numpy.zeros((2, 1)), None)
print((dict(jax.config.values), dict(os.environ)) == before, len(jax.devices()))
"""
    assert run(code) == "True 1\n"


def test_without_pymc_there_is_a_sentence() -> None:
    code = """
import sys
sys.modules["pymc"] = None
import dlrd.models
try:
    dlrd.models.pymc
except ImportError as error:
    print(error)
"""
    assert run(code) == "dlrd.models.pymc needs PyMC, which is not installed: pip install pymc\n"
