"""`dlrd.fit` and `dlrd.fit_many`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import ArrayLike

from dlrd.families import Family, default_family
from dlrd.fitting import inputs
from dlrd.fitting.automatic.fit import fit_automatically
from dlrd.fitting.automatic.ladder import climb
from dlrd.fitting.automatic.many import fit_each
from dlrd.fitting.explicit import fit_explicitly
from dlrd.fitting.monitor import MonitorFn
from dlrd.fitting.request import Sampling, Stepping, checked_request
from dlrd.fitting.result import Fit, with_runs_told
from dlrd.fitting.step import Draws, OptimizerOrFactory
from dlrd.gradients import Estimator
from dlrd.models import LogDensity, Model, as_model


def fit(
    log_density: Model | LogDensity,
    family: Family | None = None,
    *,
    key: Any = 0,
    tolerance: float | None = None,
    max_gradients: int | None = None,
    max_seconds: float | None = None,
    starts: int | None = None,
    optimizer: optax.GradientTransformation | None = None,
    steps: int | None = None,
    num_draws: int | Literal["workers"] = 8,
    gradient: Estimator | None = None,
    draws: Draws | None = None,
    average: Literal["tail"] | None = None,
    guard: bool | None = None,
    checkpoint: str | Path | None = None,
    monitor: MonitorFn | None = None,
    monitor_steps: Sequence[int] | np.ndarray | None = None,
    progress: bool | Callable[[int], None] = True,
) -> Fit:
    r"""Fits a variational family to a log density by stochastic variational inference.

    Maximises the evidence lower bound $E_q[\log p(z) - \log q_λ(z)]$ over the family's parameters λ.

    Without `optimizer` there is nothing to tune: the fit looks for modes from several points, or for where
    most of a hierarchy's posterior is, starts at the best one, takes natural gradients with the rule (of
    mixtures and flows Adam, in rounds whose rate falls to zero), and looks now and then, with draws of its
    own, how far from the optimum it is. It ends when that is below the `tolerance` with confidence.
    `Fit.verdict` says how sure it is. With `optimizer` it is plain stochastic variational inference with that
    optimiser, as in the paper, for `steps` steps.

    Ctrl-C ends the fit with what there is: of an automatic fit, what it has measured last. One that diverges
    goes back to the best parameters, with smaller steps; if that does not help, it ends there. `Fit.outcome`
    tells.

    Args:
        log_density: one draw, an array, to the unnormalised log density, a scalar; written with jax. Or a
            model, as those of `dlrd.models`.
        family: where to start: any distribution with `sample` and `log_prob` whose arrays are trained. An
            automatic fit of a normal looks for modes from its mean and from draws of it. If not given, the
            model must know its dimension: an automatic fit then tries richer and richer normals, each from
            the last one's answer, and keeps the best; with `optimizer`, it is N(0, I) of full rank up to 200
            dimensions, mean-field above.
        key: a whole number or a `jax.random.key`.
        tolerance: of an automatic fit: the gap between the ELBO and the highest that the family can reach
            nearby, in nats; 0.01 if not given, or 2e-4 a dimension where that is more.
        max_gradients: of an automatic fit: its budget, 30 at the least; 100,000 if not given. Not one more is
            taken; of a jax model, up to 8,192 values behind k̂ do not count.
        max_seconds: of an automatic fit: another budget. What has begun by then, as a chunk of steps or a
            certificate, is finished.
        starts: of an automatic fit: points from which it looks for modes; 16 if not given.
        optimizer: an optax transformation, as `optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-2))`.
        steps: how many, with `optimizer`.
        num_draws: draws for each gradient, the paper's batch size S; "workers" for as many as a simulator has
            workers, or the next multiple of that from 8 on.
        gradient: the estimator: `dlrd.sticking_the_landing`, the default with `optimizer`,
            `dlrd.natural_gradient`, `dlrd.reparameterized` or `dlrd.score_function`, the default for models
            without gradients. An automatic fit chooses; if one is given, it takes that, with Adam unless its
            gradients are natural ones.
        draws: with `optimizer`; "independent" by default. "sobol" takes the noise of all steps from one Sobol
            sequence, for the normal families and the reparameterised gradients: over many steps more
            accurate, the more so the fewer the dimensions. "sobol_pairs" adds each point's mirror image,
            which takes the noise of symmetric posteriors away.
        average: with `optimizer`; "tail" gives the mean of the parameters over the last half to three
            quarters of the steps in place of the last ones: less noise where they oscillate, and no use where
            they still travel.
        guard: with `optimizer`; on by default. Where the run diverges, it goes back to the best parameters so
            far with a tenth of the rate, up to 20 times (`dlrd.guard`, with 1 + dimension nats as the rise
            that counts); `Fit.history.resets` has the steps. False leaves the optimiser alone: the first
            value that is not finite then ends the fit.
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
    stepping = Stepping(optimizer, None, steps, draws, average, guard, monitor, monitor_steps)
    aim = {
        "tolerance": tolerance,
        "max_gradients": max_gradients,
        "max_seconds": max_seconds,
        "starts": starts,
    }
    sampling = Sampling(inputs.as_num_draws(num_draws, log_density), gradient)
    request = checked_request(aim, stepping, sampling, checkpoint, progress)
    model, start = _prepared(log_density, family)
    if request.aim is not None:
        if family is None:
            return with_runs_told(climb(model, inputs.as_key(key), request))
        return with_runs_told(fit_automatically(model, start, inputs.as_key(key), request))
    (result,) = fit_explicitly(model, start, jnp.expand_dims(inputs.as_key(key), 0), request)
    return result


