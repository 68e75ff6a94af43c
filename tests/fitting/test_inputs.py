"""Bad input: one sentence that names the argument, the value and the way out, before any long work."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dlrd

OPTIMIZER = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-2))


def normal(z: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(z**2)


class Constant(eqx.Module):
    """A family with nothing to train."""

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return jnp.zeros((*sample_shape, 2))

    def log_prob(self, x: jax.Array) -> jax.Array:
        return jnp.zeros(x.shape[:-1])


BAD_ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "draws for workers that there are not": (
        {"num_draws": "workers"},
        'num_draws="workers" needs a model that workers run, as dlrd.models.simulator makes; got function',
    ),
    "log density gives a vector": (
        {"log_density": lambda z: -0.5 * z**2},
        r"log_density must return one number for one draw of shape \(3,\), got an array of shape \(3,\); sum",
    ),
    "log density gives an integer": (
        {"log_density": lambda z: jnp.asarray(1)},
        "log_density must return a real float, got int32",
    ),
    "log density gives a complex number": (
        {"log_density": lambda z: normal(z) * 1j},
        "log_density must return a real float, got complex64",
    ),
    "log density gives a tuple": (
        {"log_density": lambda z: (normal(z), 0.0)},
        "log_density must return one number, got tuple",
    ),
    "log density wants another shape": (
        {"log_density": lambda z: normal(jnp.ones((5, 4)) @ z)},
        r"log_density failed on a draw of shape \(3,\), which is what family gives: ",
    ),
    "log density is no function": (
        {"log_density": 1.0},
        "log_density must be a function of one draw, or a model, got float 1.0",
    ),
    "log density is −inf at the start": (
        {"log_density": lambda z: jnp.where(jnp.all(z > 9), normal(z), -jnp.inf)},
        "log_density is -inf at 8 of the 8 first draws from family; start from a family whose",
    ),
    "log density is nan at the start": (
        {"log_density": lambda z: normal(z) * jnp.nan},
        "log_density is nan at 8 of the 8 first draws from family; start from a family whose",
    ),
    "gradient is nan at the start": (
        {"log_density": lambda z: -jnp.sum(jnp.sqrt(jnp.abs(z - jax.lax.stop_gradient(z))))},
        "log_density has an infinite or nan gradient at the first draws from family",
    ),
    "key is a float": ({"key": 0.5}, "key must be a whole number or jax.random.key"),
    "key is None": ({"key": None}, "key must be a whole number or jax.random.key.*, got NoneType None"),
    "key is a bool": ({"key": True}, "key must be a whole number or jax.random.key.*, got bool True"),
    "key is several keys": (
        {"key": jax.random.split(jax.random.key(0))},
        r"key must be a single key, got \(2,\); fit_many takes several",
    ),
    "family is a number": ({"family": 3}, "family must have the methods sample and log_prob, .* got int 3"),
    "family is a class": (
        {"family": dlrd.MeanFieldNormal},
        r"got the class MeanFieldNormal; MeanFieldNormal.standard\(dim\) starts from",
    ),
    "family has nothing to train": ({"family": Constant()}, "family must have arrays of floats to train"),
    "family starts at nan": (
        {"family": dlrd.MeanFieldNormal(jnp.full(3, jnp.nan), jnp.zeros(3))},
        "family must start from finite parameters, got infinite or nan ones",
    ),
    "one draw for the score function": (
        {"gradient": dlrd.score_function, "num_draws": 1},
        "num_draws must be at least 2 for score_function, got 1",
    ),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_fit_says_what_is_wrong(case: str) -> None:
    changed, message = BAD_ARGUMENTS[case]
    arguments: dict[str, Any] = {
        "log_density": normal,
        "family": dlrd.MeanFieldNormal.standard(3),
        "key": 0,
        "optimizer": OPTIMIZER,
        "steps": 10**9,
        "progress": False,
    }
    with pytest.raises((ValueError, TypeError), match=message) as error:
        dlrd.fit(**(arguments | changed))
    assert "\n" not in str(error.value).split("which is what family gives")[0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"keys": []}, "keys must have at least one entry, got none"),
        ({"keys": 3}, r"keys must be a sequence of seeds or keys, as range\(8\); got int 3"),
        ({"keys": [0.5]}, "key must be a whole number"),
        ({"learning_rates": []}, "learning_rates must be a sequence of numbers"),
        ({"learning_rates": 0.1}, "learning_rates must be a sequence of numbers"),
        ({"learning_rates": [0.1, -1.0]}, "learning_rates must be positive numbers, got -1 among them"),
    ],
)
def test_fit_many_says_what_is_wrong(changed: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "log_density": normal,
        "family": dlrd.MeanFieldNormal.standard(3),
        "keys": [0, 1],
        "optimizer": (lambda rate: OPTIMIZER) if "learning_rates" in changed else OPTIMIZER,
        "steps": 10**9,
        "progress": False,
    }
    with pytest.raises((ValueError, TypeError), match=message):
        dlrd.fit_many(**(arguments | changed))


@pytest.mark.parametrize(
    "key",
    [5, np.int64(5), jax.random.key(5), lambda: jax.random.PRNGKey(5)],
    ids=["int", "numpy", "typed", "older"],
)
def test_keys_of_every_kind_mean_the_same(key: Any) -> None:
    key = key() if isinstance(key, Callable) else key
    arguments: dict[str, Any] = {"optimizer": OPTIMIZER, "steps": 3, "progress": False}
    family = dlrd.MeanFieldNormal.standard(2)
    fit = dlrd.fit(normal, family, key=key, **arguments)
    expected = dlrd.fit(normal, family, key=5, **arguments)
    assert fit.elbo == expected.elbo
