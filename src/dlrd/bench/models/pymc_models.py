"""PyMC models of many kinds, with made data."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
from pymc.distributions.transforms import ordered

from dlrd.bench.models.case import Case, SampleFn
from dlrd.models import Model
from dlrd.models import pymc as pymc_model

NUM_CHAINS, NUM_WARMUP, NUM_DRAWS = 2, 1_000, 2_000
TARGET = 0.95
"""Acceptance of NUTS, for centred hierarchies: less gives divergences."""
EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
"""Of coaching in eight schools, after Rubin (1981)."""


def regression(rng: np.random.Generator) -> None:
    x = rng.normal(size=(80, 3))
    y = 1.0 + x @ [1.0, -0.5, 0.0] + 0.7 * rng.normal(size=80)
    pm.modelcontext(None).add_coords({"feature": ["a", "b", "c"], "row": range(80)})
    features = pm.Data("features", x, dims=("row", "feature"))
    intercept = pm.Normal("intercept", 0, 5)
    slopes = pm.Normal("slopes", 0, 2, dims="feature")
    mean = pm.Deterministic("mean", intercept + features @ slopes, dims="row")
    pm.Normal("y", mean, pm.HalfNormal("sigma", 2), observed=y, dims="row")


def schools(rng: np.random.Generator) -> None:
    mu, tau = pm.Normal("mu", 0, 5), pm.HalfNormal("tau", 5)
    theta = pm.Normal("theta", mu, tau, shape=8)
    pm.Normal("effect", theta, ERRORS, observed=EFFECTS)


def non_centred_schools(rng: np.random.Generator) -> None:
    mu, tau = pm.Normal("mu", 0, 5), pm.HalfNormal("tau", 5)
    theta = pm.Deterministic("theta", mu + tau * pm.Normal("white", 0, 1, shape=8))
    pm.Normal("effect", theta, ERRORS, observed=EFFECTS)


def counts(rng: np.random.Generator) -> None:
    group, x, exposure = rng.integers(0, 6, 120), rng.normal(size=120), rng.uniform(1, 10, 120)
    y = rng.poisson(exposure * np.exp(0.3 * rng.normal(size=6)[group] + 0.4 * x))
    level = pm.Normal("level", 0, 2, shape=6)
    rate = pm.math.exp(np.log(exposure) + level[group] + pm.Normal("slope", 0, 1) * x)
    pm.Poisson("y", rate, observed=y)


def ordinal(rng: np.random.Generator) -> None:
    x = rng.normal(size=150)
    y = np.digitize(1.2 * x + rng.logistic(size=150), [-1.5, 0.0, 1.5])
    cutpoints = pm.Normal("cutpoints", 0, 2, shape=3, transform=ordered, initval=[-1.0, 0.0, 1.0])
    pm.OrderedLogistic(
        "y", eta=pm.Normal("slope", 0, 2) * x, cutpoints=cutpoints, compute_p=False, observed=y
    )


def correlation(rng: np.random.Generator) -> None:
    y = rng.multivariate_normal(np.zeros(3), [[1.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 1.0]], size=100)
    root, *_ = pm.LKJCholeskyCov("root", n=3, eta=2, sd_dist=pm.Exponential.dist(1.0, shape=3))
    pm.MvNormal("y", mu=pm.Normal("mean", 0, 2, shape=3), chol=root, observed=y)


def shares(rng: np.random.Generator) -> None:
    concentration = pm.Gamma("concentration", 2, 0.1)
    base = pm.Dirichlet("base", np.ones(4))
    counts = rng.multinomial(40, rng.dirichlet([6.0, 3.0, 2.0, 1.0], size=12))
    pm.DirichletMultinomial("counts", n=40, a=concentration * base, observed=counts)


def mixture(rng: np.random.Generator) -> None:
    y = np.concatenate([rng.normal(-2, 0.7, 60), rng.normal(1.5, 1.0, 90)])
    weights = pm.Dirichlet("weights", [2.0, 2.0])
    means = pm.Normal("means", 0, 3, shape=2, transform=ordered, initval=[-1.0, 1.0])
    scales = pm.LogNormal("scales", 0, 0.5, shape=2)
    pm.NormalMixture("y", w=weights, mu=means, sigma=scales, observed=y)


def time_series(rng: np.random.Generator) -> None:
    y = np.zeros(150)
    for i in range(2, 150):
        y[i] = 0.5 * y[i - 1] + 0.3 * y[i - 2] + 0.5 * rng.normal()
    rho = pm.Normal("rho", 0, 0.5, shape=2)
    pm.AR("y", rho=rho, sigma=pm.HalfNormal("sigma", 1), init_dist=pm.Normal.dist(0, 2), observed=y)


def _case(name: str, kind: str, build: Callable[[np.random.Generator], None], accept: float = 0.8) -> Case:
    def make() -> tuple[Model, SampleFn]:
        with pm.Model() as model:
            build(np.random.default_rng(0))

        def sample(seed: int) -> dict[str, np.ndarray]:
            found: Any = pm.sample(
                NUM_DRAWS,
                tune=NUM_WARMUP,
                chains=NUM_CHAINS,
                cores=1,
                random_seed=seed,
                target_accept=accept,
                model=model,
                progressbar=False,
                compute_convergence_checks=False,
            )
            posterior = found["posterior"]
            return {name: np.concatenate(posterior[name].values) for name in posterior.data_vars}

        return pymc_model(model), sample

    return Case(name, kind, make)


CASES = [
    _case("regression", "linear regression, coords", regression),
    _case("eight schools", "centred hierarchy", schools, TARGET),
    _case("eight schools, non-centred", "non-centred hierarchy", non_centred_schools),
    _case("counts", "GLM with offsets", counts),
    _case("ordinal", "ordered cutpoints", ordinal),
    _case("correlation", "LKJ", correlation),
    _case("shares", "Dirichlet, simplex", shares),
    _case("mixture", "marginalised components", mixture),
    _case("time series", "autoregression", time_series),
]
