"""`dlrd.fit` and `dlrd.fit_many`."""

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Float, Key

from dlrd.families import Family
from dlrd.fitting import inputs
from dlrd.fitting.average import value as tail_average
from dlrd.fitting.checkpoint import Checkpoint
from dlrd.fitting.history import Recorder
from dlrd.fitting.loop import Observer, Rows, run
from dlrd.fitting.monitor import Monitor, MonitorFn, log_spaced
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.progress import progress_bar
from dlrd.fitting.result import Fit
from dlrd.fitting.step import Draws, Method, OptimizerOrFactory, State, initial_state
from dlrd.gradients import Estimator, LogDensity, sticking_the_landing
from dlrd.gradients.estimate import split
from dlrd.rates import dynamic_decay

AUTOMATIC_LEARNING_RATE = 1e-2
AUTOMATIC_MAX_STEPS = 200_000
AUTOMATIC_MAX_DECAYS = 4


def fit(
    log_density: LogDensity,
    family: Family,
    *,
    key: Any,
    optimizer: optax.GradientTransformation | None = None,
    steps: int | None = None,
    num_draws: int = 8,
    gradient: Estimator = sticking_the_landing,
    draws: Draws = "independent",
    average: Literal["tail"] | None = None,
    checkpoint: str | Path | None = None,
    monitor: MonitorFn | None = None,
    monitor_steps: Sequence[int] | np.ndarray | None = None,
    progress: bool | Callable[[int], None] = True,
) -> Fit:
    r"""Fits a variational family to a log density by stochastic variational inference.

    Maximises the evidence lower bound $E_q[\log p(z) - \log q_λ(z)]$ over the family's parameters λ.

    Without `optimizer` there is nothing to tune: Adam with `dlrd.dynamic_decay` from 1e-2, until the rate has
    decayed four times, at most 200,000 steps (or `steps`). With `optimizer` it is plain stochastic
    variational inference with that optimiser, as in the paper, for `steps` steps.

    Ctrl-C ends the fit with what there is. A value that is not finite ends it with the last good parameters.
    `Fit.outcome` tells.

    Args:
        log_density: one draw, an array, to the unnormalised log density, a scalar; written with jax.
        family: where to start: any distribution with `sample` and `log_prob` whose arrays are trained.
        key: a whole number or a `jax.random.key`.
        optimizer: an optax transformation, as `optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-2))`.
        steps: how many.
        num_draws: draws for each gradient, the paper's batch size S.
        gradient: the estimator: `dlrd.sticking_the_landing`, `dlrd.reparameterized` or `dlrd.score_function`.
        draws: "sobol" takes the noise of all steps from one Sobol sequence, for the normal families and the
            reparameterised gradients: over many steps more accurate, the more so the fewer the dimensions.
            "sobol_pairs" adds each point's mirror image, which takes the noise of symmetric posteriors away.
        average: "tail" gives the mean of the parameters over the last half to three quarters of the steps in
            place of the last ones: less noise where they oscillate, and no use where they still travel.
        checkpoint: a folder to write the state to, about once a second. The same call with the same folder
            goes on from there and ends like one that was never interrupted, bit for bit.
        monitor: a function of the family that gives named arrays, as `lambda q: {"mean": q.mean}`; what it
            gives is in `Fit.monitored`.
        monitor_steps: after which steps; about 1000, evenly spaced on a logarithmic axis, if not given.
        progress: whether to show a progress bar, or a function that is told the steps done, now and then.

    Returns:
        The fit: `family`, `history`, `outcome`, and methods to sample, summarise, plot and save it.

    Example:
        >>> import dlrd, jax.numpy as jnp
        >>> log_density = lambda z: -0.5 * jnp.sum((z - 3.0) ** 2 / 0.25)
        >>> fit = dlrd.fit(log_density, dlrd.MeanFieldNormal.standard(20), key=0, progress=False)
        >>> print(fit.outcome.sentence)
        The parameters settled: the learning rate decayed until its steps no longer mattered.
        >>> bool(jnp.all(jnp.abs(fit.family.mean - 3.0) < 0.01))
        True
    """
    if optimizer is None:
        optimizer = _automatic_optimizer()
        max_decays = AUTOMATIC_MAX_DECAYS
        steps = AUTOMATIC_MAX_STEPS if steps is None else steps
    else:
        inputs.check_optimizer(optimizer)
        max_decays = None
        if steps is None:
            raise ValueError("steps must be given together with optimizer, got None")
    (result,) = _fit_runs(
        log_density,
        family,
        keys=jnp.expand_dims(inputs.as_key(key), 0),
        learning_rates=None,
        num_rates=1,
        optimizer=optimizer,
        max_decays=max_decays,
        steps=steps,
        num_draws=num_draws,
        gradient=gradient,
        draws=draws,
        average=average,
        checkpoint=checkpoint,
        monitor=monitor,
        monitor_steps=monitor_steps,
        progress=progress,
    )
    return result


