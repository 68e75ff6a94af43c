"""Bayesian logistic regression on scikit-learn's breast cancer data, with nothing to tune."""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

import dlrd

jax.config.update("jax_enable_x64", True)

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--max-gradients", type=int, default=100_000, help="the budget of the fit")
max_gradients = parser.parse_args().max_gradients

data: Any = load_breast_cancer()
features = jnp.asarray(StandardScaler().fit_transform(data.data))
features = jnp.column_stack([features, jnp.ones(len(features))])
is_benign = jnp.asarray(data.target) == 1
names = [*data.feature_names, "constant"]


def log_density(coefficients: jax.Array) -> jax.Array:
    """Log posterior: prior N(0, 100 I), and the odds of a benign tumour log-linear in the features."""
    log_odds = features @ coefficients
    log_prior = jax.scipy.stats.norm.logpdf(coefficients, scale=10.0)
    log_likelihood = jax.nn.log_sigmoid(jnp.where(is_benign, log_odds, -log_odds))
    return jnp.sum(log_prior) + jnp.sum(log_likelihood)


model = dlrd.models.function(log_density, len(names), names)
fit = dlrd.fit(model, max_gradients=max_gradients)

summary = fit.summary()
print(summary)
accuracy = jnp.mean((features @ summary.mean > 0) == is_benign)
print(f"The posterior mean classifies {accuracy:.1%} of the {len(features)} training cases correctly.")

folder = Path("demo")
folder.mkdir(exist_ok=True)
fit.plot(folder / "fit.png")
fit.report(folder / "fit.html")
print(f"Wrote {folder / 'fit.png'} and {folder / 'fit.html'}.")
