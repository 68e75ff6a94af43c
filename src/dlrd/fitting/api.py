"""`dlrd.fit` and `dlrd.fit_many`."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import ArrayLike

from dlrd.families import Family
from dlrd.fitting import inputs
from dlrd.fitting.automatic.drive import MAX_GRADIENTS, fit_automatically
from dlrd.fitting.automatic.plan import Plan
from dlrd.fitting.monitor import MonitorFn
from dlrd.fitting.result import Fit
from dlrd.fitting.runs import fit_runs
from dlrd.fitting.step import Draws, OptimizerOrFactory
from dlrd.gradients import Estimator, LogDensity


def fit(
    log_density: LogDensity,
    family: Family,
    *,
    key: Any,
    tolerance: float = 1e-2,
    max_gradients: int = MAX_GRADIENTS,
    starts: int = Plan().num_starts,
    optimizer: optax.GradientTransformation | None = None,
    steps: int | None = None,
    num_draws: int = 8,
    gradient: Estimator | None = None,
    draws: Draws | None = None,
    average: Literal["tail"] | None = None,
    checkpoint: str | Path | None = None,
    monitor: MonitorFn | None = None,
    monitor_steps: Sequence[int] | np.ndarray | None = None,
    progress: bool | Callable[[int], None] = True,
) -> Fit:
    r"""Fits a variational family to a log density by stochastic variational inference.

    Maximises the evidence lower bound $E_q[\log p(z) - \log q_λ(z)]$ over the family's parameters λ.

    Without `optimizer` there is nothing to tune: the fit looks for modes from several points, starts at the
    best one, takes natural gradients (Adam for families that have none) with the rule, and looks now and
    then, with draws of its own, how far from the optimum it is. It ends when that is below the `tolerance`
    with confidence. `Fit.verdict` says how sure it is. With `optimizer` it is plain stochastic variational
    inference with that optimiser, as in the paper, for `steps` steps.

    Ctrl-C ends the fit with what there is. A value that is not finite ends it with the last good parameters.
    `Fit.outcome` tells.

    Args:
        log_density: one draw, an array, to the unnormalised log density, a scalar; written with jax.
        family: where to start: any distribution with `sample` and `log_prob` whose arrays are trained. An
            automatic fit of a normal looks for modes from its mean and from draws of it.
        key: a whole number or a `jax.random.key`.
        tolerance: of an automatic fit: the gap between the ELBO and the highest that the family can reach
            nearby, in nats.
        max_gradients: of an automatic fit: its budget, everything counted. The search for a first mode
            and the first 512 draws are not cut short.
        starts: of an automatic fit: points from which it looks for modes.
        optimizer: an optax transformation, as `optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-2))`.
        steps: how many, with `optimizer`.
        num_draws: draws for each gradient, the paper's batch size S.
        gradient: the estimator: `dlrd.sticking_the_landing`, the default with `optimizer`,
            `dlrd.natural_gradient`, `dlrd.reparameterized` or `dlrd.score_function`. An automatic fit
            chooses; if one is given, it takes that with Adam.
        draws: with `optimizer`; "independent" by default. "sobol" takes the noise of all steps from one Sobol
            sequence, for the normal families and the reparameterised gradients: over many steps more
            accurate, the more so the fewer the dimensions. "sobol_pairs" adds each point's mirror image,
            which takes the noise of symmetric posteriors away.
        average: with `optimizer`; "tail" gives the mean of the parameters over the last half to three
            quarters of the steps in place of the last ones: less noise where they oscillate, and no use where
            they still travel.
        checkpoint: a folder to write the state to, about once a second. The same call with the same folder
            goes on from there and ends like one that was never interrupted, bit for bit.
        monitor: with `optimizer`: a function of the family that gives named arrays, as
            `lambda q: {"mean": q.mean}`; what it gives is in `Fit.monitored`.
        monitor_steps: after which steps; about 1000, evenly spaced on a logarithmic axis, if not given.
        progress: whether to show a progress bar, or a function that is told the steps done, now and then.

    Returns:
        The fit: `family`, `history`, `outcome`, `verdict`, and methods to sample, summarise, plot and save
        it.

    Example:
        >>> import dlrd, jax.numpy as jnp
        >>> log_density = lambda z: -0.5 * jnp.sum((z - 3.0) ** 2 / 0.25)
        >>> fit = dlrd.fit(log_density, dlrd.MeanFieldNormal.standard(20), key=0, progress=False)
        >>> fit.outcome.name, fit.verdict.gap < 0.01
        ('CERTIFIED', True)
        >>> bool(jnp.all(jnp.abs(fit.family.mean - 3.0) < 0.01))
        True
    """
    if optimizer is None:
        options = {"steps": steps, "draws": draws, "average": average, "monitor": monitor}
        inputs.check_automatic(options | {"monitor_steps": monitor_steps})
        inputs.check_positive("tolerance", tolerance)
        inputs.check_count("max_gradients", max_gradients)
        inputs.check_count("starts", starts)
        inputs.check_count("num_draws", num_draws)
        inputs.check_family(family)
        inputs.check_log_density(log_density, family)
        return fit_automatically(
            _hashable(log_density),
            family,
            inputs.as_key(key),
            gradient=gradient,
            tolerance=float(tolerance),
            max_gradients=max_gradients,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            progress=progress,
            plan=Plan(num_starts=starts, num_draws=num_draws),
        )
    inputs.check_optimizer(optimizer)
    if steps is None:
        raise ValueError("steps must be given together with optimizer, got None")
    (result,) = fit_runs(
        _hashable(log_density),
        family,
        keys=jnp.expand_dims(inputs.as_key(key), 0),
        learning_rates=None,
        num_rates=1,
        optimizer=optimizer,
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
    tolerance: float = 1e-2,
    max_gradients: int = MAX_GRADIENTS,
    starts: int = Plan().num_starts,
    optimizer: OptimizerOrFactory | None = None,
    learning_rates: Sequence[float] | ArrayLike | None = None,
    steps: int | None = None,
    num_draws: int = 8,
    gradient: Estimator | None = None,
    draws: Draws | None = None,
    average: Literal["tail"] | None = None,
    checkpoint: str | Path | None = None,
    monitor: MonitorFn | None = None,
    monitor_steps: Sequence[int] | np.ndarray | None = None,
    progress: bool | Callable[[int], None] = True,
) -> list[Fit]:
    """Fits one model many times, with different keys and learning rates, in one compiled program.

    Without `optimizer`, automatic fits, which end each at its own time: they run one after another, all with
    the program that the first one compiles.

    Args:
        log_density, family, tolerance, max_gradients, starts, steps, num_draws, gradient, draws, average,
            checkpoint, monitor, monitor_steps, progress: as for `dlrd.fit`.
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
    if optimizer is None:
        options = {"learning_rates": learning_rates, "steps": steps, "draws": draws, "average": average}
        inputs.check_automatic(options | {"monitor": monitor, "monitor_steps": monitor_steps})
        return [
            fit(
                log_density,
                family,
                key=key,
                tolerance=tolerance,
                max_gradients=max_gradients,
                starts=starts,
                num_draws=num_draws,
                gradient=gradient,
                checkpoint=None if checkpoint is None else Path(checkpoint) / str(number),
                progress=progress,
            )
            for number, key in enumerate(each_key)
        ]
    if steps is None:
        raise ValueError("steps must be given together with optimizer, got None")
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
    return fit_runs(
        _hashable(log_density),
        family,
        keys=run_keys,
        learning_rates=run_rates,
        num_rates=num_rates,
        optimizer=optimizer,
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


def _hashable(log_density: LogDensity) -> LogDensity:
    """The function itself, or, where it is an object that holds arrays, a wrapper that can key a cache."""
    try:
        hash(log_density)
    except TypeError:
        return functools.partial(log_density) if callable(log_density) else log_density
    return log_density
