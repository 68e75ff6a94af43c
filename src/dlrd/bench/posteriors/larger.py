"""Six larger posteriors of posteriordb, up to a thousand dimensions, most of them hierarchical and centred.

As the nine small ones, but the references are of the unconstrained vector itself.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from dlrd.bench.posteriors.models import (
    LOG_TWO_PI,
    Posterior,
    PosteriorModel,
    indexed,
    log_half_cauchy,
    log_half_normal,
    log_normal,
    read,
    sum_of_squares,
)

SCALAR = 0
"""Stands for the size of a variable that is no vector."""


def larger_posteriors(folder: Path, names: Sequence[str] = ()) -> list[Posterior]:
    """Reads the six posteriors from a folder; other files in it do not matter.

    The variables are in the order of their names. Positive ones are logarithms in the unconstrained vector,
    those in an interval are log odds; `constrain` does nothing, since the references are of these.

    Args:
        folder: with a file `<name>.json` for each model, which has `data` and `reference_unconstrained`.
        names: of those to read; all six if not given.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"the folder of the larger posteriors must exist, got {folder}")
    unknown = [name for name in names if name not in LARGER]
    if unknown:
        raise ValueError(f"a larger posterior must be one of {', '.join(LARGER)}, got {', '.join(unknown)}")
    return [
        read(folder / f"{name}.json", LARGER[name], "reference_unconstrained") for name in names or LARGER
    ]


def model_of_variables(
    log_density_fn: Callable[..., Float[Array, ""]], sizes: Mapping[str, int]
) -> PosteriorModel:
    """A model of the concatenated variables.

    Args:
        log_density_fn: of the variables, each an argument, as they are in the unconstrained vector.
        sizes: of the variables, by name and in order; `SCALAR` for one that is no vector.
    """
    ends = list(itertools.accumulate(max(size, 1) for size in sizes.values()))

    def log_density(z: Float[Array, " dim"]) -> Float[Array, ""]:
        parts = zip(jnp.split(z, ends[:-1]), sizes.values(), strict=True)
        return log_density_fn(*(part if size else part[0] for part, size in parts))

    names = [
        full_name for name, size in sizes.items() for full_name in (indexed(name, size) if size else [name])
    ]
    return PosteriorModel(ends[-1], log_density, lambda z: z, names)


def _seeds(data: dict[str, Any]) -> PosteriorModel:
    x1, x2 = (jnp.asarray(data[name], float) for name in ("x1", "x2"))
    log_likelihood = log_binomial(data["n"], data["N"])

    def log_density(
        alpha0: Array, alpha1: Array, alpha12: Array, alpha2: Array, c: Array, log_sigma: Array
    ) -> Float[Array, ""]:
        logits = alpha0 + alpha1 * x1 + alpha2 * x2 + alpha12 * x1 * x2 + c - jnp.mean(c)
        log_prior = log_normal(jnp.stack([alpha0, alpha1, alpha12, alpha2]), 1.0) + log_effects(c, log_sigma)
        return log_likelihood(logits) + log_prior + log_half_cauchy(log_sigma, 1.0) + log_sigma

    sizes = dict.fromkeys(("alpha0", "alpha1", "alpha12", "alpha2"), SCALAR)
    return model_of_variables(log_density, {**sizes, "c": data["I"], "sigma": SCALAR})


def _glmm(data: dict[str, Any]) -> PosteriorModel:
    """The densities of the uniforms and the widths in the Jacobian cancel."""
    year, log_likelihood = jnp.asarray(data["year"], float), log_poisson(data["C"])

    def log_density(
        alpha: Array, beta1: Array, beta2: Array, beta3: Array, eps: Array, sigma: Array
    ) -> Float[Array, ""]:
        odds = jnp.stack([alpha, beta1, beta2, beta3, sigma])
        log_jacobian = jnp.sum(jax.nn.log_sigmoid(odds) + jax.nn.log_sigmoid(-odds))
        slopes = 10 * jnp.tanh(odds[1:4] / 2)  # 20 sigmoid − 10, which would cancel
        trend = 20 * jnp.tanh(alpha / 2) + year * (slopes[0] + year * (slopes[1] + year * slopes[2]))
        log_sigma = math.log(5) + jax.nn.log_sigmoid(sigma)
        return log_likelihood(trend + eps) + log_effects(eps, log_sigma) + log_jacobian

    sizes = dict.fromkeys(("alpha", "beta1", "beta2", "beta3"), SCALAR)
    return model_of_variables(log_density, {**sizes, "eps": data["n"], "sigma": SCALAR})


