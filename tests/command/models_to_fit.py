"""Models in a file, as users have them, which the tests of the command fit."""

import os
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dlrd
from dlrd.models import FunctionModel

num_schools = 8


def normal(z: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum((z - 3.0) ** 2)


def measured(z: jax.Array, y: np.ndarray, sd: float = 1.0) -> jax.Array:
    return -0.5 * (z[0] - y) @ (z[0] - y) / sd**2


def walled(z: jax.Array) -> jax.Array:
    """Of positive numbers alone: its author has forgotten to transform them."""
    return jnp.where(jnp.all(z > 0), -jnp.sum(z), -jnp.inf)


def broken(y: np.ndarray) -> Any:
    return y @ np.ones(len(y) + 1)


class Scales(FunctionModel):
    """Log-normal variables: a number, and an array."""

    def constrained(self, draws: jax.Array) -> Any:
        return {"tau": jnp.exp(draws[:, 0]), "theta": jnp.exp(draws[:, 1:])}


def scales(num: int = 40) -> Scales:
    return Scales(normal, (num,))


def _evaluated(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Student's with three degrees of freedom, which takes its time if it is asked to, and keeps count."""
    time.sleep(float(os.environ.get("SECONDS_A_DRAW", "0")) * len(draws))
    with Path("evaluated.txt").open("a", encoding="utf-8") as file:
        file.write(f"{len(draws)}\n")
    return -2 * np.log1p(draws**2 / 3).sum(axis=1), -4 * draws / (3 + draws**2)


counted = dlrd.models.host(_evaluated, 2)
