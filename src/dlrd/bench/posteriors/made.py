"""Posteriors of kinds that the files lack, whose data are made with a fixed seed.

Splines, time series, sparse regression, crossed effects, maps, networks, Gaussian processes: nothing is known
of them but the model. Positive parameters are logarithms in the unconstrained vector; the one in (−1, 1) is a
log odds.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import BSpline

from dlrd.bench.posteriors.larger import (
    SCALAR,
    log_binomial,
    log_effects,
    log_noise,
    log_poisson,
    model_of_variables,
    squares_of_groups,
)
from dlrd.bench.posteriors.models import (
    LOG_TWO_PI,
    Posterior,
    PosteriorModel,
    log_half_cauchy,
    log_half_normal,
    log_normal,
    sum_of_squares,
)


def _spline(rng: np.random.Generator) -> PosteriorModel:
    """y ~ N(Bc, σ²), cubic; the coefficients are a random walk, c_k ~ N(c_{k−1}, τ²)."""
    num_rows, num_coefficients = 400, 80
    x = np.sort(rng.uniform(size=num_rows))
    knots = np.concatenate([3 * [0.0], np.linspace(0, 1, num_coefficients - 2), 3 * [1.0]])
    basis = BSpline.design_matrix(x, knots, 3).toarray()
    squares_fn = sum_of_squares(basis, np.sin(12 * x**2) + x + rng.normal(0, 0.3, num_rows))

    def log_density(coefficients: Array, log_tau: Array, log_sigma: Array) -> Float[Array, ""]:
        log_likelihood = log_noise(squares_fn(coefficients), num_rows, log_sigma)
        log_prior = log_normal(coefficients[0], 5.0) + log_effects(jnp.diff(coefficients), log_tau)
        return log_likelihood + log_prior + _log_scales(log_tau, log_sigma)

    return model_of_variables(log_density, {"coefficients": num_coefficients, "tau": SCALAR, "sigma": SCALAR})


def _state_space(rng: np.random.Generator) -> PosteriorModel:
    """y_t = level_t + σ t₄, where t₄ is Student's; level_t ~ N(level_{t−1}, τ²)."""
    num_times, freedom = 388, 4
    y = np.cumsum(rng.normal(0, 0.2, num_times)) + 0.5 * rng.standard_t(freedom, num_times)
    y = jnp.asarray(y, float)
    constant = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)

    def log_density(level: Array, log_tau: Array, log_sigma: Array) -> Float[Array, ""]:
        squares = ((y - level) * jnp.exp(-log_sigma)) ** 2
        log_likelihood = num_times * (constant - log_sigma)
        log_likelihood -= 0.5 * (freedom + 1) * jnp.sum(jnp.log1p(squares / freedom))
        log_prior = log_normal(level[0], 5.0) + log_effects(jnp.diff(level), log_tau)
        return log_likelihood + log_prior + _log_scales(log_tau, log_sigma)

    return model_of_variables(log_density, {"level": num_times, "tau": SCALAR, "sigma": SCALAR})


def _volatility(rng: np.random.Generator) -> PosteriorModel:
    """y_t ~ N(0, exp h_t), h_t ~ N(μ + φ(h_{t−1} − μ), σ²), h₁ from the stationary law, φ ~ U(−1, 1)."""
    num_times, mu, phi, sigma = 500, -1.0, 0.95, 0.25
    h = np.full(num_times, mu)
    for time in range(1, num_times):
        h[time] = mu + phi * (h[time - 1] - mu) + rng.normal(0, sigma)
    squares = jnp.asarray((rng.normal(size=num_times) * np.exp(h / 2)) ** 2, float)

    def log_density(h: Array, mu: Array, odds: Array, log_sigma: Array) -> Float[Array, ""]:
        log_likelihood = -0.5 * jnp.sum(h + squares * jnp.exp(-h) + LOG_TWO_PI)
        phi, excess = jnp.tanh(odds / 2), h - mu
        log_jacobian = jax.nn.log_sigmoid(odds) + jax.nn.log_sigmoid(-odds)
        log_first_scale = log_sigma - 0.5 * (math.log(4) + log_jacobian)  # σ² / (1 − φ²)
        log_prior = log_effects(excess[:1], log_first_scale) + log_normal(mu, 10.0)
        log_prior += log_effects(excess[1:] - phi * excess[:-1], log_sigma)
        return log_likelihood + log_prior + log_jacobian + log_half_cauchy(log_sigma, 5.0) + log_sigma

    sizes = {"h": num_times, "mu": SCALAR, "phi": SCALAR, "sigma": SCALAR}
    return model_of_variables(log_density, sizes)


