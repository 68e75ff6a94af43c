"""A look at a family: log ratios and gradients at draws of its own, all in one program."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from dlrd.families import Certifiable, Family, FromNoise, Teachable, log_prob_of
from dlrd.fitting.automatic.keys import several
from dlrd.fitting.program import MAX_SIZE, Program
from dlrd.gradients.audited import missing_gradient
from dlrd.gradients.natural import finite_rows
from dlrd.gradients.sobol import MAX_CHEAP, sobol_noise
from dlrd.models import Audit, Audited, Model

NUM_BLOCKS = 8
"""Independent estimates of the gradient, whose products have no bias from the noise."""
BATCH = 32
"""Draws of a block in one look, which are evaluated at once, unless the budget is too small for so many."""


class Look(NamedTuple):
    """What was seen, a block a row; traced in a program, NumPy's arrays on the host."""

    log_ratios: Float[Array, "block draw"]  # log p − log q
    gradients: Float[Array, "block coordinate"] | None  # where the Fisher information is I; None if unknown
    lessons: Float[Array, "block number"] | None = None  # for a family that can be taught
    audit: Audit | None = None  # of a model that is audited: gradients are of what it misses, alone


def look(
    model: Model,
    family: Family,
    key: Key[Array, ""],
    index: int,
    num_blocks: int = NUM_BLOCKS,
    has_gradients: bool = True,
    batch: int = BATCH,
) -> Look:
    """Looks at `batch` draws in each of several blocks.

    Args:
        model: what is fitted.
        family: any; there are gradients where it is `Certifiable` and the model has them.
        key: of the draws.
        index: of the look; each takes the next part of the blocks' sequences.
        num_blocks: that are looked at, all at the most.
        has_gradients: whether to look at them; else at values alone.
        batch: an even number.
    """
    how = model, has_gradients and _can_tell(model, family), batch
    seen = _look(*how, family, several(key, NUM_BLOCKS), np.int32(index), np.int32(num_blocks))
    return jax.tree.map(lambda rows: np.asarray(rows, float)[:num_blocks], seen)


def prepare_look(
    model: Model, family: Family, key: Key[Array, ""], has_gradients: bool = True, batch: int = BATCH
) -> None:
    """Begins to compile what looks at such families need."""
    how = model, has_gradients and _can_tell(model, family), batch
    _look.prepare(*how, family, several(key, NUM_BLOCKS), np.int32(0), np.int32(NUM_BLOCKS))


def _can_tell(model: Model, family: Family) -> bool:
    """Whether gradients tell something about the gap."""
    return model.has_gradient and isinstance(family, Certifiable)


def _blocks(
    model: Model,
    has_gradients: bool,
    batch: int,
    family: Family,
    keys: Key[Array, " block"],
    index: Int[Array, ""],
    num_blocks: Int[Array, ""],
) -> Look:
    block_fn = jax.jit(
        functools.partial(_block, model, has_gradients, batch, family, index=index)
    )  # so it is traced once
    unseen = jax.tree.map(
        lambda row: jnp.zeros((NUM_BLOCKS, *row.shape), row.dtype), jax.eval_shape(block_fn, keys[0])
    )

    def with_block(number: Int[Array, ""], seen: Look) -> Look:
        return jax.tree.map(
            lambda rows, row: jax.lax.dynamic_update_index_in_dim(rows, row, number, 0),
            seen,
            block_fn(keys[number]),
        )

    return jax.lax.fori_loop(0, num_blocks, with_block, unseen)


_look = Program(_blocks, max_size=2 * MAX_SIZE)
"""One for looks of all lengths; a model has two, with gradients and without."""


def _block(
    model: Model, has_gradients: bool, batch: int, family: Family, key: Key[Array, ""], index: Int[Array, ""]
) -> Look:
    """The draws of one block, without the axis of blocks."""
    own_key = jax.random.fold_in(key, index)
    if not isinstance(family, FromNoise):
        draws = family.sample(own_key, (batch,))
        return Look(model.values(draws, own_key) - family.log_prob(draws), None)
    half = (batch // 2, family.noise_size)
    noise = _mirrored(key, index, half, jnp.result_type(*jax.tree.leaves(family)))
    draws = family.from_noise(noise)
    log_prob = log_prob_of(family, noise, draws)
    if not has_gradients:
        return Look(model.values(draws, own_key) - log_prob, None)
    assert isinstance(family, Certifiable)
    if isinstance(model, Audited):
        seen = model.audit(draws)
        return Look(seen.values - log_prob, missing_gradient(family, seen, noise), audit=seen)
    values, slopes = model.values_and_gradients(draws, own_key)
    log_ratios = values - log_prob
    chosen = finite_rows(log_ratios, slopes)
    slopes, noise = slopes[chosen], noise[chosen]
    gradient = family.fisher_coordinates(family.natural_gradient(slopes, noise))
    return Look(log_ratios, gradient, family.lesson(slopes, noise) if isinstance(family, Teachable) else None)


def _mirrored(
    key: Key[Array, ""], index: Int[Array, ""], shape: tuple[int, int], dtype: jnp.dtype
) -> Float[Array, "..."]:
    """The next points of a Sobol sequence, unless there are too many dimensions, with their mirror images."""
    num, size = shape
    if size <= MAX_CHEAP:
        half = sobol_noise(key, index, num, size, dtype)
    else:
        half = jax.random.normal(jax.random.fold_in(key, index), shape, dtype)
    return jnp.concatenate([half, -half])
