"""Nine posteriors of posteriordb as log densities of unconstrained vectors, beside their reference results.

The data and the references are files that the user has; the models are written down here.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dlrd.models import LogDensity

LOG_TWO_PI = math.log(2 * math.pi)


class Posterior(NamedTuple):
    """A posterior whose means and standard deviations are known from long runs of MCMC."""

    name: str  # of its file, without the ending
    dim: int  # of the unconstrained vector
    log_density: LogDensity  # of the unconstrained vector: log likelihood + log prior + log Jacobian
    constrain: Callable[[Float[Array, " dim"]], Float[Array, " parameter"]]  # to the named parameters
    parameter_names: list[str]
    reference_mean: Float[np.ndarray, " parameter"]
    reference_std: Float[np.ndarray, " parameter"]


class PosteriorModel(NamedTuple):
    """What the data of one file make of its model."""

    dim: int
    log_density: LogDensity
    constrain: Callable[[Float[Array, " dim"]], Float[Array, " parameter"]]
    parameter_names: list[str]


Rows = tuple[Float[np.ndarray, "row column"], Float[np.ndarray, " row"]]
"""The design and the response of a regression."""


def posteriors(folder: Path, names: Sequence[str] = ()) -> list[Posterior]:
    """Reads the nine posteriors from a folder; other files in it do not matter.

    Positive parameters are logarithms in the unconstrained vector, those in an interval are log odds; all
    others are as they are. Where no prior is named it is flat. Arrays have the default float type.

    Args:
        folder: with a file `<name>.json` for each model, which has `data` and `reference`.
        names: of those to read; all nine if not given.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"the folder of the posteriors must exist, got {folder}")
    return [read(folder / f"{name}.json", MODELS[name]) for name in names or MODELS]


def read(
    path: Path, model_fn: Callable[[dict[str, Any]], PosteriorModel], key: str = "reference"
) -> Posterior:
    """Reads a file; under `key` it has the moments of each parameter, lists of them where it is a vector."""
    if not path.is_file():
        raise FileNotFoundError(
            f"the folder of the posteriors must have the file {path.name}, {path} is none"
        )
    content = json.loads(path.read_text(encoding="utf-8"))
    model, reference = model_fn(content["data"]), content[key]
    names = [
        full_name
        for name, entry in reference.items()
        for full_name in (indexed(name, len(entry["mean"])) if isinstance(entry["mean"], list) else [name])
    ]
    if names != model.parameter_names:
        raise ValueError(
            f"the reference in {path.name} must be of {', '.join(model.parameter_names)}, "
            f"got {', '.join(names)}"
        )
    mean, std = (np.hstack([entry[moment] for entry in reference.values()]) for moment in ("mean", "sd"))
    return Posterior(path.stem, *model, reference_mean=mean, reference_std=std)


def _kidscore(data: dict[str, Any]) -> Rows:
    return np.column_stack([np.ones(data["N"]), data["mom_hs"], data["mom_iq"]]), np.array(data["kid_score"])


def _blr(data: dict[str, Any]) -> Rows:
    return np.array(data["X"]), np.array(data["y"])


def _nes(data: dict[str, Any]) -> Rows:
    ages = [np.equal(data["age_discrete"], age) for age in (2, 3, 4)]
    first, last = (
        [data[name] for name in names] for names in (("real_ideo", "race_adj"), ("educ1", "gender", "income"))
    )
    return np.column_stack([np.ones(data["N"]), *first, *ages, *last]), np.array(data["partyid7"])


def _logearn(data: dict[str, Any]) -> Rows:
    height, male = np.array(data["height"]), np.array(data["male"])
    return np.column_stack([np.ones(data["N"]), height, male, height * male]), np.log(data["earn"])


def _logmesquite(data: dict[str, Any]) -> Rows:
    wide, narrow, canopy, total = (
        np.log(data[name]) for name in ("diam1", "diam2", "canopy_height", "total_height")
    )
    area = wide + narrow
    columns = [np.ones(data["N"]), area + canopy, area, wide - narrow, total, data["group"]]
    return np.column_stack(columns), np.log(data["weight"])


def _lags(data: dict[str, Any]) -> Rows:
    order, y = data["K"], np.array(data["y"])
    lags = [y[order - lag : len(y) - lag] for lag in range(1, order + 1)]
    return np.column_stack([np.ones(len(y) - order), *lags]), y[order:]