def _horseshoe(rng: np.random.Generator) -> PosteriorModel:
    """β = τ λ̃ η with λ̃² = c²λ² / (c² + τ²λ²), η ~ N(0, 1); of 50 coefficients five are not zero."""
    num_rows, num_columns, slab_shape, slab_scale = 100, 50, 2.0, 8.0
    design = np.column_stack([np.ones(num_rows), rng.normal(size=(num_rows, num_columns))])
    truth = np.concatenate([[1.0, 3.0, -2.0, 1.5, 1.0, -0.5], np.zeros(num_columns - 5)])
    squares_fn = sum_of_squares(design, design @ truth + rng.normal(size=num_rows))
    slab_constant = slab_shape * math.log(slab_scale) - math.lgamma(slab_shape)

    def log_density(
        alpha: Array, eta: Array, log_lambda: Array, log_tau: Array, log_slab: Array, log_sigma: Array
    ) -> Float[Array, ""]:
        log_scale = log_tau + log_lambda
        log_scale -= 0.5 * jax.nn.softplus(2 * log_scale - log_slab)
        squares = squares_fn(jnp.concatenate([alpha[None], eta * jnp.exp(log_scale)]))
        log_prior = log_normal(alpha, 5.0) + log_normal(eta, 1.0) + _log_scales(log_sigma)
        log_prior += jnp.sum(log_half_cauchy(log_lambda, 1.0) + log_lambda)
        log_prior += log_half_cauchy(log_tau, 0.1) + log_tau
        # The slab's variance c² is inverse gamma.
        log_prior += slab_constant - slab_shape * log_slab - slab_scale * jnp.exp(-log_slab)
        return log_noise(squares, num_rows, log_sigma) + log_prior

    sizes = {"alpha": SCALAR, "eta": num_columns, "lambda": num_columns}
    return model_of_variables(log_density, {**sizes, "tau": SCALAR, "slab": SCALAR, "sigma": SCALAR})


def _crossed(rng: np.random.Generator) -> PosteriorModel:
    """log odds = μ + γx_i + a_i + b_j; most pairs (i, j) are seen once or never."""
    num_rows, num_columns = 40, 60
    x = rng.normal(size=num_rows)
    trials = rng.poisson(0.7, (num_rows, num_columns))
    a, b = rng.normal(0, 0.8, num_rows), rng.normal(0, 0.4, num_columns)
    successes = rng.binomial(trials, _sigmoid(-0.5 + (0.7 * x + a)[:, None] + b))
    x, log_likelihood = jnp.asarray(x, float), log_binomial(successes, trials)

    def log_density(
        mu: Array, gamma: Array, a: Array, b: Array, log_sigma_a: Array, log_sigma_b: Array
    ) -> Float[Array, ""]:
        log_prior = log_effects(a, log_sigma_a) + log_effects(b, log_sigma_b)
        log_prior += log_normal(jnp.stack([mu, gamma]), 2.0) + _log_scales(log_sigma_a, log_sigma_b)
        return log_likelihood((mu + gamma * x + a)[:, None] + b) + log_prior

    sizes = {"mu": SCALAR, "gamma": SCALAR, "a": num_rows, "b": num_columns}
    return model_of_variables(log_density, {**sizes, "sigma_a": SCALAR, "sigma_b": SCALAR})


def _spatial(rng: np.random.Generator) -> PosteriorModel:
    """Besag, York and Mollié on a grid: log rate = log E + μ + σ_φ φ + σ_θ θ.

    The differences of neighbours in φ are standard normal, the sum of φ is nearly zero, θ ~ N(0, 1).
    """
    shape, num_cells = (20, 25), 500
    south, east = np.meshgrid(*(np.linspace(-1, 1, num) for num in shape), indexing="ij")
    expected = rng.uniform(2, 20, shape)
    surface = 0.6 * np.sin(3 * south) * np.cos(2 * east) + rng.normal(0, 0.2, shape)
    log_likelihood = log_poisson(rng.poisson(expected * np.exp(surface)))
    log_expected = jnp.asarray(np.log(expected), float)

    def log_density(
        phi: Array, theta: Array, mu: Array, log_sigma_phi: Array, log_sigma_theta: Array
    ) -> Float[Array, ""]:
        scaled = jnp.exp(log_sigma_phi) * phi + jnp.exp(log_sigma_theta) * theta
        grid = phi.reshape(shape)
        squares = sum(jnp.sum(jnp.diff(grid, axis=axis) ** 2) for axis in (0, 1))
        log_prior = log_normal(jnp.sum(phi), 0.001 * num_cells) - 0.5 * squares + log_normal(theta, 1.0)
        log_prior += log_normal(mu, 2.0) + _log_scales(log_sigma_phi, log_sigma_theta)
        return log_likelihood(log_expected + mu + scaled.reshape(shape)) + log_prior

    sizes = {"phi": num_cells, "theta": num_cells, "mu": SCALAR}
    return model_of_variables(log_density, {**sizes, "sigma_phi": SCALAR, "sigma_theta": SCALAR})


