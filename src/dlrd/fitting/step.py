"""The state of a fit and the one pure function that advances it."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from dlrd.families import Family, FromNoise, Natural, SecondOrder, split
from dlrd.fitting import average
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.program import Program
from dlrd.gradients import Estimator
from dlrd.gradients.sobol import Driven, sobol_noise
from dlrd.models import Model
from dlrd.rates import GuardState, guard

OptimizerOrFactory = optax.GradientTransformation | Callable[[Float[Array, ""]], optax.GradientTransformation]
"""An optimiser, or for runs with a learning rate of their own, a function that makes one of it."""


Draws = Literal["independent", "sobol", "sobol_pairs"]
"""Where a step's noise comes from: independent numbers, or a Sobol sequence, also with mirror images."""


class Method(NamedTuple):
    """All that a step needs and never changes; an argument of programs, hashable but for a model's data."""

    model: Model
    optimizer: OptimizerOrFactory
    estimator: Estimator
    num_draws: int
    is_averaging: bool = False  # whether the state keeps the average over the run's tail
    draws: Draws = "independent"
    min_rise: float | None = None  # of the guard, in nats; None: there is none
    is_short: bool = False  # whether steps are few, so that they had better be compiled quickly than be fast


class State(NamedTuple):
    """All that changes in a fit. With a leading axis in every array: many runs."""

    trainable: PyTree  # the family's arrays, None elsewhere
    opt_state: optax.OptState
    step: Int[Array, ""]  # steps done
    outcome: Int[Array, ""]  # value of an `Outcome`
    key: Key[Array, ""]  # of the whole run; never changes
    learning_rate: Float[Array, ""] | None  # what the optimiser was made with, if it was made for this run
    average: average.TailAverage | None  # of the trainable arrays, if it is kept


class Record(NamedTuple):
    """What a person wants to see of a step: scalars in the loop, NumPy arrays of many steps on the host."""

    elbo: Any
    elbo_variance: Any  # of that estimate; nan for a single draw
    learning_rate: Any  # nan where the optimiser does not say
    snr: Any  # likewise
    num_decays: Any  # likewise, 0
    num_resets: Any  # how often the guard has gone back
    num_failed: Any  # draws of the step that were left out


def _initial_state(
    method: Method, family: Family, key: Key[Array, ""], learning_rate: Float[Array, ""] | None
) -> State:
    trainable: PyTree = split(family)[0]
    return State(
        trainable=trainable,
        opt_state=_optimizer(method, learning_rate).init(trainable),
        step=jnp.zeros((), jnp.int32),
        outcome=jnp.full((), Outcome.RUNNING.value, jnp.int32),
        key=key,
        learning_rate=learning_rate,
        average=average.start(trainable) if method.is_averaging else None,
    )


def _initial_states(
    method: Method,
    family: Family,
    keys: Key[Array, " run"],
    learning_rates: Float[Array, " run ..."] | None,
) -> State:
    return jax.vmap(functools.partial(_initial_state, method, family))(keys, learning_rates)


initial_states = Program(_initial_states)
"""The state of all runs before their first step: its many small arrays one by one would take far longer."""


