"""Section 3.2: the best full-rank normal for the logistic regression, exactly and as the paper finds it."""

from typing import cast

import numpy as np
import optax
from jaxtyping import Float
from scipy.special import expit

from dlrd.families import FullRankNormal
from dlrd.fitting import fit_many
from dlrd.paper.problems.logistic import PRIOR_VARIANCE, logistic, signed_design
from dlrd.rates import stepwise_decay

SPACING = 0.5
"""Distance of the quadrature's nodes in log odds."""
TOLERANCE = 1e-12
"""Newton decrement, about the norm of the gradient where the answer is N(0, I), at which the search ends."""
MAX_ITERATIONS = 50


def logistic_reference() -> FullRankNormal:
    r"""The best full-rank normal for `dlrd.paper.problems.logistic`, to twelve digits or so.

    The likelihood of a patient with signed features x depends on $t = x^\top z$ alone, which is
    $N(x^\top m, x^\top L L^\top x)$ under the family, so one-dimensional quadrature gives the ELBO and its
    derivatives. It is concave in (m, L): Newton's method finds the maximum, where

    $$\sum_x x \, E[σ(-t)] = m/100, \qquad (L L^\top)^{-1} = I/100 + \sum_x x x^\top E[σ'(t)].$$

    The paper takes 10⁷ noisy steps instead, `stochastic_logistic_reference`.
    """
    rows = signed_design()
    mean, cholesky = np.zeros(rows.shape[1]), np.eye(rows.shape[1])
    for _ in range(MAX_ITERATIONS):
        gradient, negative_hessian = _derivatives(rows, mean, cholesky)
        step = np.linalg.solve(negative_hessian, gradient)
        if np.sqrt(gradient @ step) < TOLERANCE:
            return FullRankNormal(mean, cholesky)
        mean, cholesky = _ascend(rows, mean, cholesky, step)
    raise RuntimeError(f"Newton's method must end within {MAX_ITERATIONS} steps, but has not")


def _ascend(
    rows: Float[np.ndarray, "row dim"],
    mean: Float[np.ndarray, " dim"],
    cholesky: Float[np.ndarray, "dim dim"],
    step: Float[np.ndarray, " parameter"],
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
    """The step, halved until it does not lower the ELBO."""
    dim = len(mean)
    change = np.zeros((dim, dim))
    change[np.tril_indices(dim)] = step[dim:]
    value = _elbo(rows, mean, cholesky)
    for size in 0.5 ** np.arange(30):
        trial = mean + size * cholesky @ step[:dim], cholesky + size * cholesky @ change
        if np.all(np.diagonal(trial[1]) > 0) and _elbo(rows, *trial) > value - 1e-9:  # its rounding
            return trial
    return mean, cholesky


def elbo(family: FullRankNormal) -> float:
    """The evidence lower bound of a full-rank normal for the logistic regression, by quadrature."""
    return _elbo(signed_design(), np.asarray(family.mean), np.asarray(family.scale_tril))


def _elbo(
    rows: Float[np.ndarray, "row dim"],
    mean: Float[np.ndarray, " dim"],
    cholesky: Float[np.ndarray, "dim dim"],
) -> float:
    dim = len(mean)
    log_odds, weights = _nodes(rows, mean, cholesky)
    log_likelihood = -np.sum(np.logaddexp(0, -log_odds) @ weights)
    squares = np.sum(mean**2) + np.sum(cholesky**2)
    log_prior = -0.5 * squares / PRIOR_VARIANCE - 0.5 * dim * np.log(2 * np.pi * PRIOR_VARIANCE)
    entropy = 0.5 * dim * (1 + np.log(2 * np.pi)) + np.sum(np.log(np.abs(np.diagonal(cholesky))))
    return float(log_likelihood + log_prior + entropy)


def _derivatives(
    rows: Float[np.ndarray, "row dim"],
    mean: Float[np.ndarray, " dim"],
    cholesky: Float[np.ndarray, "dim dim"],
) -> tuple[Float[np.ndarray, " parameter"], Float[np.ndarray, "parameter parameter"]]:
    """Gradient and negative Hessian of the ELBO at (m + L δ, L (I + D)) in δ and D's lower triangle, at 0.

    They need the first four derivatives of log σ, in expectation; those in the variance are halves of second
    derivatives in the mean.
    """
    log_odds, weights = _nodes(rows, mean, cholesky)
    missed = expit(-log_odds)
    product = missed * (1 - missed)
    first, minus_second = missed @ weights, product @ weights
    third, fourth = (product * (1 - 2 * missed)) @ weights, (product * (6 * product - 1)) @ weights

    identity = np.eye(len(mean))
    i, j = np.tril_indices(len(mean))
    white = rows @ cholesky
    pairs = white[:, i] * white[:, j]
    curvature = white.T @ (minus_second[:, None] * white) + cholesky.T @ cholesky / PRIOR_VARIANCE
    mixed = -white.T @ (third[:, None] * pairs)
    of_scale = -pairs.T @ (fourth[:, None] * pairs) + curvature[np.ix_(i, i)] * identity[np.ix_(j, j)]
    gradient = white.T @ first - cholesky.T @ mean / PRIOR_VARIANCE
    return (
        np.concatenate([gradient, (identity - curvature)[i, j]]),
        np.block([[curvature, mixed], [mixed.T, of_scale + np.diag(1.0 * (i == j))]]),
    )


def _nodes(
    rows: Float[np.ndarray, "row dim"],
    mean: Float[np.ndarray, " dim"],
    cholesky: Float[np.ndarray, "dim dim"],
) -> tuple[Float[np.ndarray, "row node"], Float[np.ndarray, " node"]]:
    """Points and weights whose weighted sums are expectations over each row's log odds.

    Their standard deviations reach 53, which leaves Gauss–Hermite rules no chance: the poles of σ are then at
    π/53 of a unit normal. The trapezoidal rule errs by exp(−2π²/SPACING), which is 1e-17.
    """
    std = np.linalg.norm(rows @ cholesky, axis=1)
    reach = 9.0  # beyond it, less than 1e-18 of the normal
    noise = np.linspace(-reach, reach, 2 * int(np.ceil(reach * max(1, std.max()) / SPACING)) + 1)
    weights = np.exp(-0.5 * noise**2)
    return (rows @ mean)[:, None] + std[:, None] * noise, weights / weights.sum()


def stochastic_logistic_reference(
    steps: int = 10_000_000, interval: int = 1_000_000, num_replicates: int = 1
) -> list[FullRankNormal]:
    """The paper's own reference: Adam from N(0, I) with 32 draws, the rate divided by 10 now and then.

    Args:
        steps: of each replicate.
        interval: steps between two divisions.
        num_replicates: independent runs; their spread is the noise of one.
    """
    fits = fit_many(
        logistic(),
        FullRankNormal.standard(31),
        keys=range(num_replicates),
        optimizer=optax.chain(optax.scale_by_adam(), stepwise_decay(1e-2, factor=0.1, interval=interval)),
        steps=steps,
        num_draws=32,
        progress=False,
    )
    return [cast("FullRankNormal", fit.family) for fit in fits]
