"""Models from what people write down."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.models import FunctionModel, as_model


def cubic(z: jax.Array) -> jax.Array:
    return jnp.sum(z**3)


def test_what_it_can_do() -> None:
    model = dlrd.models.function(cubic, 2)
    assert (model.dim, model.names) == (2, ("z[0]", "z[1]"))
    assert model.has_gradient
    assert model.is_exact
    assert not model.can_fail
    draws = jnp.ones((4, 2))
    assert model.constrained(draws) is draws
    np.testing.assert_array_equal(model.unconstrained(np.ones((4, 2))), draws)


def test_family_and_key_have_defaults() -> None:
    found = dlrd.fit(
        dlrd.models.function(lambda z: -0.5 * jnp.sum((z - 1) ** 2), 2, ["a", "b"]), progress=False
    )
    assert isinstance(found.family, dlrd.FullRankNormal)
    assert found.summary().names == ["a", "b"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dlrd.fit(cubic), "family must be given where log_density is a plain function"),
        (lambda: dlrd.fit(3.0), "log_density must be a function of one draw, or a model, got float 3.0"),
        (lambda: dlrd.models.function(3.0, 2), "log_density must be a function of one draw, got float 3.0"),
        (
            lambda: dlrd.models.function(cubic, 0),
            "the number of variables must be a whole number of at least 1, got int 0",
        ),
        (lambda: dlrd.models.function(cubic, 2, ["a"]), "names must be 2 different ones"),
        (lambda: dlrd.models.function(cubic, 2, ["a", "a"]), "names must be 2 different ones"),
        (lambda: dlrd.models.function(cubic, 2, "ab"), "names must be a sequence of strings, got str 'ab'"),
        (
            lambda: dlrd.models.function(cubic, {"x": ()}, ["a"]),
            "names are for a vector; variables have their own",
        ),
        (lambda: dlrd.models.function(cubic, 2, dims={"z": "a"}), "dims and coords are for named variables"),
        (
            lambda: dlrd.fit(dlrd.models.function(cubic, 2), dlrd.MeanFieldNormal.standard(3)),
            r"family must have draws of 2 numbers, as the model has, got \(3,\)",
        ),
    ],
    ids=range(10),
)
def test_says_what_is_wrong(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_model_is_taken_as_it_is() -> None:
    model = FunctionModel(cubic, (2,))
    assert as_model(model, None) is model
    assert as_model(cubic, (2,)) == model
