"""The model as the search for a start sees it: NumPy in, NumPy out, every gradient counted."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.models import Model

MAX_NUMBERS = 2**22
"""Of the points that are evaluated at once."""


@functools.lru_cache(maxsize=8)
def _compiled(model: Model) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Values and gradients at points, and gradients alone; compiled once for a model."""
    both_fn = jax.jit(lambda points: model.values_and_gradients(points, None))
    return both_fn, jax.jit(lambda points: model.values_and_gradients(points, None)[1])


class Objective:
    """−log p, which is minimised, and its gradient, in double precision on the host.

    Args:
        model: exact, with gradients.
        dtype: that it is evaluated in.
    """

    def __init__(self, model: Model, dtype: jnp.dtype):
        self.dtype = dtype
        self.num_gradients = 0
        self._values_and_slopes, self._slopes = _compiled(model)

    def __call__(self, point: Float[np.ndarray, " dim"]) -> tuple[float, Float[np.ndarray, " dim"]]:
        """The value and the gradient at a point; infinite where either is not finite."""
        self.num_gradients += 1
        # NumPy up to the program and behind it: each operation of jax on its own would take longer.
        values, slopes = self._values_and_slopes(np.asarray(point[None], self.dtype))
        value, slope = float(np.asarray(values)[0]), np.asarray(slopes, float)[0]
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            return np.inf, slope
        return -value, -slope

    def slopes(self, points: Float[np.ndarray, "point dim"]) -> Float[np.ndarray, "point dim"]:
        """The gradients at many points."""
        self.num_gradients += len(points)
        size = max(1, MAX_NUMBERS // points.shape[1])
        blocks = [points[i : i + size] for i in range(0, len(points), size)]
        return -np.concatenate(
            [np.asarray(self._slopes(np.asarray(block, self.dtype)), float) for block in blocks]
        )

    def differences(
        self, point: Float[np.ndarray, " dim"], directions: Float[np.ndarray, "direction dim"]
    ) -> Float[np.ndarray, "direction dim"]:
        """The Hessian times each direction, by central differences: two gradients each."""
        # The cube root balances the rounding of the gradients against the third derivative.
        step = (10 * float(jnp.finfo(self.dtype).eps)) ** (1 / 3)
        ends = self.slopes(np.concatenate([point + step * directions, point - step * directions]))
        with np.errstate(invalid="ignore"):
            return (ends[: len(directions)] - ends[len(directions) :]) / (2 * step)


def host_noise(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """Standard normals on the host: a few are not worth a compiled program."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist()).standard_normal(shape)
