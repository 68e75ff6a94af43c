"""Functions of named variables."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import dirichlet, gamma, norm

import dlrd
from dlrd.models import Labelled, Model, NamedModel

SUPPORTS = {"mu": (), "sigma": dlrd.positive(), "w": dlrd.simplex(3), "beta": (2, 2)}


def log_density(v: dict[str, jax.Array]) -> jax.Array:
    log_normals = jnp.sum(norm.logpdf(v["beta"], v["mu"], v["sigma"])) + norm.logpdf(v["mu"])
    return log_normals + gamma.logpdf(v["sigma"], 2.0) + dirichlet.logpdf(v["w"], jnp.array([2.0, 3.0, 4.0]))


@pytest.fixture(scope="module")
def model() -> dlrd.models.FunctionModel:
    return dlrd.models.function(
        log_density, SUPPORTS, dims={"beta": ("side", "row"), "w": "kind"}, coords={"side": ["left", "right"]}
    )


def test_it_is_a_model_with_labels(model: NamedModel) -> None:
    assert isinstance(model, Model)
    assert isinstance(model, Labelled)
    assert model.dim == 1 + 1 + 2 + 4
    assert model.names[:4] == ("mu", "log sigma", "free w[0]", "free w[1]")
    assert model.names[4:] == ("beta[0, 0]", "beta[0, 1]", "beta[1, 0]", "beta[1, 1]")
    assert model.dims == {"beta": ("side", "row"), "w": ("kind",)}
    assert model.coords["side"].tolist() == ["left", "right"]


def test_values_have_the_jacobians(model: NamedModel) -> None:
    draws = jax.random.normal(jax.random.key(0), (5, 8))

    @jax.jit
    def expected(draws: jax.Array) -> jax.Array:
        log_dets = draws[:, 1] + jax.vmap(dlrd.simplex(3).log_det)(draws[:, 2:4])
        return jax.vmap(log_density)(model.constrained(draws)) + log_dets

    values = jax.jit(model.values)(draws, None)
    np.testing.assert_allclose(values, expected(draws), rtol=1e-5)
    with_gradients, _ = jax.jit(model.values_and_gradients)(draws, None)
    np.testing.assert_allclose(with_gradients, values, rtol=1e-6)


def test_variables_and_draws_are_inverse(model: NamedModel) -> None:
    draws = jax.random.normal(jax.random.key(1), (6, 8))
    variables = model.constrained(draws)
    assert {name: values.shape[1:] for name, values in variables.items()} == {
        "mu": (),
        "sigma": (),
        "w": (3,),
        "beta": (2, 2),
    }
    np.testing.assert_allclose(model.unconstrained(variables), draws, rtol=1e-4, atol=1e-5)


def test_same_function_same_model(model: NamedModel) -> None:
    """So that a second fit finds the programs of the first; labels do not matter for these."""
    again = dlrd.models.function(log_density, dict(SUPPORTS))
    assert again == model
    assert hash(again) == hash(model)
    wider = dlrd.models.function(log_density, SUPPORTS | {"sigma": dlrd.greater_than(1)})
    assert wider != model


class WithData:
    """A function without a hash."""

    __hash__ = None  # pyright: ignore[reportAssignmentType] - as classes with __eq__ have it

    def __call__(self, v: dict[str, jax.Array]) -> jax.Array:
        return -(v["x"] ** 2)


def test_a_function_without_a_hash_is_only_itself() -> None:
    function = WithData()
    assert dlrd.models.function(function, {"x": ()}) == dlrd.models.function(function, {"x": ()})
    assert dlrd.models.function(function, {"x": ()}) != dlrd.models.function(WithData(), {"x": ()})


COUNTS = np.array([5.0, 9.0, 2.0])
EVENTS, EXPOSURE = 12, 4.0


def conjugate(v: dict[str, jax.Array]) -> jax.Array:
    """A rate with a gamma prior and Poisson events, and kinds with a flat Dirichlet prior and counts.

    Without the constant of the data, so that the evidence is a ratio of known integrals.
    """
    rate = gamma.logpdf(v["rate"], 2.0) + EVENTS * jnp.log(v["rate"]) - EXPOSURE * v["rate"]
    return rate + dirichlet.logpdf(v["kinds"], jnp.ones(3)) + jnp.sum(COUNTS * jnp.log(v["kinds"]))


@pytest.mark.usefixtures("x64")
def test_fit_of_a_conjugate_posterior() -> None:
    """The best normal for the logarithm of a gamma variable of shape a is off by what is left of Stirling's
    series, less than 1/(12 a). Logits of a Dirichlet variable are differences of such, and cost no more.
    """
    fit = dlrd.fit(
        dlrd.models.function(conjugate, {"rate": dlrd.positive(), "kinds": dlrd.simplex(3)}), progress=False
    )
    assert fit.outcome is dlrd.Outcome.CERTIFIED
    shapes, total = np.array([2.0 + EVENTS, *(COUNTS + 1)]), COUNTS.sum() + 3
    gammas = sum(map(math.lgamma, shapes))
    log_evidence = gammas - shapes[0] * math.log(1 + EXPOSURE) + math.lgamma(3) - math.lgamma(total)
    highest_gap = 0.01 + np.sum(1 / (12 * shapes))
    assert -highest_gap - 3 * fit.elbo_error < fit.elbo - log_evidence < 3 * fit.elbo_error
    summary = fit.summary()
    assert summary.names == ["rate", "kinds[0]", "kinds[1]", "kinds[2]"]
    # A gap of 0.01 nats is a mean 0.14 standard deviations off; the draws of the summary add 0.05.
    exact = np.array([shapes[0] / (1 + EXPOSURE), *(shapes[1:] / total)])
    assert np.all(np.abs(summary.mean - exact) < 0.2 * summary.std)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: dlrd.models.function(lambda v: v["beta"], {"beta": (3,)}),
            r"log_density must return one number, got an array of \(3,\); sum it up",
        ),
        (
            lambda: dlrd.models.function(lambda v: (v["mu"], 1.0), {"mu": ()}),
            "log_density must return one number, got tuple .*",
        ),
        (
            lambda: dlrd.models.function(lambda v: v["sgima"], {"mu": (), "sigma": dlrd.positive()}),
            "log_density asked for 'sgima', which is not among the variables mu, sigma",
        ),
        (
            lambda: dlrd.models.function(lambda v: jnp.ones(4) @ v["beta"], {"mu": (), "beta": (3,)}),
            r"log_density failed on variables of shapes mu \(\), beta \(3,\): .*4.*3.*",
        ),
        (
            lambda: dlrd.models.function(log_density, {"mu": 3}),
            r"mu must have a shape, as \(\) or \(31,\), or a support, as dlrd\.positive\(\); got int 3",
        ),
        (lambda: dlrd.models.function(log_density, {}), "variables must be as .*, got dict {}"),
        (
            lambda: dlrd.models.function(log_density, SUPPORTS, dims={"bta": ("side",)}),
            "dims must be of the variables mu, sigma, w, beta, got str 'bta'",
        ),
        (
            lambda: dlrd.models.function(log_density, SUPPORTS, dims={"beta": ("side",)}),
            r"dims of beta must name each axis of its shape \(2, 2\), got tuple \('side',\)",
        ),
        (
            lambda: dlrd.models.function(log_density, SUPPORTS, coords={"side": [1, 2]}),
            "coords must be of axes that dims names, got labels for side",
        ),
        (
            lambda: dlrd.models.function(log_density, SUPPORTS, dims={"w": "kind"}, coords={"kind": ["a"]}),
            r"coords of kind must be 3 labels, as w has there, got an array of shape \(1,\)",
        ),
        (
            lambda: dlrd.models.function(log_density, SUPPORTS).unconstrained({"mu": [1.0]}),
            "variables must be a dict of mu, sigma, w, beta, got mu",
        ),
        (
            lambda: dlrd.models.function(lambda v: v["mu"], {"mu": ()}).unconstrained({"mu": [[1.0]]}),
            r"mu must have draws of shape \(\) in its first axis, got an array of shape \(1, 1\)",
        ),
    ],
    ids=range(12),
)
def test_says_what_is_wrong(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}$"):
        call()


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"a": "g", "b": "g"}, r"dims of one name must have one length, got g with 3 in a and 4 in b$"),
        ({"a": "a"}, r"dims of a must have names of their own, .* got a$"),
        ({"a": "draw"}, r"dims of a must have names of their own, .* got draw$"),
        ({"c": ("i", "i")}, r"dims of c must have names of their own, .* got i$"),
    ],
)
def test_axes_that_no_answer_could_have_are_refused(dims, message):
    shapes = {"a": (3,), "b": (4,), "c": (2, 2)}
    with pytest.raises(ValueError, match=message):
        dlrd.models.function(lambda v: jnp.sum(v["a"]), shapes, dims=dims)
