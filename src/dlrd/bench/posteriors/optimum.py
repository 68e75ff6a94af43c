"""The best normal for a log density, found without any of our own fitting: what fits are measured against.

The ELBO over a fixed set of quasi-random draws is a smooth function. A deterministic search maximises it, in
double precision and in coordinates in which the answer is about standard.
"""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float, Int
from scipy.optimize import minimize
from scipy.stats import qmc

from dlrd.families import FullRankNormal, MeanFieldNormal
from dlrd.models import LogDensity

CHUNK = 512
"""Draws at once; the intermediate results of all of them would not fit into the caches."""
TOLERANCE = 1e-6
"""Norm of the gradient at which the search ends; half its square is the loss, in nats."""
MAX_ROUNDS = 20
SMALLEST_CURVATURE = 1e-8
"""Against the draws' own scale: what is below in some direction is taken to be noise."""
NUM_SCRAMBLINGS = 8
"""Independent sets of draws behind a gap and its standard error."""

Normal = MeanFieldNormal | FullRankNormal
_Indices = tuple[Int[np.ndarray, " entry"], ...]


class Optimum(NamedTuple):
    """The best family, as well as it is known."""

    family: Normal  # half-way between two answers from independent draws
    elbo: float  # over the draws of both
    error: float  # nats that each answer loses under the other's draws; the truth is about a quarter away


class _Parameters(NamedTuple):
    loc: Float[np.ndarray, " dim"]
    root: Float[np.ndarray, "dim dim"]  # of the covariance; lower triangular, its diagonal is positive


class _Averages(NamedTuple):
    """What a set of draws says about a normal."""

    values: Float[np.ndarray, " draw"]  # log p(z)
    slope: Float[np.ndarray, " dim"]  # the average of ∇ log p(z)
    product: Float[np.ndarray, "dim dim"]  # the average of ∇ log p(z) εᵀ


class _Chart(NamedTuple):
    """Coordinates x = (δ, E) around a normal: mean m + W δ, root L E with the logarithms of E's diagonal."""

    origin: _Parameters  # m and L
    stretch: Float[np.ndarray, "dim dim"]  # W
    indices: _Indices  # of E's entries

    @property
    def is_diagonal(self) -> np.ndarray:
        return self.indices[0] == self.indices[1]

    def moved(self, x: Float[np.ndarray, " parameter"]) -> _Parameters:
        """The normal that x stands for."""
        shift, factor = self._unpacked(x)
        return _Parameters(self.origin.loc + self.stretch @ shift, self.origin.root @ factor)

    def gradient(
        self, x: Float[np.ndarray, " parameter"], averages: _Averages
    ) -> Float[np.ndarray, " parameter"]:
        """That of the ELBO, given the averages at x."""
        factor = self._unpacked(x)[1]
        entries = (self.origin.root.T @ averages.product)[self.indices]
        entries = np.where(self.is_diagonal, entries * factor[self.indices] + 1, entries)
        return np.concatenate([self.stretch.T @ averages.slope, entries])

    def log_det_change(self, x: Float[np.ndarray, " parameter"]) -> float:
        return np.sum(x[len(self.stretch) :], where=self.is_diagonal)

    def _unpacked(
        self, x: Float[np.ndarray, " parameter"]
    ) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
        dim = len(self.stretch)
        factor = np.zeros((dim, dim))
        factor[self.indices] = x[dim:]
        np.fill_diagonal(factor, np.exp(np.diagonal(factor)))
        return x[:dim], factor


