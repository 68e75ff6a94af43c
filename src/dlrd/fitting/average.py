"""The mean over the tail of a run: less noisy than its last iterate, where that oscillates."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree


class TailAverage(NamedTuple):
    """Means over two stretches of iterates, one after the other; a closed one twice as long as that before.

    Together they hold the last half to three quarters of the run, whenever one looks.
    """

    closed: PyTree  # mean over the older stretch; changes when the newer is twice as long
    open: PyTree  # mean over the newer stretch; changes at each step
    num_closed: Int[Array, ""]
    num_open: Int[Array, ""]


def start(trainable: PyTree) -> TailAverage:
    """An average over nothing yet. Each array on its own: callers may donate them."""
    zeros = [jax.tree.map(jnp.zeros_like, trainable) for _ in range(2)]
    return TailAverage(zeros[0], zeros[1], jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def extended(average: TailAverage, trainable: PyTree, is_counted: Bool[Array, ""]) -> TailAverage:
    """The average with one more iterate, if that counts."""
    num_open = average.num_open + is_counted
    opened = jax.tree.map(
        lambda mean, value: jnp.where(is_counted, mean + (value - mean) / num_open, mean),
        average.open,
        trainable,
    )
    closes = num_open >= jnp.maximum(2 * average.num_closed, 1)
    return TailAverage(
        closed=jax.tree.map(lambda new, old: jnp.where(closes, new, old), opened, average.closed),
        open=jax.tree.map(lambda new: jnp.where(closes, jnp.zeros_like(new), new), opened),
        num_closed=jnp.where(closes, num_open, average.num_closed),
        num_open=jnp.where(closes, 0, num_open),
    )


def value(average: TailAverage, latest: PyTree) -> Any:
    """The mean over both stretches; `latest` where there is nothing to average.

    Operators alone: it serves NumPy's arrays on the host and those of jax.
    """
    total = average.num_closed + average.num_open
    is_empty = total == 0  # then both means are zero

    def mean(closed: Any, opened: Any, last: Any) -> Any:
        share = average.num_open.astype(closed.dtype) / (total + is_empty).astype(closed.dtype)
        return closed + share * (opened - closed) + is_empty * last

    return jax.tree.map(mean, average.closed, average.open, latest)
