"""The paper's rule: the rate falls when the parameters oscillate more than they progress."""

import functools
from collections.abc import Callable
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from dlrd import regression
from dlrd.checks import check_between, check_count, check_not_negative
from dlrd.rates._rate import NO_PARAMS_MESSAGE, apply_rate, check_learning_rate, scalar, transformation

_BLOCK_SIZE = 2**13
_MAX_FEW = 2**16
"""Up to so many parameters are few. In single precision they have compensated sums: for more that would cost
too much, and the mean over them averages the errors out, up to windows of about 10⁵ iterations. And they are
joined to one array: what few parameters cost is the number of operations."""


class DynamicDecayState(NamedTuple):
    """State of `dynamic_decay`. The window restarts at each decay; everything else outlives it."""

    learning_rate: Float[Array, ""]  # the rate of the latest step
    snr: Float[Array, ""]  # mean signal-to-noise ratio when last looked at; nan before that
    num_decays: Int[Array, ""]
    scale: Float[Array, ""]  # product of the decays so far
    position: Int[Array, ""]  # k: the place that the next iterate takes in its window
    min_position: Int[Array, ""]  # k_min: no decay before this place
    windows: tuple[regression.Window, ...]  # one for each tracked array, or one for all


def dynamic_decay(
    learning_rate: ArrayLike,
    factor: ArrayLike = 0.1,
    min_snr: ArrayLike = 1.0,
    max_tracked: int | None = None,
    min_travel: ArrayLike = 0.0,
) -> optax.GradientTransformation:
    r"""Decays the learning rate when the parameters oscillate more than they progress.

    The last link of an `optax.chain`: it turns a direction into a step, −rate · direction.

    At iteration i, before the step, each parameter λ of the window since the last decay (k = 0, 1, 2, …)
    is fitted by a straight line over k. Its signal-to-noise ratio is

    $$\rho = \frac{\mathrm{SSR}}{\mathrm{SSE}} = \left[\frac{k(k+1)(k+2)}{12}
        \frac{\sum λ^2 - \frac{1}{k+1} (\sum λ)^2}{(\sum j λ - \frac{k}{2} \sum λ)^2} - 1\right]^{-1}$$

    Once k ≥ k_min (2 at first) and the mean of ρ over all parameters is below `min_snr`, the rate is
    multiplied by `factor` (the paper's α), k_min becomes k, and the next iterate opens a new window. The step
    of iteration i already uses the new rate. The optimiser's own moments are left alone.

    A parameter that has not moved within the window is left out of the mean; one that lies on a perfect line
    counts as infinite; an iterate that is not finite is not recorded. Leaves that are not real or complex
    (integers, None, masked) are ignored, and half-precision leaves are summed up in single precision.

    Args:
        learning_rate: the initial rate η₀. A large one is safe as long as the run does not diverge.
        factor: what the rate is multiplied by at a decay, between 0 and 1.
        min_snr: the mean signal-to-noise ratio ρ_min below which it decays.
        max_tracked: an approximation for millions of parameters: watch only about this many, evenly spread
            over the leaves, instead of all. The window's memory and time then become negligible.
        min_travel: a window must also have this many iterations times the rate, k · η ≥ `min_travel`, before
            it can end. The paper has no such floor; with few parameters a short window fires by chance.

    Returns:
        A transformation whose state can be read with
        `optax.tree_utils.tree_get(opt_state, name)`, name one of "learning_rate", "snr", "num_decays".

    Example:
        >>> import jax, optax, dlrd
        >>> optimizer = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(0.1))
        >>> noisy_loss = lambda x, key: jax.numpy.sum((x - jax.random.normal(key, x.shape)) ** 2)
        >>> @jax.jit
        ... def step(x, opt_state, key):
        ...     updates, opt_state = optimizer.update(jax.grad(noisy_loss)(x, key), opt_state, x)
        ...     return optax.apply_updates(x, updates), opt_state
        >>> x = jax.numpy.full(20, 5.0)
        >>> opt_state = optimizer.init(x)
        >>> for key in jax.random.split(jax.random.key(0), 500):
        ...     x, opt_state = step(x, opt_state, key)
        >>> print(optax.tree_utils.tree_get(opt_state, "num_decays"))
        1

    References:
        Dinkel, Robalo Rei and Wall, "Dynamic Learning Rate Decay for Stochastic Variational Inference",
        Algorithm 1.
    """
    check_learning_rate(learning_rate)
    check_between("factor", factor, 0, 1)
    check_between("min_snr", min_snr, 0, float("inf"))
    if max_tracked is not None:
        check_count("max_tracked", max_tracked)
    check_not_negative("min_travel", min_travel)

    def init(params: optax.Params) -> DynamicDecayState:
        values = _tracked_values(params, max_tracked)
        are_few = sum(value.size for value in values) <= _MAX_FEW
        are_alike = len({value.dtype for value in values}) == 1 and all(map(_is_on_one_device, values))
        if len(values) > 1 and are_few and are_alike:
            values = _joined(values)
        windows = tuple(_empty_window(value, value.dtype == jnp.float32 and are_few) for value in values)
        return DynamicDecayState(
            learning_rate=scalar(learning_rate),
            snr=scalar(jnp.nan),
            num_decays=jnp.zeros((), jnp.int32),
            scale=scalar(1.0),
            position=jnp.zeros((), jnp.int32),
            min_position=jnp.full((), 2, jnp.int32),
            windows=windows,
        )

    def update(
        updates: optax.Updates, state: DynamicDecayState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, DynamicDecayState]:
        if params is None:
            raise ValueError(NO_PARAMS_MESSAGE)
        values = _tracked_values(params, max_tracked)
        if len(values) > len(state.windows):
            values = _joined(values)
        is_finite = functools.reduce(jnp.logical_and, map(_is_finite, values), jnp.asarray(True))
        # Branches that change little cost little: XLA leaves all else in place, windows too.
        state = jax.lax.cond(is_finite, lambda: recorded(state, values), lambda: state)
        rate = scalar(learning_rate) * state.scale
        # The step waits for the whole window: callers can then update donated parameters in place.
        rate, windows = jax.lax.optimization_barrier((rate, state.windows))
        return apply_rate(updates, rate), state._replace(learning_rate=rate, windows=windows)

    def recorded(state: DynamicDecayState, values: list[Array]) -> DynamicDecayState:
        windows = tuple(
            _record(window, value, state.position)
            for window, value in zip(state.windows, values, strict=True)
        )
        is_long = state.position >= state.min_position
        has_travelled = state.position * state.learning_rate >= scalar(min_travel)
        return jax.lax.cond(is_long & has_travelled, judged, continued, state._replace(windows=windows))

    def judged(state: DynamicDecayState) -> DynamicDecayState:
        total, num_moved = _sum_of_snr(state.windows, state.position)
        snr = total / num_moved  # nan if nothing has moved
        state = state._replace(snr=jnp.where(jnp.isnan(snr), state.snr, snr))
        return jax.lax.cond(total < scalar(min_snr) * num_moved, decayed, continued, state)

    def continued(state: DynamicDecayState) -> DynamicDecayState:
        return state._replace(position=state.position + 1)

    def decayed(state: DynamicDecayState) -> DynamicDecayState:
        return state._replace(
            num_decays=state.num_decays + 1,
            scale=state.scale * scalar(factor),
            position=jnp.zeros_like(state.position),
            min_position=state.position,
        )

    return transformation(init, update)


