"""What people write down to have a program calibrated: `simulator`, `command` and `umbridge`."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from dlrd.checks import check_between, check_not_negative, shown
from dlrd.models.from_simulator import Gradient, Runs, SimulatorModel
from dlrd.models.likelihoods import Custom, Gaussian, Likelihood, LikelihoodFn, OwnDensity
from dlrd.models.names import coordinate_names
from dlrd.models.priors import Prior, flat
from dlrd.models.supports import Support
from dlrd.simulation import Command, Misfit, Server, Session, Simulation
from dlrd.simulation.command import Reader, checked_command
from dlrd.simulation.session import Policy

NOISE = "noise"
"""The name of an unknown noise level, if it is not given one."""


def simulator(
    run: Callable[[np.ndarray], Any],
    prior: Mapping[str, Prior | Support],
    data: Any = None,
    noise: Any = None,
    *,
    likelihood: LikelihoodFn | None = None,
    log_prior: Callable[..., Any] | None = None,
    gradient: Gradient | None = None,
    step: float = 1e-2,
    workers: Any = None,
    log: str | Path | None = None,
    time_limit: float | None = None,
    retries: int = 1,
    max_failed: float = 0.5,
) -> SimulatorModel:
    """A model from a program outside jax, which is run in processes of its own, many at a time.

    What `run` returns says what it can do: an array of outputs; or a pair of these and their Jacobian, with
    the outputs in its first axes and the parameters in the last; or a pair of these and a function that takes
    a sensitivity, of the shape of the outputs, to the gradient with respect to the parameters, as an adjoint
    solution gives it.

    Runs that raise an error, return nan or another shape, end with an exit code or exceed their time are
    repeated, then left out of their step. All runs are kept in the log: the same call on the same log repeats
    none that is finished, and ends with the same numbers.

    Args:
        run: a vector of the parameters, in the order of the prior, to the outputs; NumPy in, NumPy out. Or
            what `dlrd.models.command` or `dlrd.models.umbridge` gives.
        prior: of each parameter, as {"stiffness": priors.lognormal(20, 0.5)}; of `dlrd.models.priors`, or a
            support as `dlrd.positive()` where `log_prior` says the rest.
        data: what was measured; the outputs have its shape. Without data and `likelihood`, the output is one
            number, the log likelihood; or with supports as prior, the log density of all.
        noise: of the data: a standard deviation, one for each datum, or a covariance matrix; or the prior of
            an unknown standard deviation, which becomes the variable "noise". With `likelihood`, priors of
            variables that it alone depends on.
        likelihood: in place of data and noise, the outputs of one run and a dict of all variables to the log
            likelihood; written with jax.
        log_prior: a dict of the variables to a log density, besides the priors; written with jax.
        gradient: "given" by the simulator; of a "surrogate", a polynomial that an automatic fit learns from
            the outputs; central "differences" of these; or "none". If not given: what the simulator gives, or
            else, up to 50 parameters, a surrogate, or differences where the output is a log density.
        step: of differences, in standard deviations of the prior.
        workers: how many runs at a time on this machine, a core each if not given; or a `distributed.Client`;
            or the address of a scheduler of Dask.
        log: the file in which all runs are kept.
        time_limit: of a run, in seconds.
        retries: of a run before it counts as failed.
        max_failed: a share of the newest runs: if more fail, the fit goes back to where they did not.

    Example:
        >>> import dlrd
        >>> from dlrd.models import priors
        >>> def decay(parameters):
        ...     start, rate = parameters
        ...     time = np.arange(6.0)
        ...     share = np.exp(-rate * time)
        ...     return start * share, np.stack([share, -time * start * share], axis=1)
        >>> measured = np.array([10.4, 7.3, 5.6, 3.9, 3.1, 2.2])
        >>> prior = {"start": priors.normal(9.0, 3.0), "rate": priors.lognormal(0.5, 1.0)}
        >>> model = dlrd.models.simulator(decay, prior, data=measured, noise=0.2, workers=2)
        >>> fit = dlrd.fit(model, starts=1, progress=False)
        >>> fit.summary().names
        ['start', 'rate']
        >>> fit.predict(0, 20)["outputs"].shape
        (20, 6)
        >>> model.close()
    """
    _check_run(run)
    checked = {name: _checked_prior(name, each) for name, each in prior.items()}
    names = [each for name, own in checked.items() for each in coordinate_names(own.support.shape, name)]
    if isinstance(run, Command):
        run = run.with_names(names)
    if isinstance(run, Server) and run.dim != len(names):
        raise ValueError(f"prior must have the {run.dim} numbers that the server takes, got {len(names)}")
    chosen, noise_priors = _likelihood(data, noise, likelihood)
    taken = set(checked) & set(noise_priors)
    if taken:
        raise ValueError(f"the noise must have a name of its own, got {sorted(taken)[0]} twice")
    if gradient not in (None, *get_args(Gradient)):
        kinds = '"given", "surrogate", "differences" or "none"'
        raise ValueError(f"gradient must be {kinds}, got {shown(gradient)}")
    check_between("step", step, 0, float("inf"))
    check_between("max_failed", max_failed, 0, 1)
    check_not_negative("retries", retries)
    if time_limit is not None:
        check_between("time_limit", time_limit, 0, float("inf"))
    sensitivity_fn = None if chosen.misfit is None else chosen.misfit.sensitivity
    session = Session(
        Simulation(run, sensitivity_fn, time_limit),
        workers,
        None if log is None else Path(log),
        names,
        Policy(retries, max_failed),
        _fingerprint(chosen),
    )
    session.shape = chosen.data.shape if chosen.data is not None else () if chosen.misfit else None
    return SimulatorModel(
        Runs(session, gradient, float(step)), checked | noise_priors, len(names), chosen, log_prior
    )


def command(
    arguments: Sequence[str], *, inputs: Mapping[str, Any] | None = None, read: str | Reader
) -> Command:
    """A program that is started for each run, in a folder of its own that is removed afterwards.

    `$name` in its arguments and input files stands for the parameter of that name, `$name_0`, `$name_1`, …
    for the entries of an array.

    Args:
        arguments: the program and its arguments, as ["./beam", "$force"].
        inputs: the files that it reads, by their names in the folder: a text, or a `Path` to read it from.
        read: where its outputs are: "stdout" for numbers that it prints; a file with columns or entries, as
            "out.csv:u" or "out.npz:u,v" or "out.json:u"; or a function of the folder that gives what `run` of
            `dlrd.models.simulator` may give.

    Example:
        >>> import dlrd
        >>> run = dlrd.models.command(["awk", "BEGIN { print $x * $x, $x + 1 }"], read="stdout")
        >>> run.with_names(["x"])(np.array([3.0]))
        array([9., 4.])
    """
    return checked_command(arguments, inputs, read)


def umbridge(url: str, name: str = "forward", config: Mapping[str, Any] | None = None) -> Server:
    """A model behind a UM-Bridge server, in any language; with gradients, if it gives some.

    Args:
        url: of the server, as "http://localhost:4242".
        name: of the model there.
        config: what the model is told besides.
    """
    return Server(url, name, config or {})


def _check_run(run: Any) -> None:
    if not callable(run):
        raise TypeError(f"run must be a function of a vector of parameters, got {shown(run)}")


def _checked_prior(name: str, given: Any) -> Prior:
    if isinstance(given, Prior):
        return given
    if isinstance(given, Support):
        return flat(given)
    raise TypeError(
        f"{name} must have a prior, as dlrd.models.priors.normal(0, 1), or a support, got {shown(given)}"
    )


def _likelihood(data: Any, noise: Any, fn: Any) -> tuple[Likelihood, dict[str, Prior]]:
    """The likelihood that is meant, and the priors of what it alone depends on."""
    if fn is not None:
        if data is not None:
            raise ValueError("data must be given only without likelihood, which knows its own")
        return Custom(fn), {name: _checked_prior(name, each) for name, each in (noise or {}).items()}
    if data is None:
        if noise is not None:
            raise ValueError(f"noise must be given only together with data, got {shown(noise)}")
        return OwnDensity(), {}
    observed = np.array(data, float)
    if not np.isfinite(observed).all():
        raise ValueError("data must be finite, got infinite or nan ones; leave these out of the outputs, too")
    if isinstance(noise, Prior):
        noise = {NOISE: noise}
    if isinstance(noise, Mapping):
        if len(noise) != 1 or next(iter(noise.values())).support.shape != ():
            raise ValueError(f"noise must have one unknown level, got {shown(noise)}")
        return Gaussian(Misfit(observed, 1.0), next(iter(noise))), dict(noise)
    return Gaussian(Misfit(observed, _checked_noise(noise, observed)), None), {}


def _checked_noise(noise: Any, data: np.ndarray) -> np.ndarray:
    if noise is None:
        raise ValueError("noise must be given together with data, got None")
    array = np.array(noise, float)
    is_matrix = array.shape == 2 * (data.size,) and array.shape != data.shape
    if not is_matrix and array.shape not in ((), data.shape):
        raise ValueError(
            f"noise must be one number, one for each of data of shape {data.shape}, or a covariance matrix, "
            f"got an array of shape {array.shape}"
        )
    is_positive = np.linalg.eigvalsh(array).min() > 0 if is_matrix else (array > 0).all()
    if not is_positive or not np.isfinite(array).all():
        raise ValueError(f"noise must be positive and finite, got {shown(noise)}")
    return array


def _fingerprint(likelihood: Likelihood) -> str:
    """What the gradients in a log depend on, besides the program."""
    digest = hashlib.sha256(type(likelihood).__name__.encode())
    if isinstance(likelihood.misfit, Misfit):
        digest.update(likelihood.misfit.data.tobytes() + likelihood.misfit.noise.tobytes())
    return digest.hexdigest()[:16]