def _regression_of(
    rows_fn: Callable[[dict[str, Any]], Rows],
    log_prior: Callable[[Array, Array], Float[Array, ""]] = lambda beta, log_sigma: jnp.zeros(()),
) -> Callable[[dict[str, Any]], PosteriorModel]:
    return lambda data: _regression(*rows_fn(data), log_prior)


def _autoregression(data: dict[str, Any]) -> PosteriorModel:
    def log_prior(coefficients: Array, log_sigma: Array) -> Float[Array, ""]:
        return log_normal(coefficients, 10.0) + log_half_cauchy(log_sigma, 2.5)

    model = _regression(*_lags(data), log_prior)
    return model._replace(parameter_names=["alpha", *indexed("beta", data["K"]), "sigma"])


def _regression(
    design: Float[np.ndarray, "row column"],
    response: Float[np.ndarray, " row"],
    log_prior: Callable[[Array, Array], Float[Array, ""]],
) -> PosteriorModel:
    """y ~ N(Xβ, σ²) in (β, log σ); the prior is of (β, σ) and gets log σ."""
    num_rows, num_columns = design.shape
    squares_fn = sum_of_squares(design, response)

    def log_density(z: Float[Array, " dim"]) -> Float[Array, ""]:
        beta, log_sigma = z[:-1], z[-1]
        squares = squares_fn(beta)
        log_likelihood = -0.5 * squares * jnp.exp(-2 * log_sigma) - num_rows * (log_sigma + 0.5 * LOG_TWO_PI)
        return log_likelihood + log_prior(beta, log_sigma) + log_sigma

    def constrain(z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return jnp.append(z[:-1], jnp.exp(z[-1]))

    return PosteriorModel(num_columns + 1, log_density, constrain, [*indexed("beta", num_columns), "sigma"])


def sum_of_squares(
    design: Float[np.ndarray, "row column"], response: Float[np.ndarray, " row"]
) -> Callable[[Float[Array, " column"]], Float[Array, ""]]:
    """‖y − Xβ‖² as a function of β.

    With the least-squares solution b and X = QR, ‖y − Xβ‖² = ‖y − Xb‖² + ‖R (β − b)‖². It costs a small
    product, and single precision loses nothing to cancellation however collinear X is.
    """
    solution = np.linalg.lstsq(design, response, rcond=None)[0]
    root, center = (jnp.asarray(array, float) for array in (np.linalg.qr(design, mode="r"), solution))
    least_squares = float(np.sum((response - design @ solution) ** 2))
    return lambda beta: least_squares + jnp.sum((root @ (beta - center)) ** 2)


def _eight_schools(data: dict[str, Any]) -> PosteriorModel:
    """θ = μ + τη; the unconstrained vector is (η, μ, log τ)."""
    y, sigma = (jnp.asarray(data[name], float) for name in ("y", "sigma"))
    log_normalizer = float(np.sum(np.log(data["sigma"])) + 0.5 * data["J"] * LOG_TWO_PI)

    def log_density(z: Float[Array, " dim"]) -> Float[Array, ""]:
        eta, mu, log_tau = z[:-2], z[-2], z[-1]
        theta = mu + jnp.exp(log_tau) * eta
        log_likelihood = -0.5 * jnp.sum(((y - theta) / sigma) ** 2) - log_normalizer
        log_prior = log_normal(eta, 1.0) + log_normal(mu, 5.0) + log_half_cauchy(log_tau, 5.0)
        return log_likelihood + log_prior + log_tau

    def constrain(z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        mu, tau = z[-2], jnp.exp(z[-1])
        return jnp.concatenate([mu + tau * z[:-2], jnp.stack([mu, tau])])

    return PosteriorModel(data["J"] + 2, log_density, constrain, [*indexed("theta", data["J"]), "mu", "tau"])


def _garch(data: dict[str, Any]) -> PosteriorModel:
    """(μ, log α₀, log odds of α₁, log odds of β₁ / (1 − α₁))."""
    y = jnp.asarray(data["y"], float)
    first_variance = jnp.asarray([data["sigma1"] ** 2], float)

    def log_density(z: Float[Array, " 4"]) -> Float[Array, ""]:
        mu, alpha0, alpha1, beta1 = constrain(z)
        squares = (y - mu) ** 2
        inputs = jnp.concatenate([first_variance, alpha0 + alpha1 * squares[:-1]])

        def advance(variance: Array, given: Array) -> tuple[Array, Array]:
            following = given + beta1 * variance
            return following, following

        _, variances = jax.lax.scan(advance, jnp.zeros_like(beta1), inputs)
        log_likelihood = -0.5 * jnp.sum(squares / variances + jnp.log(variances)) - 0.5 * len(y) * LOG_TWO_PI
        log_share, log_rest = jax.nn.log_sigmoid(z[2:]), jax.nn.log_sigmoid(-z[2:])
        return log_likelihood + z[1] + jnp.sum(log_share + log_rest) + log_rest[0]

    def constrain(z: Float[Array, " 4"]) -> Float[Array, " 4"]:
        alpha1 = jax.nn.sigmoid(z[2])
        return jnp.stack([z[0], jnp.exp(z[1]), alpha1, jax.nn.sigmoid(-z[2]) * jax.nn.sigmoid(z[3])])

    return PosteriorModel(4, log_density, constrain, ["mu", "alpha0", "alpha1", "beta1"])


def _gaussian_process(data: dict[str, Any]) -> PosteriorModel:
    """(log ρ, log α, log σ)."""
    x, y = (jnp.asarray(data[name], float) for name in ("x", "y"))
    squared_distances = (x[:, None] - x) ** 2
    log_gamma = 25 * math.log(4) - math.lgamma(25)

    def log_density(z: Float[Array, " 3"]) -> Float[Array, ""]:
        log_rho, log_alpha, log_sigma = z
        correlations = jnp.exp(-0.5 * squared_distances * jnp.exp(-2 * log_rho))
        covariance = jnp.exp(2 * log_alpha) * correlations + jnp.exp(log_sigma) * jnp.eye(len(x))
        root = jnp.linalg.cholesky(covariance)
        whitened = jax.scipy.linalg.solve_triangular(root, y, lower=True)
        log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(root)))
        log_likelihood = -0.5 * (jnp.sum(whitened**2) + log_det + len(x) * LOG_TWO_PI)
        log_prior_rho = log_gamma + 24 * log_rho - 4 * jnp.exp(log_rho)
        log_prior = log_prior_rho + log_half_normal(log_alpha, 2.0) + log_half_normal(log_sigma, 1.0)
        return log_likelihood + log_prior + jnp.sum(z)

    return PosteriorModel(3, log_density, jnp.exp, ["rho", "alpha", "sigma"])


