"""Section 3.3: the best full-rank normal for the field calibration, without the paper's 10⁶ noisy steps."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.stats import qmc

from dlrd.divergence import jeffreys
from dlrd.families import FullRankNormal
from dlrd.paper.problems.field import NOISE_STD, Field, field

NUM_MODEL_DRAWS = 2048
"""Draws of the model of the equations that is solved again and again."""
DAMPING = 0.7
"""Share of a fixed-point step that is taken; whole steps oscillate."""
TOLERANCE = 1e-5
"""Norm of the residuals, in units in which the answer is N(0, I), at which the search ends."""
MAX_ITERATIONS = 100


class Reference(NamedTuple):
    """The best family, as well as it is known."""

    family: FullRankNormal  # half-way between two answers from independent draws
    error: float  # Jeffreys divergence of the two; that of their middle from the truth is about a quarter
    num_draws: int  # behind each of the two


class _Parameters(NamedTuple):
    mean: Float[np.ndarray, " dim"]
    precision: Float[np.ndarray, "dim dim"]

    @property
    def cholesky(self) -> Float[np.ndarray, "dim dim"]:
        return np.linalg.cholesky(np.linalg.inv(self.precision))

    @property
    def family(self) -> FullRankNormal:
        return FullRankNormal(self.mean, self.cholesky)


class _Residuals(NamedTuple):
    """What is zero at the optimum: E[∇ log p] and E[∇² log p] + precision."""

    slope: Float[np.ndarray, " dim"]
    curvature: Float[np.ndarray, "dim dim"]


def field_reference(num_draws: int = 2**17) -> Reference:
    r"""The best full-rank normal for `dlrd.paper.problems.field`, with an estimate of its error.

    $N(m, S)$ is optimal where $E[∇ \log p(z)] = 0$ and $E[∇² \log p(z)] = -S^{-1}$. Averages over a
    fixed set of quasi-random draws stand for the expectations; by Stein's identity they need the gradient of
    log p alone. From the Laplace approximation on, the equations are solved with few draws, then corrected
    for the difference that many draws make there.

    Args:
        num_draws: a power of two, for each of two independent answers.
    """
    problem = field()
    model_noise = _noise(problem, NUM_MODEL_DRAWS, seed=0)
    start = _solve(problem, _laplace(problem), model_noise)
    first, second = (
        _refine(problem, start, model_noise, _noise(problem, num_draws, seed)) for seed in (1, 2)
    )
    middle = _Parameters((first.mean + second.mean) / 2, (first.precision + second.precision) / 2)
    return Reference(middle.family, float(jeffreys(first.family, second.family)), num_draws)


def _laplace(problem: Field) -> _Parameters:
    """The mode of the posterior and the curvature there, by differences of the gradient."""
    dim = len(problem.truth)

    def loss_and_gradient(z: Float[np.ndarray, " dim"]) -> tuple[float, Float[np.ndarray, " dim"]]:
        values, gradients = negative_log_density(problem, z[None])
        return values[0], gradients[0]

    mode = minimize(loss_and_gradient, np.zeros(dim), jac=True, method="L-BFGS-B").x
    steps = 1e-4 * np.eye(dim)
    forward, backward = (negative_log_density(problem, mode + sign * steps)[1] for sign in (1, -1))
    differences = (forward - backward) / 2e-4
    return _Parameters(mode, (differences + differences.T) / 2)


def _refine(
    problem: Field,
    parameters: _Parameters,
    model_noise: Float[np.ndarray, "few dim"],
    noise: Float[np.ndarray, "many dim"],
) -> _Parameters:
    """Solves the equations of many draws, given a solution with few.

    The few draws' equations stand in for the Jacobian; a round leaves a thirtieth of the error.
    """
    for _ in range(2):
        few, many = (_residuals(problem, parameters, draws) for draws in (model_noise, noise))
        correction = _Residuals(many.slope - few.slope, many.curvature - few.curvature)
        parameters = _solve(problem, parameters, model_noise, correction)
    return parameters


def _solve(
    problem: Field,
    parameters: _Parameters,
    noise: Float[np.ndarray, "draw dim"],
    correction: _Residuals | None = None,
) -> _Parameters:
    """Damped natural-gradient steps to where the residuals and their correction cancel."""
    for _ in range(MAX_ITERATIONS):
        residuals = _residuals(problem, parameters, noise)
        slope, curvature = residuals if correction is None else map(np.add, residuals, correction)
        precision = parameters.precision - DAMPING * curvature
        mean = parameters.mean + DAMPING * np.linalg.solve(precision, slope)
        cholesky = parameters.cholesky
        distance = np.linalg.norm(np.column_stack([cholesky.T @ slope, cholesky.T @ curvature @ cholesky]))
        parameters = _Parameters(mean, precision)
        if distance < TOLERANCE:
            return parameters
    raise RuntimeError(f"the search must end within {MAX_ITERATIONS} steps, but has not")


def _residuals(problem: Field, parameters: _Parameters, noise: Float[np.ndarray, "draw dim"]) -> _Residuals:
    """E[h] and E[h (z − m)ᵀ] S⁻¹, h = ∇ log p(z) + S⁻¹ (z − m), without noise if the posterior is normal."""
    centered = noise @ parameters.cholesky.T
    total, product = np.zeros(noise.shape[1]), np.zeros(2 * noise.shape[1:])
    for block in np.array_split(centered, -(-len(centered) // 4096)):
        forces = block @ parameters.precision - negative_log_density(problem, parameters.mean + block)[1]
        total += forces.sum(axis=0)
        product += forces.T @ block
    curvature = product / len(noise) @ parameters.precision
    return _Residuals(total / len(noise), (curvature + curvature.T) / 2)


def _noise(problem: Field, num_draws: int, seed: int) -> Float[np.ndarray, "draw dim"]:
    """Scrambled Sobol points as standard normals, each with its mirror image."""
    dim = len(problem.truth)
    half = qmc.MultivariateNormalQMC(np.zeros(dim), rng=np.random.default_rng(seed)).random(num_draws // 2)
    return np.concatenate([half, -half])


def negative_log_density(
    problem: Field, draws: Float[np.ndarray, "draw dim"]
) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, "draw dim"]]:
    """−log p at each draw, up to a constant, and its gradient; in double precision whatever jax is set to."""
    from dlrd.paper.problems import finite_elements

    diffusivity = np.exp(draws @ problem.modes.T)
    misfits, gradients = finite_elements.misfit_and_gradient(diffusivity, problem.observed)
    values = misfits / NOISE_STD**2 + 0.5 * np.sum(draws**2, axis=1)
    return values, (gradients * diffusivity) @ problem.modes / NOISE_STD**2 + draws