def fit_many(
    log_density: LogDensity,
    family: Family,
    *,
    keys: Sequence[Any],
    optimizer: OptimizerOrFactory,
    learning_rates: Sequence[float] | ArrayLike | None = None,
    steps: int,
    num_draws: int = 8,
    gradient: Estimator = sticking_the_landing,
    draws: Draws = "independent",
    average: Literal["tail"] | None = None,
    checkpoint: str | Path | None = None,
    monitor: MonitorFn | None = None,
    monitor_steps: Sequence[int] | np.ndarray | None = None,
    progress: bool | Callable[[int], None] = True,
) -> list[Fit]:
    """Fits one model many times, with different keys and learning rates, in one compiled program.

    Args:
        log_density, family, steps, num_draws, gradient, draws, average, checkpoint, monitor, monitor_steps,
            progress: as for `dlrd.fit`.
        keys: seeds or keys, one run each.
        optimizer: an optax transformation; or, with `learning_rates`, a function from a rate to one.
        learning_rates: each is run with each key. Numbers; or an array with rows of several numbers, which
            `optimizer` then gets, for settings besides the rate.

    Returns:
        One fit a run, in the order of `itertools.product(learning_rates, keys)`. Their `seconds` are those of
        the whole call.

    Example:
        >>> import dlrd, optax
        >>> fits = dlrd.fit_many(
        ...     lambda z: -0.5 * (z @ z), dlrd.MeanFieldNormal.standard(10), keys=range(3), steps=200,
        ...     learning_rates=[1e-1, 1e-2], progress=False,
        ...     optimizer=lambda rate: optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(rate)))
        >>> [f"{fit.history.learning_rate[0]:.2f}" for fit in fits]
        ['0.10', '0.10', '0.10', '0.01', '0.01', '0.01']
    """
    each_key = inputs.as_keys(keys)
    if learning_rates is None:
        inputs.check_optimizer(optimizer)
        run_keys, run_rates, num_rates = each_key, None, 1
    else:
        rates = inputs.as_learning_rates(learning_rates)
        if isinstance(optimizer, optax.GradientTransformation) or not callable(optimizer):
            raise TypeError(
                "optimizer must be a function of the learning rate where learning_rates are given, as "
                "lambda rate: optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(rate))"
            )
        num_rates = len(rates)
        run_rates = jnp.repeat(rates, len(each_key), axis=0)
        run_keys = jnp.tile(each_key, num_rates)
    return _fit_runs(
        log_density,
        family,
        keys=run_keys,
        learning_rates=run_rates,
        num_rates=num_rates,
        optimizer=optimizer,
        max_decays=None,
        steps=steps,
        num_draws=num_draws,
        gradient=gradient,
        draws=draws,
        average=average,
        checkpoint=checkpoint,
        monitor=monitor,
        monitor_steps=monitor_steps,
        progress=progress,
    )


