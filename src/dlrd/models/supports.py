"""Where a variable may lie, and how free numbers are mapped there. One immutable thing a support.

A map is one to one from arrays of `free_shape`, any real numbers, to the support. Its Jacobian is that of the
entries that can be chosen: of a simplex all but the last, of a Cholesky factor those below the diagonal.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dlrd.checks import check_count, shown


@dataclass(frozen=True)
class Support:
    """Where a variable may lie; by itself, anywhere."""

    shape: tuple[int, ...]  # of the variable

    is_elementwise = True  # whether each entry of the variable comes from one free number, its own

    @property
    def word(self) -> str | None:
        """From the variable to the free numbers, as "log"; "free" where none says it, None for themselves."""
        return None

    @property
    def free_shape(self) -> tuple[int, ...]:
        """Of the free numbers."""
        return self.shape

    def forward(self, free: Float[Array, "..."]) -> Float[Array, "..."]:
        """The variable that free numbers give."""
        return free

    def inverse(self, value: Float[Array, "..."]) -> Float[Array, "..."]:
        """The free numbers that give a value."""
        return value

    def log_det(self, free: Float[Array, "..."]) -> Float[Array, ""]:
        """The log of the absolute determinant of the Jacobian of `forward`."""
        return jnp.zeros((), free.dtype)


@dataclass(frozen=True)
class _Bounded(Support):
    """Numbers on one side of a bound: low + exp(free), or high − exp(free)."""

    bound: float
    sign: int  # 1 above, −1 below

    @property
    def word(self) -> str:
        return "log" if (self.bound, self.sign) == (0, 1) else "free"

    def forward(self, free: Array) -> Array:
        return self.bound + self.sign * jnp.exp(free)

    def inverse(self, value: Array) -> Array:
        return jnp.log(self.sign * (value - self.bound))

    def log_det(self, free: Array) -> Array:
        return jnp.sum(free)


@dataclass(frozen=True)
class _Interval(Support):
    """Numbers between two bounds, by the logistic function."""

    low: float
    high: float

    @property
    def word(self) -> str:
        return "logit" if (self.low, self.high) == (0, 1) else "free"

    def forward(self, free: Array) -> Array:
        # Rounded to an end, a log density there would be infinite: the share stays off both.
        limits = jnp.finfo(free.dtype)
        share = jnp.clip(jax.nn.sigmoid(free), limits.tiny, 1 - limits.epsneg)
        return self.low + (self.high - self.low) * share

    def inverse(self, value: Array) -> Array:
        return jnp.log(value - self.low) - jnp.log(self.high - value)

    def log_det(self, free: Array) -> Array:
        slopes = jax.nn.log_sigmoid(free) + jax.nn.log_sigmoid(-free)
        return jnp.sum(slopes + np.log(self.high - self.low))


@dataclass(frozen=True)
class _Simplex(Support):
    """Probabilities in the last axis: the softmax of numbers that sum to zero, in an orthonormal basis.

    The isometric log-ratio. All entries are treated alike, and zeros give equal probabilities.
    """

    is_elementwise = False

    @property
    def word(self) -> str:
        return "free"

    @property
    def free_shape(self) -> tuple[int, ...]:
        return (*self.shape[:-1], self.shape[-1] - 1)

    @property
    def _basis(self) -> Float[np.ndarray, "free entry"]:
        """Helmert's: row k is of the mean of the first k + 1 entries against the next one."""
        k = np.arange(1, self.shape[-1])[:, None]
        entry = np.arange(self.shape[-1])
        return np.where(entry < k, 1, np.where(entry == k, -k, 0)) / np.sqrt(k * (k + 1))

    def _log_probabilities(self, free: Array) -> Array:
        return jax.nn.log_softmax(free @ jnp.asarray(self._basis, free.dtype))

    def forward(self, free: Array) -> Array:
        # None is rounded to zero, whose logarithm would be infinite.
        return jnp.maximum(jnp.exp(self._log_probabilities(free)), jnp.finfo(free.dtype).tiny)

    def inverse(self, value: Array) -> Array:
        return jnp.log(value) @ jnp.asarray(self._basis.T, value.dtype)

    def log_det(self, free: Array) -> Array:
        num = self.shape[-1]
        return jnp.sum(jnp.sum(self._log_probabilities(free), axis=-1) + 0.5 * np.log(num))


@dataclass(frozen=True)
class _Ordered(Support):
    """Increasing numbers in the last axis: the first is free, the logarithms of the differences are."""

    is_elementwise = False

    @property
    def word(self) -> str:
        return "free"

    def forward(self, free: Array) -> Array:
        steps = jnp.concatenate([free[..., :1], jnp.exp(free[..., 1:])], axis=-1)
        return jnp.cumsum(steps, axis=-1)

    def inverse(self, value: Array) -> Array:
        return jnp.concatenate([value[..., :1], jnp.log(jnp.diff(value, axis=-1))], axis=-1)

    def log_det(self, free: Array) -> Array:
        return jnp.sum(free[..., 1:])