def optimum(log_density: LogDensity, start: Normal, num_points: int = 2**14) -> Optimum:
    r"""The mean-field or full-rank normal with the largest ELBO, with an estimate of its error.

    The average over fixed draws $z_i = m + L ε_i$ stands for the expectation in
    $E[\log p(z)] + \log |L|$. The ε are Sobol points and their mirror images, stretched so that their second
    moments are exactly those of N(0, I); therefore a normal density is found exactly. An eighth as many draws
    bring the search near the answer first, where these are not too few for the dimension.

    Args:
        log_density: unnormalised, built in double precision.
        start: the kind of family, and where to begin; `laplace` gives a good place.
        num_points: a power of two, at least four times the dimension, for each of two independent answers.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> with jax.enable_x64(True):
        ...     start = MeanFieldNormal.standard(2)
        ...     best = optimum(lambda z: -0.5 * jnp.sum(z**2 / jnp.array([1.0, 4.0])), start, 2**8)
        >>> print(best.family.std.round(5))
        [1. 2.]
    """
    dim, indices, near = len(start.loc), _indices(start), _parameters(start)
    if num_points // 8 >= 4 * dim:
        near = _maximize(log_density, near, indices, _noise(dim, num_points // 8, seed=0))
    noises = [_noise(dim, num_points, seed) for seed in (1, 2)]
    first, second = (_maximize(log_density, near, indices, noise) for noise in noises)
    losses = [
        _elbo(log_density, best, noise) - _elbo(log_density, other, noise)
        for best, other, noise in ((first, second, noises[0]), (second, first, noises[1]))
    ]
    middle = _Parameters((first.loc + second.loc) / 2, (first.root + second.root) / 2)
    elbo = np.mean([_elbo(log_density, middle, noise) for noise in noises])
    return Optimum(_family(middle, start), float(elbo), float(np.mean(losses)))


def elbo_gap(
    log_density: LogDensity, family: Normal, optimum_family: Normal, num_points: int = 2**15
) -> tuple[float, float]:
    r"""By how many nats the ELBO of a family is below that of the best one, and the standard error of that.

    Both get the same noise, so that what they have in common cancels. Where the best can be moved to
    `family`, as one of its own kind, its optimality gives the mean of the difference's first-order term,

    $$E[∇ \log p(z) · (ΔL ε + Δm)] = -\sum_i ΔL_{ii} / L_{ii}.$$

    Where it helps, that term is exchanged for its mean: near the optimum the noise that remains shrinks like
    the gap. By how much `optimum_family` itself is below the very best is then added to the gap.

    Args:
        log_density: unnormalised, built in double precision.
        family: what was found.
        optimum_family: the best of its kind.
        num_points: of all sets of draws together.
    """
    best, given = _parameters(optimum_family), _parameters(family)
    change = _Parameters(best.loc - given.loc, best.root - given.root)
    log_ratio = np.log(np.diagonal(best.root)) - np.log(np.diagonal(given.root))
    # At the optimum E[∇ log p εᵀ] = −L⁻ᵀ on and below the diagonal.
    expected = -np.sum(np.diagonal(change.root) / np.diagonal(best.root))
    gaps, steadier_gaps = [], []
    for seed in range(NUM_SCRAMBLINGS):
        noise = _noise(len(best.loc), num_points // NUM_SCRAMBLINGS, 100 + seed)
        at_best, at_given = (_averages(log_density, parameters, noise) for parameters in (best, given))
        first_order = at_best.slope @ change.loc + np.sum(at_best.product * change.root)
        gaps.append(np.mean(at_best.values - at_given.values) + np.sum(log_ratio))
        steadier_gaps.append(gaps[-1] - first_order + expected)
    is_among = isinstance(family, MeanFieldNormal) or isinstance(optimum_family, FullRankNormal)
    if is_among and np.std(steadier_gaps) < np.std(gaps):
        gaps = steadier_gaps
    return float(np.mean(gaps)), float(np.std(gaps, ddof=1) / np.sqrt(NUM_SCRAMBLINGS))


def laplace(log_density: LogDensity, dim: int) -> FullRankNormal:
    """The normal at the mode of a log density, with its curvature there; Newton's method from 0.

    Args:
        log_density: twice differentiable by jax.
        dim: of its argument.
    """
    value_and_slope = jax.jit(jax.value_and_grad(lambda z: -log_density(z)))
    curvature = jax.jit(jax.hessian(lambda z: -log_density(z)))
    found = minimize(
        lambda z: tuple(np.asarray(each) for each in value_and_slope(z)),
        np.zeros(dim),
        jac=True,
        hess=lambda z: np.asarray(curvature(z)),
        method="trust-exact",
        options={"maxiter": 10_000},
    )
    # The search ends where the slope is small in units of z, whatever those are: one step more, then.
    mode = found.x - np.linalg.solve(curvature(found.x), value_and_slope(found.x)[1])
    return FullRankNormal(mode, _inverse_root(np.asarray(curvature(mode))))


def factorized(family: FullRankNormal) -> MeanFieldNormal:
    """The best mean-field normal for a density that is itself normal: their precisions have one diagonal."""
    inverse = scipy.linalg.solve_triangular(family.scale_tril, np.eye(len(family.loc)), lower=True)
    return MeanFieldNormal(family.loc, -0.5 * np.log(np.sum(inverse**2, axis=0)))


def _maximize(
    log_density: LogDensity,
    parameters: _Parameters,
    indices: _Indices,
    noise: Float[np.ndarray, "draw dim"],
) -> _Parameters:
    """Rounds of a quasi-Newton search, each in coordinates that suit where the last one ended."""
    for _ in range(MAX_ROUNDS):
        start = _averages(log_density, parameters, noise)
        chart = _chart(parameters, start, indices)
        origin = np.zeros(len(parameters.loc) + len(indices[0]))
        if np.linalg.norm(chart.gradient(origin, start)) < TOLERANCE:
            return parameters

        def loss(
            x: Float[np.ndarray, " parameter"], chart: _Chart = chart, start: _Averages = start
        ) -> tuple[float, Float[np.ndarray, " parameter"]]:
            now = _averages(log_density, chart.moved(x), noise)
            # Draw by draw, since small changes of a large average are lost to rounding.
            elbo = float(np.mean(now.values - start.values)) + chart.log_det_change(x)
            gradient = chart.gradient(x, now)
            is_finite = np.isfinite(elbo) and np.all(np.isfinite(gradient))
            return (-elbo, -gradient) if is_finite else (1e100, np.zeros_like(x))

        options = {"maxcor": 50, "maxiter": 500, "gtol": TOLERANCE / len(origin) ** 0.5, "ftol": 0}
        parameters = chart.moved(minimize(loss, origin, jac=True, method="L-BFGS-B", options=options).x)
    raise RuntimeError(f"the search must end within {MAX_ROUNDS} rounds, but has not")


def _chart(parameters: _Parameters, averages: _Averages, indices: _Indices) -> _Chart:
    """W is a root of the inverse of −E[∇² log p], which by Stein's identity is −E[∇ log p εᵀ] L⁻¹."""
    curvature = -parameters.root.T @ averages.product  # times L on both sides
    eigenvalues, eigenvectors = np.linalg.eigh((curvature + curvature.T) / 2)
    sizes = np.maximum(np.abs(eigenvalues), SMALLEST_CURVATURE)
    return _Chart(parameters, parameters.root @ (eigenvectors / np.sqrt(sizes)), indices)


def _elbo(log_density: LogDensity, parameters: _Parameters, noise: Float[np.ndarray, "draw dim"]) -> float:
    values = _averages(log_density, parameters, noise).values
    entropy = np.sum(np.log(np.diagonal(parameters.root))) + 0.5 * len(parameters.loc) * np.log(
        2 * np.pi * np.e
    )
    return float(np.mean(values) + entropy)


def _averages(
    log_density: LogDensity, parameters: _Parameters, noise: Float[np.ndarray, "draw dim"]
) -> _Averages:
    arrays = map(jnp.asarray, (*parameters, noise))
    return _Averages(*map(np.asarray, _compiled_averages(log_density, *arrays)))


@eqx.filter_jit
def _compiled_averages(
    log_density: LogDensity,
    loc: Float[Array, " dim"],
    root: Float[Array, "dim dim"],
    noise: Float[Array, "draw dim"],
) -> tuple[Float[Array, " draw"], Float[Array, " dim"], Float[Array, "dim dim"]]:
    draws = loc + noise @ root.T
    values, slopes = jax.lax.map(jax.value_and_grad(log_density), draws, batch_size=CHUNK)
    return values, jnp.mean(slopes, axis=0), slopes.T @ noise / len(noise)


@functools.lru_cache(maxsize=32)
def _noise(dim: int, num_points: int, seed: int) -> Float[np.ndarray, "num_points dim"]:
    """Scrambled Sobol points as standard normals with their mirror images, whose second moments are exact."""
    half = qmc.MultivariateNormalQMC(np.zeros(dim), rng=np.random.default_rng(seed)).random(num_points // 2)
    moments = np.linalg.cholesky(half.T @ half / len(half))
    half = scipy.linalg.solve_triangular(moments, half.T, lower=True).T
    return np.concatenate([half, -half])


def _parameters(family: Normal) -> _Parameters:
    """The mean and the one root whose diagonal is positive; checks that jax computes in double precision."""
    if jnp.zeros(()).dtype != jnp.float64:
        raise ValueError("the search must be in double precision; run it under jax.enable_x64(True)")
    root = np.asarray(family.scale_tril, float)
    return _Parameters(np.asarray(family.loc, float), root * np.sign(np.diagonal(root)))


def _indices(family: Normal) -> _Indices:
    """Which entries of the covariance's root a family has."""
    dim = len(family.loc)
    return np.diag_indices(dim) if isinstance(family, MeanFieldNormal) else np.tril_indices(dim)


def _family(parameters: _Parameters, kind: Normal) -> Normal:
    if isinstance(kind, MeanFieldNormal):
        return MeanFieldNormal(parameters.loc, np.log(np.diagonal(parameters.root)))
    return FullRankNormal(*parameters)


def _inverse_root(precision: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """The lower triangular root of the inverse, by the reversed order's root: no inverse is formed."""
    reversed_root = np.linalg.cholesky(precision[::-1, ::-1])[::-1, ::-1]
    return scipy.linalg.solve_triangular(reversed_root, np.eye(len(precision)), lower=False).T
