"""The model as the search for a start sees it: NumPy in, NumPy out, every gradient counted."""

import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.fitting.program import Program
from dlrd.models import Model, Simulated, hessian_products
from dlrd.models.second_order import is_twice_differentiable

NUM_TOGETHER = 8
"""Searches that go on together: a compiled program takes hardly longer for their points than for one, and
workers share the runs of a simulator."""
MAX_NUMBERS = 2**22
"""Of the products that are evaluated at once."""


_values_and_slopes = Program(lambda model, points: model.values_and_gradients(points, None))
"""Of a model, at points."""
_products = Program(lambda model, points, directions: hessian_products(model, points, directions, None))
"""Of Hessians of a model there, with directions."""


class SpentError(Exception):
    """What was asked for would be beyond the budget; nothing of it was evaluated."""


class Objective:
    """−log p, which is minimised, and its gradient, in double precision on the host.

    Args:
        model: exact, with gradients.
        dtype: that it is evaluated in.
        max_gradients: that it may be asked for; `SpentError` is raised in place of more.
        deadline: by `time.monotonic`; the same is raised after it.
    """

    def __init__(
        self,
        model: Model,
        dtype: jnp.dtype,
        max_gradients: float = np.inf,
        deadline: float = np.inf,
    ):
        self.dtype = dtype
        self.num_gradients = 0
        self.max_gradients, self.deadline = max_gradients, deadline
        self.can_fail = model.can_fail
        self._is_shared = isinstance(model, Simulated)
        is_compiled = not jax.tree_util.all_leaves([model])  # a tree of jax calls nobody back
        self.num_together = NUM_TOGETHER if self._is_shared or is_compiled else 1
        self.is_smooth = is_twice_differentiable(model, dtype)
        self._model = model

    def __call__(self, point: Float[np.ndarray, " dim"]) -> tuple[float, Float[np.ndarray, " dim"]]:
        """The value and the gradient at a point; infinite where either is not finite."""
        return self.answers([point])[0]

    def answers(
        self, points: Sequence[Float[np.ndarray, " dim"]]
    ) -> list[tuple[float, Float[np.ndarray, " dim"]]]:
        """The same at several points at once."""
        # One program for any number of them, and one for a single point; to simulators, to which the same
        # point twice is one run, that makes no difference.
        self._count(len(points))
        num = self.num_together if len(points) > 1 or self._is_shared else 1
        values, slopes = self._at(np.stack([*points, *[points[0]] * (num - len(points))]))
        is_good = np.isfinite(values) & np.isfinite(slopes).all(axis=1)
        answers = [
            (float(value), slope) if good else (np.inf, slope)
            for value, slope, good in zip(values, slopes, is_good, strict=True)
        ]
        return answers[: len(points)]

    def prepare(self, dim: int, num_starts: int) -> None:
        """Begins to compile what a search for modes from so many points needs, with whole Hessians."""
        if self.num_together > 1 and num_starts > 2:
            _values_and_slopes.prepare(self._model, np.zeros((self.num_together, dim), self.dtype))
        num = min(dim, _num_directions(dim))
        _products.prepare(self._model, np.zeros((1, dim), self.dtype), np.zeros((num, dim), self.dtype))

    def batch(
        self, points: Float[np.ndarray, "point dim"]
    ) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, "point dim"]]:
        """The values and gradients at many points, as they are."""
        self._count(len(points))
        return self._at(points)

    def _at(
        self, points: Float[np.ndarray, "point dim"]
    ) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, "point dim"]]:
        # NumPy up to the program and behind it: each operation of jax on its own would take longer.
        values, slopes = _values_and_slopes(self._model, np.asarray(points, self.dtype))
        return -np.asarray(values, float), -np.asarray(slopes, float)

    def products(
        self, points: Float[np.ndarray, "point dim"], directions: Float[np.ndarray, "direction dim"]
    ) -> Float[np.ndarray, "point direction dim"]:
        """The Hessian at each point times each direction: two gradients each.

        A point at a time, so that all numbers of points share one program.
        """
        self._count(2 * len(points) * len(directions))
        size = _num_directions(points.shape[1])
        blocks = [np.asarray(directions[i : i + size], self.dtype) for i in range(0, len(directions), size)]
        at = np.asarray(points, self.dtype)[:, None]
        found = [
            [np.asarray(_products(self._model, each, block), float)[0] for block in blocks] for each in at
        ]
        return -np.stack([np.concatenate(each) for each in found])

    def _count(self, num: int) -> None:
        if self.num_gradients + num > self.max_gradients or time.monotonic() > self.deadline:
            raise SpentError
        self.num_gradients += num


def _num_directions(dim: int) -> int:
    """Of the products that are evaluated at once."""
    return max(1, MAX_NUMBERS // (2 * dim))


def host_noise(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """Standard normals on the host: a few are not worth a compiled program."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist()).standard_normal(shape)