def _rats(data: dict[str, Any]) -> PosteriorModel:
    design = np.column_stack([np.ones(data["Npts"]), np.array(data["x"]) - data["xbar"]])
    squares_fn = squares_of_groups(np.array(data["rat"]) - 1, data["N"], design, np.array(data["y"], float))

    def log_density(
        alpha: Array,
        beta: Array,
        mu_alpha: Array,
        mu_beta: Array,
        log_sigma_alpha: Array,
        log_sigma_beta: Array,
        log_sigma_y: Array,
    ) -> Float[Array, ""]:
        log_likelihood = log_noise(squares_fn(jnp.stack([alpha, beta])), data["Npts"], log_sigma_y)
        log_prior = log_normal(jnp.stack([mu_alpha, mu_beta]), 100.0)
        log_prior += log_effects(alpha - mu_alpha, log_sigma_alpha)
        log_prior += log_effects(beta - mu_beta, log_sigma_beta)
        return log_likelihood + log_prior + log_sigma_alpha + log_sigma_beta + log_sigma_y

    last = ("mu_alpha", "mu_beta", "sigma_alpha", "sigma_beta", "sigma_y")
    sizes = {"alpha": data["N"], "beta": data["N"], **dict.fromkeys(last, SCALAR)}
    return model_of_variables(log_density, sizes)


def _radon(data: dict[str, Any]) -> PosteriorModel:
    """With the means of a county's rows, Σ (y − α − xβ)² = n (ȳ − α − x̄β)² + Σ (y − ȳ − (x − x̄) β)²."""
    y, design = np.array(data["log_radon"]), np.column_stack([data["log_uppm"], data["floor_measure"]])
    county, num_counties = np.array(data["county_idx"]) - 1, data["J"]
    counts = np.bincount(county, minlength=num_counties)
    y_means, *x_means = (
        np.bincount(county, column, num_counties) / np.maximum(counts, 1) for column in (y, *design.T)
    )
    within_fn = sum_of_squares(design - np.transpose(x_means)[county], y - y_means[county])
    counts, y_means, x_means = (jnp.asarray(array, float) for array in (counts, y_means, np.array(x_means)))

    def log_density(
        alpha: Array, beta: Array, mu_alpha: Array, log_sigma_alpha: Array, log_sigma_y: Array
    ) -> Float[Array, ""]:
        squares = within_fn(beta) + jnp.sum(counts * (y_means - alpha - beta @ x_means) ** 2)
        log_likelihood = log_noise(squares, data["N"], log_sigma_y)
        log_prior = log_effects(alpha - mu_alpha, log_sigma_alpha)
        log_prior += log_normal(mu_alpha, 10.0) + log_normal(beta, 10.0)
        log_prior += log_half_normal(log_sigma_alpha, 1.0) + log_half_normal(log_sigma_y, 1.0)
        return log_likelihood + log_prior + log_sigma_alpha + log_sigma_y

    last = dict.fromkeys(("mu_alpha", "sigma_alpha", "sigma_y"), SCALAR)
    return model_of_variables(log_density, {"alpha": num_counties, "beta": 2, **last})


def _irt(data: dict[str, Any]) -> PosteriorModel:
    """The logarithm of a log-normal variable is normal, the Jacobian included."""
    log_likelihood = log_bernoulli(data["y"])

    def log_density(
        log_a: Array,
        b: Array,
        mu_b: Array,
        log_sigma_a: Array,
        log_sigma_b: Array,
        log_sigma_theta: Array,
        theta: Array,
    ) -> Float[Array, ""]:
        log_sigmas = (log_sigma_a, log_sigma_b, log_sigma_theta)
        log_prior = sum((log_half_cauchy(value, 2.0) + value for value in log_sigmas), log_normal(mu_b, 5.0))
        log_prior += sum(map(log_effects, (log_a, b - mu_b, theta), log_sigmas))
        return log_likelihood(jnp.exp(log_a)[:, None] * (theta - b[:, None])) + log_prior

    middle = dict.fromkeys(("mu_b", "sigma_a", "sigma_b", "sigma_theta"), SCALAR)
    return model_of_variables(log_density, {"a": data["I"], "b": data["I"], **middle, "theta": data["J"]})


