"""Fits with an optimiser: from a request to results."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from dlrd.families import Family, split
from dlrd.fitting import inputs
from dlrd.fitting.average import value as tail_average
from dlrd.fitting.checkpoint import Checkpoint, Snapshot, flattened, restored
from dlrd.fitting.history import Recorder
from dlrd.fitting.loop import Observer, Rows, run
from dlrd.fitting.monitor import Monitor, log_spaced
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.progress import Reading, elbo_reading, progress_display, rule_reading
from dlrd.fitting.request import Request, Stepping
from dlrd.fitting.result import Fit
from dlrd.fitting.step import Method, State, initial_states
from dlrd.gradients import score_function, sticking_the_landing
from dlrd.models import Model


def fit_explicitly(model: Model, family: Family, keys: Key[Array, " key"], request: Request) -> list[Fit]:
    """Fits with an optimiser for a number of steps, each learning rate with each key, in one program."""
    begun = time.perf_counter()
    stepping, watching = request.stepping, request.watching
    assert stepping.steps is not None
    run_keys, run_rates, num_rates = _grid(keys, stepping)
    method = _checked_method(model, family, request)
    rest = split(family)[1]
    state = initial_states(method, family, run_keys, run_rates)
    recorders = [Recorder.for_budget(stepping.steps) for _ in run_keys]
    watched = _monitor(stepping, family)
    checkpoint = None
    if watching.checkpoint is not None:
        checkpoint = Checkpoint(watching.checkpoint, method, rest, state)
        state, recorders = _restore(checkpoint.read(), state, recorders, watched)

    def record(state: State, rows: Rows) -> None:
        recorders[:] = [recorder.extended(rows.of_run(i)) for i, recorder in enumerate(recorders)]

    def check_start(state: State, rows: Rows) -> None:
        has_failed = (state.step == 0) & (state.outcome == Outcome.DIVERGED.value)
        if jnp.any(has_failed):
            inputs.raise_bad_start(model, family, run_keys[jnp.argmax(has_failed)], method.num_draws)

    observers: list[Observer] = [check_start, record]
    if watched is not None:
        observers.append(watched)
    label = "" if len(recorders) == 1 else f"{len(recorders)}× "
    with progress_display(watching.progress, stepping.steps, "", "compiling", label, model) as show:
        observers.append(lambda state, rows: show(_reading(state, recorders)))
        if checkpoint is not None:
            observers.append(
                lambda state, rows: checkpoint.write_now_and_then(
                    lambda: _snapshot(state, recorders, watched)
                )
            )
        stops = None if watched is None else watched.steps
        state = run(method, rest, state, stepping.steps, observers, num_rates, stops)
    if checkpoint is not None:
        checkpoint.write(_snapshot(state, recorders, watched))
    seconds = time.perf_counter() - begun
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
            num_draws=method.num_draws,
            seconds=seconds,
            names=tuple(model.names),
            model=model,
            monitored={name: values[i] for name, values in monitored.items()} if watched else None,
        )
        for i, recorder in enumerate(recorders)
    ]


def _grid(
    keys: Key[Array, " key"], stepping: Stepping
) -> tuple[Key[Array, " run"], Float[Array, " run ..."] | None, int]:
    """The key and the learning rate of each run, and how many rates there are."""
    if stepping.learning_rates is None:
        return keys, None, 1
    rates = inputs.as_learning_rates(stepping.learning_rates)
    return jnp.tile(keys, len(rates)), jnp.repeat(rates, len(keys), axis=0), len(rates)


def _checked_method(model: Model, family: Family, request: Request) -> Method:
    """How a step is taken, once it is sure that the estimator, the model, the family and the draws agree."""
    stepping, (num_draws, gradient) = request.stepping, request.sampling
    assert stepping.optimizer is not None
    needs_independent = not model.has_gradient
    estimator = score_function if needs_independent else sticking_the_landing
    if gradient is not None:
        # It says in its own words which family or model it cannot do with.
        estimate = eqx.filter_eval_shape(gradient, model, family, jax.random.key(0), num_draws)
        estimator, needs_independent = gradient, estimate.needs_independent
    draws = stepping.draws or "independent"
    inputs.check_draws(draws, family, num_draws, not needs_independent)
    is_averaging = stepping.average == "tail"
    # A nat a dimension: oscillations that a rate which works can cause are smaller.
    min_rise = None if stepping.guard is False else 1.0 + len(model.names)
    return Method(model, stepping.optimizer, estimator, num_draws, is_averaging, draws, min_rise)


def _monitor(stepping: Stepping, family: Family) -> Monitor | None:
    if stepping.monitor is None:
        return None
    inputs.check_monitor(stepping.monitor, family)
    assert stepping.steps is not None
    steps = log_spaced(stepping.steps) if stepping.monitor_steps is None else stepping.monitor_steps
    return Monitor(stepping.monitor, split(family)[1], steps)


def _snapshot(state: State, recorders: list[Recorder], watched: Monitor | None) -> Snapshot:
    arrays = flattened("state", state)
    for i, recorder in enumerate(recorders):
        arrays |= recorder.arrays(f"{i}.")
    if watched is not None:
        arrays |= {f"monitor.{name}": rows for name, rows in watched.stacked().items()}
    return Snapshot(arrays, {"recorders": [recorder.data() for recorder in recorders]})


def _restore(
    saved: Snapshot | None, state: State, recorders: list[Recorder], watched: Monitor | None
) -> tuple[State, list[Recorder]]:
    """The state and the records of an earlier call, or the given ones if there was none."""
    if saved is None:
        return state, recorders
    arrays, data = saved
    state = restored(arrays, "state", state)
    # Interrupted runs, and those that had done all steps of a smaller budget, go on.
    goes_on = jnp.asarray([Outcome.INTERRUPTED.value, Outcome.BUDGET.value])
    outcome = jnp.where(jnp.isin(state.outcome, goes_on), Outcome.RUNNING.value, state.outcome)
    if watched is not None:
        prefix = "monitor."
        watched.restore(
            {name.removeprefix(prefix): rows for name, rows in arrays.items() if name.startswith(prefix)}
        )
    recorders = [Recorder.restored(arrays, each, f"{i}.") for i, each in enumerate(data["recorders"])]
    return state._replace(outcome=outcome), recorders


def _reading(state: State, recorders: list[Recorder]) -> Reading:
    done = int(jnp.max(state.step))
    has_ended = bool(jnp.all(state.outcome != Outcome.RUNNING.value))
    text = elbo_reading(recorders, has_error=True) + rule_reading(recorders)
    return Reading(done, done, text, has_ended)
