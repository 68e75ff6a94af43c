"""Divergence, detected and undone: back to the best parameters, with a smaller rate."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from dlrd.checks import check_between, check_count, check_not_negative
from dlrd.rates._rate import NO_PARAMS_MESSAGE, apply_rate, scalar

BLOCK_SIZE = 64
"""Steps over which the loss is averaged. The first blocks are shorter: 1, 7, 14, 28 and 56."""
MIN_EVIDENCE = 1024
"""Steps with too large a loss, times the values behind the best mean: one may be low by luck."""
NUM_ERRORS = 5.0
"""Standard errors of the best mean that the loss must be above it."""
FROZEN_RATIO = 1e8
"""How many times larger than now a gradient must have been for it to have frozen the optimiser."""


class GuardState(NamedTuple):
    """State of `guard`. The losses change at each step; all else at the ends of blocks, and by a reset."""

    inner_state: optax.OptState
    best: optax.Params  # the parameters at the end of the best block; at first, those of the start
    best_loss: Float[Array, ""]  # what the loss is below there: the block's mean and five standard errors
    num_best: Int[Array, ""]  # values behind that
    limit: Float[Array, ""]  # what a loss must be above to count as too large
    num_above: Int[Array, ""]  # steps, over the latest blocks in which all losses were
    is_on_probation: Bool[Array, ""]  # whether it has gone back, and found nothing better since
    losses: Float[Array, " block"]  # of the block so far; what is left of the one before behind them
    num_losses: Int[Array, ""]  # how many of them count
    block_size: Int[Array, ""]  # at how many the block ends
    largest: Float[Array, ""]  # entry of gradient or parameters since a reset, within a factor of two
    rate_scale: Float[Array, ""]  # what all steps are multiplied by
    num_resets: Int[Array, ""]
    is_returning: Bool[Array, ""]  # whether the latest step led back, in place of the optimiser's own
    num_tries: Int[Array, ""]  # to get back, that are left
    has_given_up: Bool[Array, ""]  # whether one more would be too many: it stays at the best parameters


def guard(
    optimizer: optax.GradientTransformation,
    min_rise: ArrayLike,
    factor: ArrayLike = 0.1,
    max_resets: int = 20,
) -> optax.GradientTransformationExtraArgs:
    r"""Wraps an optimiser: where the run diverges, goes back to its best parameters with a smaller rate.

    The loss is averaged over blocks of 64 steps (shorter ones at first), and the parameters at the end of the
    best block are kept. A run has diverged

    - at once, where the loss, the gradient or the next parameters are not finite;
    - where for a whole block not one loss has come within `min_rise`, nor within five standard errors, of
      the best block's mean (while that rests on $n < 16$ values, for $1024/n$ steps: it may be low by luck).
      After a reset any rise counts, until something better has been found;
    - where the optimiser is frozen: its steps are lost in rounding, after a gradient that was 10⁸ times as
      large as those of now; so are Adam's, once a gradient has been 10¹⁰⁰.

    Then the next step leads back to the best parameters, bit for bit (from afar, where no number leads there
    when it is added, by way of zero in two steps); the optimiser starts anew, with its moments and the window
    of a rule; and all further steps are multiplied by `factor` once more, unless it was frozen where it was
    best. After `max_resets` times it gives up, and stays at the best parameters.

    A run that oscillates is left alone, as long as it comes within `min_rise` of its best block now and then.
    Until the guard has to act, the steps are those of the optimiser, times one. Schedules that raise the rate
    again on purpose, a hundredfold and more, look like a divergence. Guarded steps are not differentiable in
    reverse, as whoever learns a rate by gradients would want them: the guard is a loop to XLA.

    Args:
        optimizer: a whole optimiser, as `optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-1))`.
        min_rise: in the unit of the loss: a rise that oscillation does not reach. For an ELBO in nats, as
            `dlrd.fit` has it, 1 + dimension.
        factor: what the rate is multiplied by at a reset, between 0 and 1.
        max_resets: how often it goes back before it gives up.

    Returns:
        A transformation whose `update` needs the parameters and the loss, `value=`. By
        `optax.tree_utils.tree_get(opt_state, name)` its state gives "num_resets", "has_given_up" and
        "rate_scale" (the rates that rules show are those before this factor).

    Example:
        >>> import dlrd, jax, jax.numpy as jnp, optax
        >>> optimizer = dlrd.guard(optax.sgd(1e2), min_rise=10.0)
        >>> update_fn = jax.jit(optimizer.update)
        >>> opt_state = optimizer.init(x := jnp.ones(3))
        >>> for _ in range(300):
        ...     loss, gradient = jax.value_and_grad(lambda x: jnp.sum(x**4))(x)
        ...     updates, opt_state = update_fn(gradient, opt_state, x, value=loss)
        ...     x = optax.apply_updates(x, updates)
        >>> print(loss < 1e-3, optax.tree_utils.tree_get(opt_state, "num_resets"))
        True 3
    """
    check_not_negative("min_rise", min_rise)
    check_between("factor", factor, 0, 1)
    check_count("max_resets", max_resets)
    inner = optax.with_extra_args_support(optimizer)

    def init(params: optax.Params) -> GuardState:
        return GuardState(
            inner_state=inner.init(params),
            best=jax.tree.map(jnp.array, params),
            best_loss=scalar(jnp.inf),
            num_best=_count(1),
            limit=scalar(jnp.inf),
            num_above=_count(0),
            is_on_probation=jnp.asarray(False),
            losses=jnp.zeros(BLOCK_SIZE, dtype=float),
            num_losses=_count(0),
            block_size=_count(1),
            largest=_smallest(),
            rate_scale=scalar(1.0),
            num_resets=_count(0),
            is_returning=jnp.asarray(False),
            num_tries=_count(0),
            has_given_up=jnp.asarray(False),
        )

    def update(
        updates: optax.Updates,
        state: GuardState,
        params: optax.Params | None = None,
        *,
        value: ArrayLike | None = None,
        **extra_args: Any,
    ) -> tuple[optax.Updates, GuardState]:
        if params is None:
            raise ValueError(NO_PARAMS_MESSAGE)
        if value is None:
            raise ValueError(
                "guard needs the loss, got none; pass it to update: "
                "optimizer.update(gradient, opt_state, params, value=loss)"
            )
        loss = jnp.asarray(value, dtype=float)
        steps, inner_state = inner.update(updates, state.inner_state, params, value=value, **extra_args)
        steps = apply_rate(steps, -state.rate_scale)
        state = state._replace(
            inner_state=inner_state,
            losses=jnp.where(jnp.arange(BLOCK_SIZE) == state.num_losses, loss, state.losses),
            num_losses=state.num_losses + 1,
        )

        def inside(carry: tuple[Bool[Array, ""], GuardState, optax.Updates]) -> Any:
            """With what never changes, behind a barrier: XLA would compute parts of it ahead at each step."""
            return jax.lax.optimization_barrier((*carry, loss, updates, params))

        def is_rare(carry: tuple[Bool[Array, ""], GuardState, optax.Updates]) -> Bool[Array, ""]:
            is_open, state, steps, loss, gradient, params = inside(carry)
            is_usual = jnp.isfinite(loss) & (state.num_losses < state.block_size) & ~state.is_returning
            for sizes in _sizes(gradient, params, steps):
                is_usual &= jnp.all(sizes < 2 * state.largest)
            return is_open & ~is_usual

        def settled(carry: tuple[Bool[Array, ""], GuardState, optax.Updates]) -> Any:
            _, state, steps, loss, gradient, params = inside(carry)
            state = judged(state, loss, gradient, params, steps)
            return jnp.asarray(False), state, _way_if(state.is_returning, steps, params, state.best)

        # A loop that is gone through once, or not at all: XLA changes its state in place, and would copy that
        # of a branch at each step. Of many runs, those that it is not for stay as they are.
        _, state, steps = jax.lax.while_loop(is_rare, settled, (jnp.asarray(True), state, steps))
        return steps, state

    def judged(
        state: GuardState,
        loss: Float[Array, ""],
        gradient: optax.Updates,
        params: optax.Params,
        steps: optax.Updates,
    ) -> GuardState:
        """What is rare: a block ends, a size is larger than all before, or the step must not be taken."""
        largest_of_each = [jnp.max(sizes, initial=0.0) for sizes in _sizes(gradient, params, steps)]
        size = jnp.max(jnp.asarray(largest_of_each, dtype=float), initial=0.0)
        is_finite = jnp.isfinite(loss + size)
        is_away = state.is_returning & ~_equal(params, state.best) & (state.num_tries > 0)
        has_arrived = state.is_returning & ~is_away & ~state.has_given_up
        ends = is_finite & (state.num_losses >= state.block_size) & ~state.is_returning
        lowest, mean, error = _lowest_mean_and_error(state)
        # A few losses that rounding has made far too low raise the error by more than they lower the mean.
        is_thin = BLOCK_SIZE * state.num_best < MIN_EVIDENCE
        is_better = ends & (mean + error < jnp.where(is_thin, state.limit, state.best_loss))
        state = _where(is_better, at_best(state, params, mean, error), state)
        num_above = jnp.where(lowest > state.limit, state.num_above + state.num_losses, 0)
        is_sure = state.is_on_probation | (num_above * state.num_best >= MIN_EVIDENCE)
        is_high = ends & (num_above >= BLOCK_SIZE) & is_sure
        is_lost = _total(steps) <= _epsilon(params) * _total(params)
        is_frozen = ends & is_lost & (FROZEN_RATIO * size <= state.largest) & (size > 0)
        has_failed = (~is_finite & ~is_away) | is_high | is_frozen
        is_hopeless = (state.num_resets >= max_resets) | jnp.isinf(state.best_loss)
        has_given_up = state.has_given_up | (has_failed & is_hopeless)
        resets = has_failed & ~has_given_up
        # Frozen where it was best, the rate is not to blame.
        is_lowered = resets & (~is_frozen | (num_above > 0))
        returns = resets | is_away | has_given_up
        going_on = state._replace(
            num_above=jnp.where(ends, num_above, state.num_above),
            # The first value after a return is that of the best parameters, not of what comes after them.
            num_losses=jnp.where(ends | has_arrived, 0, state.num_losses),
            block_size=jnp.where(ends, jnp.clip(2 * state.block_size, 7, BLOCK_SIZE), state.block_size),
            largest=jnp.maximum(state.largest, size),
        )
        going_back = state._replace(
            inner_state=inner.init(state.best),
            limit=state.best_loss,
            num_above=_count(0),
            is_on_probation=jnp.asarray(True),
            num_losses=_count(0),
            block_size=_count(BLOCK_SIZE),
            largest=_smallest(),
        )
        return _where(returns, going_back, going_on)._replace(
            rate_scale=jnp.where(is_lowered, state.rate_scale * scalar(factor), state.rate_scale),
            num_resets=state.num_resets + resets,
            is_returning=returns,
            num_tries=jnp.where(resets, 2, state.num_tries - is_away),
            has_given_up=has_given_up,
        )

    def at_best(
        state: GuardState, params: optax.Params, mean: Float[Array, ""], error: Float[Array, ""]
    ) -> GuardState:
        return state._replace(
            best=jax.tree.map(jnp.asarray, params),
            best_loss=mean + error,
            num_best=state.num_losses,
            limit=mean + jnp.maximum(scalar(min_rise), error),
            is_on_probation=jnp.asarray(False),
        )

    update_fn: Any = update  # whose own type of state is fine there
    return optax.GradientTransformationExtraArgs(init, update_fn)


def _count(number: int) -> Int[Array, ""]:
    return jnp.full((), number, jnp.int32)


def _smallest() -> Float[Array, ""]:
    """What is more than nothing, so that zero is below twice that."""
    return scalar(jnp.finfo(float).tiny)


def _lowest_mean_and_error(
    state: GuardState,
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """Of the block's losses, the error times `NUM_ERRORS`; that of a single one, which is not known, is 0."""
    counts, num = jnp.arange(BLOCK_SIZE) < state.num_losses, state.num_losses
    mean = jnp.sum(state.losses, where=counts) / num
    squares = jnp.sum((state.losses - mean) ** 2, where=counts)
    error = jnp.sqrt(squares / num / jnp.maximum(num - 1, 1))
    return jnp.min(state.losses, where=counts, initial=jnp.inf), mean, NUM_ERRORS * error


