"""Section 3.2: Bayesian logistic regression on the breast cancer data."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dlrd.models import LogDensity

PRIOR_VARIANCE = 100.0


def logistic() -> LogDensity:
    """The log joint density of 31 coefficients: 30 standardised features and a constant one.

    The data are scikit-learn's copy, 569 patients; the target is 1 for benign. The prior is N(0, 100 I).

    Example:
        >>> import jax.numpy as jnp
        >>> print(f"{logistic()(jnp.zeros(31)):.1f}")  # 569 coins, and the prior's constant
        -494.3
    """
    signed = jnp.asarray(signed_design(), float)
    log_normalizer = float(0.5 * signed.shape[1] * np.log(2 * np.pi * PRIOR_VARIANCE))

    def log_density(z: Float[Array, " 31"]) -> Float[Array, ""]:
        log_prior = -0.5 * jnp.sum(z**2) / PRIOR_VARIANCE - log_normalizer
        return jnp.sum(_log_sigmoid(signed @ z)) + log_prior

    return log_density


def _log_sigmoid(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log σ(x); `jax.nn.log_sigmoid` takes three times as long on the CPU."""
    return jnp.minimum(x, 0) - jnp.log1p(jnp.exp(-jnp.abs(x)))


def signed_design() -> Float[np.ndarray, "569 31"]:
    """The features of each patient, negated where the target is 0: the likelihood is Π σ(row · z)."""
    from sklearn.datasets import load_breast_cancer

    features, benign = load_breast_cancer(return_X_y=True)
    standardized = (features - features.mean(axis=0)) / features.std(axis=0)
    design = np.column_stack([standardized, np.ones(len(standardized))])
    return np.where(benign == 1, 1.0, -1.0)[:, None] * design