@dataclass(frozen=True)
class _CorrelationCholesky(Support):
    """Cholesky factors of correlation matrices, in the last two axes, from partial correlations tanh(free).

    Entry j of a row is tanh(free) times the root of what the entries before leave of the row's length, 1.
    """

    is_elementwise = False

    @property
    def word(self) -> str:
        return "free"

    @property
    def free_shape(self) -> tuple[int, ...]:
        return (*self.shape[:-2], self.shape[-1] * (self.shape[-1] - 1) // 2)

    @property
    def _below(self) -> tuple[np.ndarray, np.ndarray]:
        """The entries below the diagonal, row by row."""
        return np.tril_indices(self.shape[-1], -1)

    def _lower(self, free: Array) -> Array:
        """As a matrix, zero elsewhere."""
        return jnp.zeros(self.shape, free.dtype).at[(..., *self._below)].set(free)

    def _log_left(self, free: Array) -> Array:
        """The log of the root of what is left of each row's length before each entry."""
        lower = self._lower(free)
        # ½ log(1 − tanh²) = −log cosh, without the overflow of cosh
        shrinkage = np.log(2) - jnp.abs(lower) - jnp.log1p(jnp.exp(-2 * jnp.abs(lower)))
        return jnp.cumsum(shrinkage, axis=-1) - shrinkage

    def forward(self, free: Array) -> Array:
        shares = jnp.tanh(self._lower(free)) + jnp.eye(self.shape[-1], dtype=free.dtype)
        return shares * jnp.exp(self._log_left(free))

    def inverse(self, value: Array) -> Array:
        # From the diagonal back, as 1 minus what went before would lose the digits of what is left.
        squares = jnp.flip(jnp.cumsum(jnp.flip(value**2, axis=-1), axis=-1), axis=-1)
        rows, columns = self._below
        return jnp.arcsinh(value[..., rows, columns] / jnp.sqrt(squares[..., rows, columns + 1]))

    def log_det(self, free: Array) -> Array:
        rows, columns = self._below
        log_left = self._log_left(free)
        own = log_left[..., rows, columns + 1] - log_left[..., rows, columns]
        return jnp.sum(log_left[..., rows, columns] + 2 * own)


def real(shape: tuple[int, ...] = ()) -> Support:
    """Any numbers, in an array of this shape; what a shape alone stands for, too."""
    return Support(checked_shape(shape))


def positive(shape: tuple[int, ...] = ()) -> Support:
    """Numbers above zero, as scales and rates; fitted by their logarithms."""
    return greater_than(0, shape)


def greater_than(low: float, shape: tuple[int, ...] = ()) -> Support:
    """Numbers above `low`; fitted by the logarithms of the differences."""
    return _Bounded(checked_shape(shape), _checked_number("low", low), 1)


def less_than(high: float, shape: tuple[int, ...] = ()) -> Support:
    """Numbers below `high`; fitted by the logarithms of the differences."""
    return _Bounded(checked_shape(shape), _checked_number("high", high), -1)


def interval(low: float, high: float, shape: tuple[int, ...] = ()) -> Support:
    """Numbers between `low` and `high`, as probabilities; fitted by their logits."""
    low, high = _checked_number("low", low), _checked_number("high", high)
    if not low < high:
        raise ValueError(f"low must be below high, got {low:g} and {high:g}")
    return _Interval(checked_shape(shape), low, high)


def simplex(n: int, shape: tuple[int, ...] = ()) -> Support:
    """`n` probabilities that sum to one; with a shape, so many sets of them, as the rows of a matrix."""
    return _Simplex((*checked_shape(shape), _checked_size(n)))


def ordered(n: int, shape: tuple[int, ...] = ()) -> Support:
    """`n` increasing numbers, as cutpoints; with a shape, so many sets of them."""
    return _Ordered((*checked_shape(shape), _checked_size(n)))


def correlation_cholesky(n: int, shape: tuple[int, ...] = ()) -> Support:
    r"""The lower Cholesky factor L of an `n` × `n` correlation matrix $L L^\top$.

    Densities of it are over the entries below the diagonal, as those of LKJ's distribution are.
    """
    size = _checked_size(n)
    return _CorrelationCholesky((*checked_shape(shape), size, size))


def checked_shape(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of whole numbers."""
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"shape must be a tuple, as () or (3,), got {shown(shape)}")
    for size in shape:
        check_count("each size of a shape", size)
    return tuple(map(int, shape))


def _checked_number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not np.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {shown(value)}")
    return float(value)


def _checked_size(n: Any) -> int:
    check_count("n", n)
    if n < 2:
        raise ValueError(f"n must be at least 2, got {n}")
    return int(n)