def _fit_runs(
    log_density: LogDensity,
    family: Family,
    *,
    keys: Key[Array, " run"],
    learning_rates: Float[Array, " run"] | None,
    num_rates: int,
    optimizer: OptimizerOrFactory,
    max_decays: int | None,
    steps: int,
    num_draws: int,
    gradient: Estimator,
    draws: Draws,
    average: Literal["tail"] | None,
    checkpoint: str | Path | None,
    monitor: MonitorFn | None,
    monitor_steps: Sequence[int] | np.ndarray | None,
    progress: bool | Callable[[int], None],
) -> list[Fit]:
    started = time.perf_counter()
    inputs.check_count("steps", steps)
    inputs.check_count("num_draws", num_draws)
    inputs.check_family(family)
    inputs.check_log_density(log_density, family)
    if average not in (None, "tail"):
        raise ValueError(f'average must be None or "tail", got {average!r}')
    method = Method(
        _hashable(log_density), optimizer, gradient, num_draws, max_decays, average == "tail", draws
    )
    inputs.check_draws(draws, family, gradient, num_draws)
    _, rest = split(family)
    state = jax.vmap(lambda key, rate: initial_state(method, family, key, rate))(keys, learning_rates)
    recorders = [Recorder.for_budget(steps) for _ in keys]
    watched = None
    if monitor is not None:
        inputs.check_monitor(monitor, family)
        watched = Monitor(monitor, rest, log_spaced(steps) if monitor_steps is None else monitor_steps)
    saved = None
    if checkpoint is not None:
        saved = Checkpoint(Path(checkpoint), method, rest, state, watched)
        state, recorders = saved.restore() or (state, recorders)

    def record(state: State, rows: Rows) -> None:
        for i, recorder in enumerate(recorders):
            recorder.extend(rows.of_run(i))

    def check_start(state: State, rows: Rows) -> None:
        has_failed = (state.step == 0) & (state.outcome == Outcome.DIVERGED.value)
        if jnp.any(has_failed):
            inputs.raise_bad_start(log_density, family, keys[jnp.argmax(has_failed)], num_draws)

    observers: list[Observer] = [check_start, record]
    if watched is not None:
        observers.append(watched)
    with contextlib.ExitStack() as stack:
        if callable(progress):
            observers.append(lambda state, rows: progress(int(jnp.max(state.step))))
        elif progress:
            bar = progress_bar(steps, len(recorders), int(jnp.max(state.step)))
            observers.append(stack.enter_context(bar))
        if saved is not None:
            observers.append(saved.observer(recorders))
        stops = None if watched is None else watched.steps
        state = run(method, rest, state, steps, observers, num_rates, stops)
    if saved is not None:
        saved.write(state, recorders)
    seconds = time.perf_counter() - started
    monitored = {} if watched is None else watched.stacked()
    found = state.trainable
    if state.average is not None:
        found = jax.vmap(tail_average)(state.average, found)
    return [
        Fit(
            family=eqx.combine(jax.tree.map(lambda leaf, i=i: leaf[i], found), rest),
            history=recorder.history(),
            outcome=Outcome(int(state.outcome[i])),
            num_steps=int(state.step[i]),
            num_draws=num_draws,
            seconds=seconds,
            monitored={name: values[i] for name, values in monitored.items()} if watched else None,
        )
        for i, recorder in enumerate(recorders)
    ]


@functools.cache
def _automatic_optimizer() -> optax.GradientTransformation:
    """Made once, so that a second fit finds its compiled program."""
    return optax.chain(optax.scale_by_adam(), dynamic_decay(AUTOMATIC_LEARNING_RATE))


def _hashable(log_density: LogDensity) -> LogDensity:
    """The function itself, or, where it is an object that holds arrays, a wrapper that can key a cache."""
    try:
        hash(log_density)
    except TypeError:
        return functools.partial(log_density)
    return log_density