def fit_many(
    log_density: Model | LogDensity,
    family: Family | None = None,
    *,
    keys: Sequence[Any],
    tolerance: float | None = None,
    max_gradients: int | None = None,
    max_seconds: float | None = None,
    starts: int | None = None,
    optimizer: OptimizerOrFactory | None = None,
    learning_rates: Sequence[float] | ArrayLike | None = None,
    steps: int | None = None,
    num_draws: int = 8,
    gradient: Estimator | None = None,
    draws: Draws | None = None,
    average: Literal["tail"] | None = None,
    guard: bool | None = None,
    checkpoint: str | Path | None = None,
    monitor: MonitorFn | None = None,
    monitor_steps: Sequence[int] | np.ndarray | None = None,
    progress: bool | Callable[[int], None] = True,
) -> list[Fit]:
    """Fits one model many times, with different keys and learning rates, in one compiled program.

    Without `optimizer`, automatic fits, which end each at its own time, with the programs that the first one
    compiles: as many side by side as there are cores, of models that are jax throughout, else one after
    another. Each is, bit for bit, the fit of its key alone, unless `max_seconds` ends it. Ctrl-C ends those
    under way with what they have, and leaves out those that had not begun.

    Args:
        log_density, family, tolerance, max_gradients, max_seconds, starts, steps, num_draws, gradient, draws,
            average, guard, checkpoint, monitor, monitor_steps, progress: as for `dlrd.fit`.
        keys: seeds or keys, one run each.
        optimizer: an optax transformation; or, with `learning_rates`, a function from a rate to one.
        learning_rates: each is run with each key. Numbers; or an array with rows of several numbers, which
            `optimizer` then gets, for settings besides the rate.

    Returns:
        One fit a run, in the order of `itertools.product(learning_rates, keys)`. Their `seconds` are those of
        the whole call; of automatic fits, their own.

    Example:
        >>> import dlrd, optax
        >>> fits = dlrd.fit_many(
        ...     lambda z: -0.5 * (z @ z), dlrd.MeanFieldNormal.standard(10), keys=range(3), steps=200,
        ...     learning_rates=[1e-1, 1e-2], progress=False,
        ...     optimizer=lambda rate: optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(rate)))
        >>> [f"{fit.history.learning_rate[0]:.2f}" for fit in fits]
        ['0.10', '0.10', '0.10', '0.01', '0.01', '0.01']
    """
    stepping = Stepping(optimizer, learning_rates, steps, draws, average, guard, monitor, monitor_steps)
    aim = {
        "tolerance": tolerance,
        "max_gradients": max_gradients,
        "max_seconds": max_seconds,
        "starts": starts,
    }
    request = checked_request(aim, stepping, Sampling(num_draws, gradient), checkpoint, progress)
    each_key = inputs.as_keys(keys)
    model, start = _prepared(log_density, family)
    if request.aim is None:
        return fit_explicitly(model, start, each_key, request)
    fit_fn = climb if family is None else lambda model, key, own: fit_automatically(model, start, key, own)
    return fit_each(fit_fn, model, list(each_key), request)


def _prepared(log_density: Model | LogDensity, family: Family | None) -> tuple[Model, Family]:
    """What is to be fitted, and where to start, once it is sure that they go together."""
    if family is not None:
        inputs.check_family(family)
    model = as_model(log_density, None if family is None else inputs.shape_of_draws(family))
    start = default_family(model.dim) if family is None else family
    inputs.check_model(model, start)
    return model, start