def _lsat(data: dict[str, Any]) -> PosteriorModel:
    num_persons = np.diff(data["culm"], prepend=0)
    # Persons last: long rows are what processors are fast with.
    log_likelihood = log_bernoulli(np.repeat(data["response"], num_persons, axis=0).T)

    def log_density(alpha: Array, log_beta: Array, theta: Array) -> Float[Array, ""]:
        logits = jnp.exp(log_beta) * theta - alpha[:, None]
        log_prior = log_normal(theta, 1.0) + log_normal(alpha, 100.0) + log_half_normal(log_beta, 100.0)
        return log_likelihood(logits) + log_prior + log_beta

    return model_of_variables(log_density, {"alpha": data["T"], "beta": SCALAR, "theta": data["N"]})


def squares_of_groups(
    group: Int[np.ndarray, " row"],
    num_groups: int,
    design: Float[np.ndarray, "row column"],
    response: Float[np.ndarray, " row"],
) -> Callable[[Float[Array, "column group"]], Float[Array, ""]]:
    """Σ ‖y − Xβ‖² over groups of rows with coefficients of their own; as `sum_of_squares`, so no gather."""
    num_columns = design.shape[1]
    roots, centers = np.zeros((num_columns, num_columns, num_groups)), np.zeros((num_columns, num_groups))
    for index in range(num_groups):
        x, y = design[group == index], response[group == index]
        root = np.linalg.qr(x, mode="r")
        roots[: len(root), :, index] = root
        centers[:, index] = np.linalg.lstsq(x, y, rcond=None)[0]
    least_squares = float(np.sum((response - np.sum(design * centers.T[group], axis=1)) ** 2))
    roots, centers = jnp.asarray(roots, float), jnp.asarray(centers, float)
    return lambda beta: least_squares + jnp.sum(jnp.sum(roots * (beta - centers), axis=1) ** 2)


def log_noise(squares: Float[Array, ""], num: int, log_scale: Float[Array, ""]) -> Float[Array, ""]:
    """The log density of `num` independent N(0, scale²), of which the sum of the squares is given."""
    return -0.5 * squares * jnp.exp(-2 * log_scale) - num * (log_scale + 0.5 * LOG_TWO_PI)


def log_effects(values: Float[Array, "..."], log_scale: Float[Array, ""]) -> Float[Array, ""]:
    """The log density of independent N(0, scale²), summed, the scale given by its logarithm."""
    return log_noise(jnp.sum(values**2), values.size, log_scale)


def log_bernoulli(outcomes: ArrayLike) -> Callable[[Float[Array, "..."]], Float[Array, ""]]:
    """The log likelihood of log odds, given zeros and ones."""
    signs = jnp.asarray(2 * np.asarray(outcomes) - 1, float)
    return lambda logits: jnp.sum(jax.nn.log_sigmoid(signs * logits))


def log_binomial(
    successes: ArrayLike, trials: ArrayLike
) -> Callable[[Float[Array, "..."]], Float[Array, ""]]:
    """The log likelihood of log odds, given how many of the trials succeeded; there may be none."""
    won, num = np.asarray(successes), np.asarray(trials)
    constant = sum(math.log(math.comb(*pair)) for pair in zip(num.flat, won.flat, strict=True))
    won, lost = jnp.asarray(won, float), jnp.asarray(num - won, float)

    def log_likelihood(logits: Float[Array, "..."]) -> Float[Array, ""]:
        return jnp.sum(won * jax.nn.log_sigmoid(logits) + lost * jax.nn.log_sigmoid(-logits)) + constant

    return log_likelihood


def log_poisson(counts: ArrayLike) -> Callable[[Float[Array, "..."]], Float[Array, ""]]:
    """The log likelihood of log rates.

    Rates are measured from those that fit perfectly: of large counts, single precision would lose much.
    """
    num = np.asarray(counts, float)
    perfect = np.maximum(num, 1)
    constant = float(
        np.sum(num * np.log(perfect) - perfect) - sum(math.lgamma(count + 1) for count in num.flat)
    )
    num, perfect, center = (jnp.asarray(array, float) for array in (num, perfect, np.log(perfect)))

    def log_likelihood(log_rates: Float[Array, "..."]) -> Float[Array, ""]:
        excess = log_rates - center
        return jnp.sum(num * excess - perfect * jnp.expm1(excess)) + constant

    return log_likelihood


LARGER: dict[str, Callable[[dict[str, Any]], PosteriorModel]] = {
    "seeds_centered": _seeds,
    "glmm_poisson": _glmm,
    "rats": _rats,
    "radon_mn-hi_centered": _radon,
    "irt_2pl": _irt,
    "lsat": _lsat,
}
"""From the name of a file to what makes a model of its data."""
