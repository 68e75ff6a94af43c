"""Checks of what a caller passes in: one sentence each, before any long work."""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from dlrd.families import Family, FromNoise, Natural
from dlrd.gradients import natural_gradient, score_function
from dlrd.gradients.estimate import LogDensity, split


def as_key(key: Any) -> Key[Array, ""]:
    """A typed key from a seed, a typed key, or a key in jax's older form."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        return jax.random.key(int(key))
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.shape == ():
            return key
        raise ValueError(f"key must be a single key, got {key.shape}; fit_many takes several")
    if isinstance(key, (jax.Array, np.ndarray)) and key.dtype == np.uint32 and key.shape == (2,):
        return jax.random.wrap_key_data(jnp.asarray(key))
    raise TypeError(f"key must be a whole number or jax.random.key(0), got {_shown(key)}")


def as_keys(keys: Any) -> Key[Array, " run"]:
    """Typed keys in one array, from seeds or keys."""
    if isinstance(keys, (int, str)) or not isinstance(keys, Iterable):
        raise TypeError(f"keys must be a sequence of seeds or keys, as range(8); got {_shown(keys)}")
    each = [as_key(key) for key in keys]
    if not each:
        raise ValueError("keys must have at least one entry, got none")
    return jnp.stack(each)


def as_learning_rates(values: Any) -> Float[Array, "rate ..."]:
    rates = np.asarray(values, dtype=float)
    if rates.ndim not in (1, 2) or rates.size == 0:
        raise ValueError(f"learning_rates must be a sequence of numbers, got {_shown(values)}")
    if rates.ndim == 1 and not np.all((rates > 0) & np.isfinite(rates)):
        bad = rates[~((rates > 0) & np.isfinite(rates))][0]
        raise ValueError(f"learning_rates must be positive numbers, got {bad:g} among them")
    return jnp.asarray(rates, dtype=float)


def check_monitor(monitor: Any, family: Family) -> None:
    """Checks that the function gives named arrays."""
    if not callable(monitor):
        raise TypeError(f"monitor must be a function of the family, got {_shown(monitor)}")
    given = eqx.filter_eval_shape(monitor, family)
    if not isinstance(given, dict) or "step" in given:
        raise TypeError(
            'monitor must return a dict of arrays, none of them named "step", as lambda q: {"mean": q.mean}; '
            f"got {_shown(given)}"
        )


def check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {_shown(value)}")


def check_positive(name: str, value: Any) -> None:
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not is_number or not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a positive number, got {_shown(value)}")


def check_automatic(options: dict[str, Any]) -> None:
    """Checks that an automatic fit is not given what it decides by itself."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(
                f"{name} must be given only together with optimizer, got {_shown(value)}; an automatic fit "
                "takes tolerance and max_gradients"
            )


def check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, optax.GradientTransformation):
        raise TypeError(
            "optimizer must be an optax transformation, as "
            f"optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-2)); got {_shown(optimizer)}"
        )


def check_family(family: Any) -> None:
    if isinstance(family, type):
        raise TypeError(
            f"family must be a distribution, got the class {family.__name__}; "
            f"{family.__name__}.standard(dim) starts from N(0, I)"
        )
    if not isinstance(family, Family):
        raise TypeError(
            "family must have the methods sample and log_prob, as dlrd.MeanFieldNormal.standard(dim) "
            f"has; got {_shown(family)}"
        )
    leaves = jax.tree.leaves(split(family)[0])
    if not leaves:
        raise ValueError(f"family must have arrays of floats to train, got none in {_shown(family)}")
    if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves):
        raise ValueError("family must start from finite parameters, got infinite or nan ones")


def check_draws(draws: Any, family: Family, gradient: Any, num_draws: int) -> None:
    """Checks that a Sobol sequence can give the family's draws."""
    if draws not in ("independent", "sobol", "sobol_pairs"):
        raise ValueError(f'draws must be "independent", "sobol" or "sobol_pairs", got {_shown(draws)}')
    if gradient is natural_gradient and not isinstance(family, Natural):
        raise ValueError(
            f"gradient=dlrd.natural_gradient needs one of dlrd's normals, got a {type(family).__name__}; "
            "take dlrd.sticking_the_landing"
        )
    if draws == "independent":
        return
    if not isinstance(family, FromNoise):
        raise ValueError(
            f'draws="{draws}" needs a family that is made from noise, as dlrd\'s normals are, got a '
            f'{type(family).__name__}; leave draws at "independent"'
        )
    if gradient is score_function:
        raise ValueError(f'draws="{draws}" needs a reparameterised gradient, got score_function')
    if draws == "sobol_pairs" and num_draws % 2:
        raise ValueError(f'num_draws must be even for draws="sobol_pairs", got {num_draws}')


def check_log_density(log_density: Any, family: Family) -> None:
    """Checks that one draw of the family gives one real number."""
    if not callable(log_density):
        raise TypeError(f"log_density must be a function of one draw, got {_shown(log_density)}")
    draw = jax.eval_shape(lambda key: family.sample(key), jax.random.key(0))
    try:
        value = jax.eval_shape(log_density, draw)
    except Exception as error:
        raise ValueError(
            f"log_density failed on a draw of shape {draw.shape}, which is what family gives: {error}"
        ) from error
    if not isinstance(value, jax.ShapeDtypeStruct):
        raise TypeError(f"log_density must return one number, got {_shown(value)}")
    if value.shape != ():
        raise ValueError(
            f"log_density must return one number for one draw of shape {draw.shape}, "
            f"got an array of shape {value.shape}; sum it up"
        )
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"log_density must return a real float, got {value.dtype}")


def raise_bad_start(log_density: LogDensity, family: Family, key: Key[Array, ""], num_draws: int) -> None:
    """Raises the error for a fit whose first step failed."""
    values = np.asarray(jax.vmap(log_density)(family.sample(jax.random.fold_in(key, 0), (num_draws,))))
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


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