def _numbers(tree: PyTree) -> list[Array]:
    """The leaves that are real or complex."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if getattr(leaf, "dtype", None) != jax.dtypes.float0]
    return [leaf for leaf in map(jnp.asarray, leaves) if jnp.issubdtype(leaf.dtype, jnp.inexact)]


def _sizes(gradient: PyTree, params: PyTree, steps: PyTree) -> list[Array]:
    """Of gradient and parameters after the step, entry by entry; not finite where one of these is not."""
    each = zip(_numbers(gradient), _numbers(params), _numbers(steps), strict=True)
    return [jnp.abs(slope) + jnp.abs(param + step) for slope, param, step in each]


def _total(tree: PyTree) -> Float[Array, ""]:
    return scalar(sum(jnp.sum(jnp.abs(leaf)) for leaf in _numbers(tree)))


def _epsilon(params: PyTree) -> float:
    return max((float(jnp.finfo(leaf.dtype).eps) for leaf in _numbers(params)), default=0.0)


def _way_if(
    condition: Bool[Array, ""], steps: optax.Updates, params: optax.Params, best: optax.Params
) -> optax.Updates:
    """The steps, or the way from `params` to `best`: by way of zero where no number leads there at once."""

    def way(step: Any, param: Any, goal: Any) -> Any:
        if not jnp.issubdtype(jnp.result_type(step), jnp.inexact):
            return step
        direct = goal - param
        back = jnp.where(param + direct == goal, direct, -param)
        return jnp.where(condition, back.astype(jnp.result_type(step)), step)

    return jax.tree.map(way, steps, params, best)


def _equal(left: PyTree, right: PyTree) -> Bool[Array, ""]:
    pairs = zip(_numbers(left), _numbers(right), strict=True)
    return jnp.all(jnp.asarray([jnp.all(a == b) for a, b in pairs]))


def _where(condition: Bool[Array, ""], left: Any, right: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), left, right)
