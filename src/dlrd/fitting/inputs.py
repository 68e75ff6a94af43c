"""Checks of what a caller passes in: one sentence each, before any long work."""

import functools
import math
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.checks import shown
from dlrd.families import Family, FromNoise, split
from dlrd.models import Model, Simulated

MIN_DRAWS = 8
"""Of a step, where a model's workers decide how many there are."""


def as_key(key: Any) -> Key[Array, ""]:
    """A typed key from a seed, a typed key, or a key in jax's older form."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        return _key_of_seed(int(key))
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.shape == ():
            return key
        raise ValueError(f"key must be a single key, got {key.shape}; fit_many takes several")
    if isinstance(key, (jax.Array, np.ndarray)) and key.dtype == np.uint32 and key.shape == (2,):
        return jax.random.wrap_key_data(jax.device_put(np.array(key)))
    raise TypeError(f"key must be a whole number or jax.random.key(0), got {shown(key)}")


def _key_of_seed(seed: int) -> Key[Array, ""]:
    """`jax.random.key`, for usual seeds and jax's usual generator without a program to be compiled."""
    settings = jax.config.values
    is_usual = settings["jax_default_prng_impl"] == "threefry2x32" and not settings["jax_random_seed_offset"]
    if is_usual and 0 <= seed < 2**31:
        return jax.random.wrap_key_data(jax.device_put(np.array([0, seed], np.uint32)))
    return jax.random.key(seed)


def as_keys(keys: Any) -> Key[Array, " run"]:
    """Typed keys in one array, from seeds or keys."""
    if isinstance(keys, (int, str)) or not isinstance(keys, Iterable):
        raise TypeError(f"keys must be a sequence of seeds or keys, as range(8); got {shown(keys)}")
    each = [as_key(key) for key in keys]
    if not each:
        raise ValueError("keys must have at least one entry, got none")
    return jnp.stack(each)


def as_learning_rates(values: Any) -> Float[Array, "rate ..."]:
    rates = np.asarray(values, dtype=float)
    if rates.ndim not in (1, 2) or rates.size == 0:
        raise ValueError(f"learning_rates must be a sequence of numbers, got {shown(values)}")
    if rates.ndim == 1 and not np.all((rates > 0) & np.isfinite(rates)):
        bad = rates[~((rates > 0) & np.isfinite(rates))][0]
        raise ValueError(f"learning_rates must be positive numbers, got {bad:g} among them")
    return jnp.asarray(rates, dtype=float)


def check_monitor(monitor: Any, family: Family) -> None:
    """Checks that the function gives named arrays."""
    if not callable(monitor):
        raise TypeError(f"monitor must be a function of the family, got {shown(monitor)}")
    given = eqx.filter_eval_shape(monitor, family)
    if not isinstance(given, dict) or "step" in given:
        raise TypeError(
            'monitor must return a dict of arrays, none of them named "step", as lambda q: {"mean": q.mean}; '
            f"got {shown(given)}"
        )


def check_positive(name: str, value: Any) -> None:
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not is_number or not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a positive number, got {shown(value)}")


def check_family(family: Any) -> None:
    if isinstance(family, type):
        raise TypeError(
            f"family must be a distribution, got the class {family.__name__}; "
            f"{family.__name__}.standard(dim) starts from N(0, I)"
        )
    if not isinstance(family, Family):
        raise TypeError(
            "family must have the methods sample and log_prob, as dlrd.MeanFieldNormal.standard(dim) "
            f"has; got {shown(family)}"
        )
    leaves = jax.tree.leaves(split(family)[0])
    if not leaves:
        raise ValueError(f"family must have arrays of floats to train, got none in {shown(family)}")
    if not all(np.isfinite(leaf).all() for leaf in map(np.asarray, leaves)):
        raise ValueError("family must start from finite parameters, got infinite or nan ones")


def as_num_draws(num_draws: Any, log_density: Any) -> Any:
    """Draws a step: as given, or a multiple of the workers that a model is run by."""
    if num_draws != "workers":
        return num_draws
    if not isinstance(log_density, Simulated):
        raise ValueError(
            'num_draws="workers" needs a model that workers run, as dlrd.models.simulator makes; '
            f"got {shown(log_density)}"
        )
    return -(-MIN_DRAWS // log_density.num_workers) * log_density.num_workers


def check_draws(draws: Any, family: Family, num_draws: int, is_reparameterized: bool) -> None:
    """Checks that a Sobol sequence can give the family's draws."""
    if draws not in ("independent", "sobol", "sobol_pairs"):
        raise ValueError(f'draws must be "independent", "sobol" or "sobol_pairs", got {shown(draws)}')
    if draws == "independent":
        return
    if not isinstance(family, FromNoise):
        raise ValueError(
            f'draws="{draws}" needs a family that is made from noise, as dlrd\'s normals are, got a '
            f'{type(family).__name__}; leave draws at "independent"'
        )
    if not is_reparameterized:
        raise ValueError(f'draws="{draws}" needs a reparameterised gradient, not dlrd.score_function')
    if draws == "sobol_pairs" and num_draws % 2:
        raise ValueError(f'num_draws must be even for draws="sobol_pairs", got {num_draws}')


def shape_of_draws(family: Family) -> tuple[int, ...]:
    """Of one draw."""
    return _one_draw(family).shape


def _one_draw(family: Family) -> jax.ShapeDtypeStruct:
    return jax.eval_shape(lambda: family.sample(jax.random.key(0)))


def check_model(model: Model, family: Family) -> None:
    """Checks that one draw of the family gives one real number."""
    draw = _one_draw(family)
    if math.prod(draw.shape) != model.dim:
        raise ValueError(f"family must have draws of {model.dim} numbers, as the model has, got {draw.shape}")
    try:
        values = _values_of_one(model, draw.shape, draw.dtype)
    except Exception as error:
        raise ValueError(
            f"log_density failed on a draw of shape {draw.shape}, which is what family gives: {error}"
        ) from error
    if not isinstance(values, jax.ShapeDtypeStruct):
        raise TypeError(f"log_density must return one number, got {shown(values)}")
    if values.shape != (1,):
        raise ValueError(
            f"log_density must return one number for one draw of shape {draw.shape}, "
            f"got an array of shape {values.shape[1:]}; sum it up"
        )
    if not jnp.issubdtype(values.dtype, jnp.floating):
        raise TypeError(f"log_density must return a real float, got {values.dtype}")


@functools.lru_cache(maxsize=8)
def _values_of_one(model: Model, shape: tuple[int, ...], dtype: jnp.dtype) -> Any:
    """The shape of what the model gives for a batch of one draw; traced once for a model."""
    draws = jax.ShapeDtypeStruct((1, *shape), dtype)
    return jax.eval_shape(lambda draws: model.values(draws, jax.random.key(0)), draws)


def raise_bad_start(model: Model, family: Family, key: Key[Array, ""], num_draws: int) -> None:
    """Raises the error for a fit whose first step failed."""
    first_key = jax.random.fold_in(key, 0)
    values = np.asarray(model.values(family.sample(first_key, (num_draws,)), first_key))
    is_bad = ~np.isfinite(values)
    if is_bad.any():
        raise ValueError(
            f"log_density is {values[is_bad][0]} at {is_bad.sum()} of the {num_draws} first draws from "
            "family; start from a family whose draws lie where the density is positive and finite"
        )
    raise ValueError(
        "log_density has an infinite or nan gradient at the first draws from family, or the first step of "
        "optimizer overflows; start elsewhere, or with a smaller learning rate"
    )