def indexed(name: str, num: int) -> list[str]:
    return [f"{name}[{index}]" for index in range(1, num + 1)]


def log_normal(values: Float[Array, "..."], scale: float) -> Float[Array, ""]:
    """The log density of independent N(0, scale²), summed."""
    constant = values.size * (0.5 * LOG_TWO_PI + math.log(scale))
    return -0.5 * jnp.sum((values / scale) ** 2) - constant


def log_half_normal(log_value: Float[Array, ""], scale: float) -> Float[Array, ""]:
    """The log density of |N(0, scale²)| at a positive value that is given by its logarithm."""
    constant = math.log(2) - 0.5 * LOG_TWO_PI - math.log(scale)
    return constant - 0.5 * jnp.exp(2 * (log_value - math.log(scale)))


def log_half_cauchy(log_value: Float[Array, ""], scale: float) -> Float[Array, ""]:
    """The log density of |Cauchy(0, scale)| at a positive value that is given by its logarithm."""
    return math.log(2 / (math.pi * scale)) - jax.nn.softplus(2 * (log_value - math.log(scale)))


ROWS: dict[str, Callable[[dict[str, Any]], Rows]] = {
    "kidiq-kidscore_momhsiq": _kidscore,
    "sblrc-blr": _blr,
    "nes1996-nes": _nes,
    "arK-arK": _lags,
    "earnings-logearn_interaction": _logearn,
    "mesquite-logmesquite_logvash": _logmesquite,
}
"""From the name of a regression to what makes its rows of the data."""
MODELS: dict[str, Callable[[dict[str, Any]], PosteriorModel]] = {
    "kidiq-kidscore_momhsiq": _regression_of(_kidscore, lambda _, log_sigma: log_half_cauchy(log_sigma, 2.5)),
    "sblrc-blr": _regression_of(
        _blr, lambda beta, log_sigma: log_normal(beta, 10.0) + log_half_normal(log_sigma, 10.0)
    ),
    "nes1996-nes": _regression_of(_nes),
    "eight_schools-eight_schools_noncentered": _eight_schools,
    "garch-garch11": _garch,
    "gp_pois_regr-gp_regr": _gaussian_process,
    "arK-arK": _autoregression,
    "earnings-logearn_interaction": _regression_of(_logearn),
    "mesquite-logmesquite_logvash": _regression_of(_logmesquite),
}
"""From the name of a file to what makes a model of its data."""