def _tracked_values(params: optax.Params, max_tracked: int | None) -> list[Array]:
    """The real numbers to watch, leaf by leaf, at least in single precision."""
    leaves = [
        leaf for leaf in map(jnp.asarray, _array_leaves(params)) if jnp.issubdtype(leaf.dtype, jnp.inexact)
    ]
    size = sum(leaf.size for leaf in leaves)
    stride = 1 if max_tracked is None else -(-size // max_tracked)
    if stride > 1:
        leaves = [_every(stride, leaf) for leaf in leaves]
    leaves = [jnp.stack([leaf.real, leaf.imag]) if jnp.iscomplexobj(leaf) else leaf for leaf in leaves]
    return [leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)) for leaf in leaves]


def _joined(values: list[Array]) -> list[Array]:
    return [jnp.concatenate([jnp.ravel(value) for value in values])]


def _is_on_one_device(value: Array) -> bool:
    return jax.typeof(value).sharding.mesh.empty


def _every(stride: int, leaf: Array) -> Array:
    """One in `stride` entries; of an array on several devices, a copy on each of them."""

    def pick(leaf: Array) -> Array:
        return jnp.ravel(leaf)[::stride]

    mesh = jax.typeof(leaf).sharding.mesh
    if mesh.empty:
        return pick(leaf)
    copied = NamedSharding(mesh, PartitionSpec())
    return cast("Array", jax.sharding.auto_axes(pick, out_sharding=copied)(leaf))