def _network(rng: np.random.Generator) -> PosteriorModel:
    """The log odds of an edge from i to j are μ + s_i + r_j; no node has an edge to itself."""
    num_nodes = 40
    send, receive = rng.normal(0, 1.0, num_nodes), rng.normal(0, 0.6, num_nodes)
    possible = 1 - np.eye(num_nodes, dtype=int)
    edges = rng.binomial(possible, _sigmoid(-2 + send[:, None] + receive))
    log_likelihood = log_binomial(edges, possible)

    def log_density(
        mu: Array, send: Array, receive: Array, log_sigma_send: Array, log_sigma_receive: Array
    ) -> Float[Array, ""]:
        log_prior = log_effects(send, log_sigma_send) + log_effects(receive, log_sigma_receive)
        log_prior += log_normal(mu, 2.0) + _log_scales(log_sigma_send, log_sigma_receive)
        return log_likelihood(mu + send[:, None] + receive) + log_prior

    sizes = {"mu": SCALAR, "send": num_nodes, "receive": num_nodes}
    return model_of_variables(log_density, {**sizes, "sigma_send": SCALAR, "sigma_receive": SCALAR})


def _radon_slopes(rng: np.random.Generator) -> PosteriorModel:
    """y ~ N(α_j + β_j floor, σ²); counties of few rows and many, some without a second floor."""
    num_rows, num_counties = 919, 85
    shares = rng.dirichlet(np.full(num_counties, 0.7))
    # Each county has a row at least.
    drawn = rng.choice(num_counties, num_rows - num_counties, p=shares)
    county = np.concatenate([np.arange(num_counties), drawn])
    floor = rng.binomial(1, 0.17, num_rows)
    alpha, beta = rng.normal(1.5, 0.3, num_counties), rng.normal(-0.7, 0.3, num_counties)
    y = alpha[county] + beta[county] * floor + rng.normal(0, 0.7, num_rows)
    design = np.column_stack([np.ones(num_rows), floor])
    squares_fn = squares_of_groups(county, num_counties, design, y)

    def log_density(effects: Array, mu: Array, log_scales: Array, log_sigma: Array) -> Float[Array, ""]:
        effects = effects.reshape(2, num_counties)
        log_prior = log_normal(mu, 10.0) + _log_scales(*log_scales, log_sigma)
        log_prior += sum(map(log_effects, effects - mu[:, None], log_scales))
        return log_noise(squares_fn(effects), num_rows, log_sigma) + log_prior

    sizes = {"effects": 2 * num_counties, "mu": 2, "scales": 2, "sigma": SCALAR}
    return model_of_variables(log_density, sizes)


def _gp_latent(rng: np.random.Generator) -> PosteriorModel:
    """log rate = μ + f, f = Lη where LLᵀ = α² exp(−(x − x′)² / 2ρ²) + a nugget, η ~ N(0, 1)."""
    num_points = 60
    x = np.linspace(0, 10, num_points)
    log_likelihood = log_poisson(rng.poisson(np.exp(1.5 + np.sin(x) + 0.5 * np.cos(2.3 * x))))
    squared_distances = jnp.asarray((x[:, None] - x) ** 2, float)
    nugget = 1e-4  # of the variance; the least that single precision does well with

    def log_density(eta: Array, mu: Array, log_alpha: Array, log_rho: Array) -> Float[Array, ""]:
        correlations = jnp.exp(-0.5 * squared_distances * jnp.exp(-2 * log_rho))
        root = jnp.linalg.cholesky(correlations + nugget * jnp.eye(num_points))
        log_rates = mu + jnp.exp(log_alpha) * (root @ eta)
        log_prior = log_normal(eta, 1.0) + log_normal(mu, 3.0) + _log_scales(log_alpha)
        # ρ is log-normal, which keeps it off both the spacing and the width of the points.
        return log_likelihood(log_rates) + log_prior + log_normal(log_rho, 0.5)

    sizes = {"eta": num_points, "mu": SCALAR, "alpha": SCALAR, "rho": SCALAR}
    return model_of_variables(log_density, sizes)


def _log_scales(*log_values: Float[Array, ""]) -> Float[Array, ""]:
    """The log density of |N(0, 1)| at each, and the Jacobian of the logarithm."""
    return sum((log_half_normal(value, 1.0) + value for value in log_values), jnp.zeros(()))


def _sigmoid(logits: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return 1 / (1 + np.exp(-logits))


def _make(name: str, model_fn: Callable[[np.random.Generator], PosteriorModel]) -> Posterior:
    model = model_fn(np.random.default_rng(0))
    unknown = np.full(len(model.parameter_names), np.nan)
    return Posterior(name, *model, reference_mean=unknown, reference_std=unknown)


MADE: dict[str, Callable[[], Posterior]] = {
    name: functools.partial(_make, name, model_fn)
    for name, model_fn in {
        "made_spline": _spline,
        "made_state_space": _state_space,
        "made_volatility": _volatility,
        "made_horseshoe": _horseshoe,
        "made_crossed": _crossed,
        "made_spatial": _spatial,
        "made_network": _network,
        "made_radon_slopes": _radon_slopes,
        "made_gp_latent": _gp_latent,
    }.items()
}
"""From a name to what makes the posterior, with the same data each time; the moments are not numbers."""