def advance(method: Method, rest: Family, state: State, key: Key[Array, ""]) -> tuple[State, Record]:
    """One step of stochastic variational inference, with the draws of `key`.

    A run that has ended stays as it is. So do the parameters when a step fails, so that the state holds
    the last good ones. With a guard, a step fails when that gives up, and the best parameters are kept.
    """
    family = eqx.combine(state.trainable, rest)
    if method.draws == "independent":
        estimate = method.estimator(method.model, family, key, method.num_draws)
    else:
        assert isinstance(family, FromNoise)
        driven = Driven(family, _noise(method, family, state))
        estimate = method.estimator(method.model, driven, key, method.num_draws)
        estimate = dataclasses.replace(estimate, gradient=estimate.gradient.family)
    elbo = jnp.mean(estimate.elbo_terms)
    optimizer = optax.with_extra_args_support(_optimizer(method, state.learning_rate))
    loss_gradient = jax.tree.map(jnp.negative, estimate.gradient)
    updates, opt_state = optimizer.update(loss_gradient, state.opt_state, state.trainable, value=-elbo)
    if estimate.is_natural:
        assert isinstance(family, Natural)
        trainable = split(family.moved(updates))[0]
    else:
        trainable = optax.apply_updates(state.trainable, updates)
    is_back = jnp.asarray(False)
    if isinstance(opt_state, GuardState):
        # There at once, and not by a way that suits any loop but this one.
        is_back, is_good = opt_state.is_returning, ~opt_state.has_given_up
        trainable = _where(is_back, opt_state.best, trainable)
    else:
        is_good = jnp.isfinite(elbo) & _all_finite(trainable)
        trainable = _where(is_good, trainable, state.trainable)

    is_running = state.outcome == Outcome.RUNNING.value
    outcome = jnp.where(is_good, state.outcome, Outcome.DIVERGED.value)
    is_counted = is_running & is_good
    averages = state.average
    if averages is not None:
        averages = average.extended(averages, trainable, is_counted)
        averages = _where(is_back, average.start(trainable), averages)
    advanced = State(
        trainable=_where(is_running, trainable, state.trainable),
        opt_state=opt_state,
        step=state.step + is_counted,
        outcome=jnp.where(is_running, outcome, state.outcome),
        key=state.key,
        learning_rate=state.learning_rate,
        average=averages,
    )
    record = Record(
        elbo=elbo,
        elbo_variance=jnp.var(estimate.elbo_terms) / (method.num_draws - 1)
        if method.num_draws > 1
        else jnp.full_like(elbo, jnp.nan),
        learning_rate=_reading(opt_state, "learning_rate", jnp.nan) * _reading(opt_state, "rate_scale", 1.0),
        snr=_reading(opt_state, "snr", jnp.nan),
        num_decays=_reading(opt_state, "num_decays", 0.0),
        num_resets=_reading(opt_state, "num_resets", 0.0),
        num_failed=jnp.asarray(0 if estimate.num_failed is None else estimate.num_failed, elbo.dtype),
    )
    return advanced, record


def _noise(method: Method, family: FromNoise, state: State) -> Float[Array, "num_draws noise"]:
    """The part of the Sobol sequence that is this step's turn."""
    # Hessians of mirror images have a mean without the noise of third derivatives.
    has_hessian = isinstance(family, SecondOrder) and method.num_draws % 2 == 0
    is_paired = method.draws == "sobol_pairs" or has_hessian
    num_points = method.num_draws // 2 if is_paired else method.num_draws
    dtype = jnp.result_type(*jax.tree.leaves(state.trainable))
    noise = sobol_noise(state.key, state.step, num_points, family.noise_size, dtype)
    return jnp.concatenate([noise, -noise]) if is_paired else noise


def _optimizer(method: Method, learning_rate: Float[Array, ""] | None) -> optax.GradientTransformation:
    optimizer = method.optimizer
    if not isinstance(optimizer, optax.GradientTransformation):
        assert learning_rate is not None
        optimizer = optimizer(learning_rate)
    return optimizer if method.min_rise is None else guard(optimizer, method.min_rise)


def _reading(opt_state: optax.OptState, name: str, default: float) -> Float[Array, ""]:
    """The number that the chain's last link shows under `name`, or else `default`."""
    found = optax.tree_utils.tree_get_all_with_path(opt_state, name)
    numbers = [value for _, value in found if jnp.ndim(value) == 0]
    return jnp.asarray(numbers[-1] if numbers else default, dtype=float)


def _all_finite(tree: Any) -> Bool[Array, ""]:
    return jnp.all(jnp.asarray([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


def _where(condition: Bool[Array, ""], left: Any, right: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), left, right)