def _array_leaves(params: optax.Params) -> list[ArrayLike]:
    """All leaves but the places that hold no number (`float0`)."""
    return [leaf for leaf in jax.tree.leaves(params) if getattr(leaf, "dtype", None) != jax.dtypes.float0]


def _is_finite(value: Array) -> Bool[Array, ""]:
    """Whether all of its numbers are, and none so large that the sum of all overflows."""
    return jnp.isfinite(jnp.sum(value))  # one pass without intermediate arrays; inf and nan stay in the sum


def _empty_window(value: Array, keep_errors: bool) -> regression.Window:
    """Zeros, each array on its own: callers donate the state's buffers."""
    return jax.tree.map(lambda _: jnp.zeros_like(value), regression.start(value, keep_errors))


def _record(window: regression.Window, value: Array, position: Int[Array, ""]) -> regression.Window:
    """The window with `value` at `position`, which opens it if 0."""
    is_first = position == 0
    # The barrier lets the sums read the new anchor, not the old one, so that its buffer can be reused.
    anchor = jax.lax.optimization_barrier(jnp.where(is_first, value, window.anchor))
    so_far = jax.tree.map(lambda old: jnp.where(is_first, jnp.zeros_like(old), old), window)
    return regression.add(so_far._replace(anchor=anchor), value, position.astype(value.dtype))


def _sum_of_snr(
    windows: tuple[regression.Window, ...], position: Int[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The sum of SSR/SSE over all parameters that have moved, and how many have."""
    total = num_moved = scalar(0.0)
    for window in windows:
        terms = functools.partial(_snr_and_moved, position=position.astype(window.total.dtype))
        if _is_on_one_device(window.total) and window.total.size > 4 * _BLOCK_SIZE:
            sums = jax.lax.platform_dependent(
                window,
                cpu=lambda window, terms=terms: _sum_in_blocks(terms, window),
                default=lambda window, terms=terms: _sum(terms, window),
            )
        else:
            sums = _sum(terms, window)
        total += sums[0]
        num_moved += sums[1]
    return total, num_moved


def _snr_and_moved(window: regression.Window, position: Float[Array, ""]) -> tuple[Array, Array]:
    """SSR/SSE of each parameter, 0 for one that has not moved, and whether it has, 1 or 0."""
    epsilon = float(jnp.finfo(window.squares.dtype).eps)
    snr, has_moved = regression.snr(window, position, epsilon, jnp.where)
    return snr, has_moved.astype(snr.dtype)


_TermsFn = Callable[[regression.Window], tuple[Array, Array]]


def _sum(terms: _TermsFn, window: regression.Window) -> tuple[Array, Array]:
    snr, moved = terms(window)
    if snr.size > _MAX_FEW:
        return jnp.sum(snr), jnp.sum(moved)
    both = jnp.sum(jnp.stack([snr, moved]), axis=range(1, snr.ndim + 1))  # few: one sum is faster than two
    return both[0], both[1]


def _sum_in_blocks(terms: _TermsFn, window: regression.Window) -> tuple[Array, Array]:
    """As `_sum`, for the CPU: it would write out all terms before adding them up; blocks stay in cache."""
    flat = jax.tree.map(jnp.ravel, window)
    size = flat.total.size

    def add_block(index: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        start = index * _BLOCK_SIZE
        snr, moved = terms(
            jax.tree.map(lambda each: jax.lax.dynamic_slice_in_dim(each, start, _BLOCK_SIZE), flat)
        )
        return sums[0] + snr, sums[1] + moved

    zeros = (jnp.zeros(_BLOCK_SIZE, flat.total.dtype), jnp.zeros(_BLOCK_SIZE, flat.total.dtype))
    num_blocks = size // _BLOCK_SIZE
    snr, moved = jax.lax.fori_loop(0, num_blocks, add_block, zeros)
    rest = jax.tree.map(lambda each: each[num_blocks * _BLOCK_SIZE :], flat)
    rest_snr, rest_moved = _sum(terms, rest)
    return jnp.sum(snr) + rest_snr, jnp.sum(moved) + rest_moved
