"""A fit for ArviZ: an InferenceData before its version 1, a DataTree since."""

import datetime
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd import __version__
from dlrd.families import Family, FromNoise, Moments, log_prob_of
from dlrd.fitting.automatic.judge.psis import tail_shape
from dlrd.fitting.chains import covariance
from dlrd.fitting.inputs import as_key
from dlrd.fitting.labels import as_variables, dims_of, labels_along
from dlrd.models import Model, Observed, Predictive, Simulated

if TYPE_CHECKING:
    import xarray

    from dlrd.fitting.result import Fit

BATCH = 100
"""Draws whose log densities are evaluated at once."""
Variables = dict[str, tuple[tuple[str, ...], Any]]
"""Arrays with the names of their axes, as xarray takes them."""


def to_arviz(fit: "Fit", key: Any, num: int, has_predictions: bool = True) -> Any:
    """The groups of `Fit.to_arviz`, predictions or not, in the form of the installed ArviZ."""
    try:
        import arviz
    except ModuleNotFoundError as error:
        raise ImportError(
            "fit.to_arviz needs ArviZ, which is not installed: pip install 'dlrd[arviz]'"
        ) from error
    groups: dict[str, Any] = datasets(fit, as_key(key), num, has_predictions)
    if hasattr(arviz, "InferenceData"):  # before version 1
        return arviz.InferenceData(**groups)
    import xarray

    return xarray.DataTree.from_dict(groups)


def datasets(
    fit: "Fit", key: Key[Array, ""], num: int, has_predictions: bool = True
) -> dict[str, "xarray.Dataset"]:
    """What there is to say about a fit, by the names of ArviZ's groups, and a group `fit`."""
    model = fit.model
    flat = np.asarray(fit.unconstrained_draws(key, num)).reshape(num, -1)
    named: dict[str, dict[str, Any]] = {"posterior": as_variables(fit.sample(key, num), fit.names)}
    is_cheap = not isinstance(model, Simulated)  # nobody waits for runs that they have not asked for
    if is_cheap and has_predictions and isinstance(model, Predictive):
        named["posterior_predictive"] = fit.predict(key, num)
    if is_cheap and isinstance(model, Observed):
        named["log_likelihood"] = fit.log_likelihood(key, num)
    groups = {name: _dataset(_drawn(values, model), model) for name, values in named.items()}
    groups["unconstrained_posterior"] = _dataset(
        {"z": (("chain", "draw", "coordinate"), flat[None])}, coordinate=fit.names
    )
    if isinstance(model, Observed):
        for name in ("observed_data", "constant_data"):
            groups[name] = _dataset(_labelled(getattr(model, name), model), model)
    groups["fit"] = _fit_group(fit, key, num)
    for group in groups.values():
        group.attrs |= {
            "created_at": datetime.datetime.now(datetime.UTC).isoformat(),
            "inference_library": "dlrd",
            "inference_library_version": __version__,
        }
    return {name: group for name, group in groups.items() if group}


def _drawn(values: dict[str, Any], model: Model | None) -> Variables:
    """Variables with a leading axis of draws, as those of one chain."""
    arrays = {name: np.asarray(array) for name, array in values.items()}
    return {
        name: (("chain", "draw", *dims_of(name, array.shape[1:], model)), array[None])
        for name, array in arrays.items()
    }


def _labelled(values: dict[str, Any], model: Model | None) -> Variables:
    return {
        name: (dims_of(name, np.shape(array), model), np.asarray(array)) for name, array in values.items()
    }


def _dataset(variables: Variables, model: Model | None = None, **coords: Any) -> "xarray.Dataset":
    """With labels along every axis: those that are given, or the model's, or numbers."""
    import xarray

    sizes = {
        dim: size
        for dims, array in variables.values()
        for dim, size in zip(dims, np.shape(array), strict=True)
    }
    labels = {dim: labels_along(dim, size, model) for dim, size in sizes.items()}
    return xarray.Dataset(variables, labels | {dim: np.asarray(given) for dim, given in coords.items()})


def _fit_group(fit: "Fit", key: Key[Array, ""], num: int) -> "xarray.Dataset":
    """The fitted distribution, its course, and what the verdict measured."""
    variables: Variables = {}
    if isinstance(fit.family, Moments):
        variables["location"] = (("coordinate",), np.ravel(np.asarray(fit.family.mean)))
        variables["scale"] = (("coordinate",), np.ravel(np.asarray(fit.family.std)))
    whole = covariance(fit)
    if whole is not None:
        variables["covariance"] = (("coordinate", "other_coordinate"), np.asarray(whole))
    for name in ("elbo", "elbo_error", "learning_rate", "snr"):
        variables[name] = (("step",), getattr(fit.history, name))
    variables["decay_step"] = (("decay",), fit.history.decays)
    variables["final_elbo"], variables["final_elbo_error"] = ((), fit.elbo), ((), fit.elbo_error)
    shape: tuple[float, float] | None = None
    if fit.model is not None and fit.model.is_exact and not isinstance(fit.model, Simulated):
        log_p, log_q = log_densities(fit.model, fit.family, key, num)
        variables["log_p"] = (("chain", "draw"), log_p[None])
        variables["log_q"] = (("chain", "draw"), log_q[None])
        shape = tail_shape(log_p.astype(float) - log_q)
    if fit.verdict is not None:
        shape = fit.verdict.tail_shape, fit.verdict.tail_shape_error
        for name in ("tolerance", "gap", "gap_error", "num_gradients"):
            variables[name] = ((), getattr(fit.verdict, name))
    if shape is not None:
        variables["pareto_k"], variables["pareto_k_error"] = ((), shape[0]), ((), shape[1])
    is_used = {dim for dims, _ in variables.values() for dim in dims}
    labels = {"coordinate": fit.names, "other_coordinate": fit.names, "step": fit.history.step}
    group = _dataset(variables, **{dim: label for dim, label in labels.items() if dim in is_used})
    group.attrs |= {
        "family": type(fit.family).__name__,
        "outcome": fit.outcome.name,
        "sentence": fit.outcome.sentence,
        "warnings": "\n".join(fit.verdict.warnings if fit.verdict else []),
        "num_steps": fit.num_steps,
        "num_draws": fit.num_draws,
        "seconds": fit.seconds,
    }
    return group


def log_densities(
    model: Model, family: Family, key: Key[Array, ""], num: int
) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, " draw"]]:
    """log p and log q at the draws of a key, with the Jacobians of both on the unconstrained scale."""
    draws, log_q = _with_log_q(family, key, num)
    log_p_fn = _log_p_program(model)
    log_p = [log_p_fn(draws[i : i + BATCH]) for i in range(0, num, BATCH)]
    return np.concatenate(log_p), np.asarray(log_q)


@eqx.filter_jit
def _with_log_q(family: Family, key: Key[Array, ""], num: int) -> tuple[Array, Array]:
    if isinstance(family, FromNoise):  # whose density may be known by the noise however narrow it is
        noise = family.sample_noise(key, num)
        draws = family.from_noise(noise)
        return draws, log_prob_of(family, noise, draws)
    draws = family.sample(key, (num,))
    return draws, family.log_prob(draws)


@functools.lru_cache(maxsize=8)
def _log_p_program(model: Model) -> Callable[[Float[Array, "draw ..."]], Float[Array, " draw"]]:
    return jax.jit(lambda draws: model.values(draws, None))
