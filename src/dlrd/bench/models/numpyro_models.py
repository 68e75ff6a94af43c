"""NumPyro models of many kinds, with made data."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.distributions.transforms import OrderedTransform
from numpyro.infer import MCMC, NUTS
from numpyro.infer.reparam import LocScaleReparam

from dlrd.bench.models.case import Case, SampleFn
from dlrd.models import Model
from dlrd.models import numpyro as numpyro_model

# Their types would let indices and products be anything that an array can be made of.
sample: Any = numpyro.sample
deterministic: Any = numpyro.deterministic
NUM_CHAINS, NUM_WARMUP, NUM_DRAWS = 2, 1_000, 2_000
TARGET = 0.95
"""Acceptance of NUTS, for centred hierarchies: less gives divergences."""


def regression(x: Any, y: Any) -> None:
    intercept = sample("intercept", dist.Normal(0.0, 5.0))
    slopes = sample("slopes", dist.Normal(0.0, 2.0).expand([x.shape[1]]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(2.0))
    mean = deterministic("mean", intercept + x @ slopes)
    with numpyro.plate("row", len(y)):
        sample("y", dist.Normal(mean, sigma), obs=y)


def robust_regression(x: Any, y: Any) -> None:
    intercept = sample("intercept", dist.ImproperUniform(dist.constraints.real, (), ()))
    slope = sample("slope", dist.ImproperUniform(dist.constraints.real, (), ()))
    sigma = sample("sigma", dist.LogNormal(0.0, 1.0))
    freedom = sample("freedom", dist.Gamma(2.0, 0.1))
    with numpyro.plate("row", len(y)):
        sample("y", dist.StudentT(freedom, intercept + slope * x, sigma), obs=y)


def schools(errors: Any, effects: Any) -> None:
    mu = sample("mu", dist.Normal(0.0, 5.0))
    tau = sample("tau", dist.HalfNormal(5.0))
    with numpyro.plate("school", len(errors)):
        theta = sample("theta", dist.Normal(mu, tau))
        sample("effect", dist.Normal(theta, errors), obs=effects)


non_centred_schools = numpyro.handlers.reparam(schools, config={"theta": LocScaleReparam(0)})


def counts(group: Any, x: Any, exposure: Any, y: Any) -> None:
    slope = sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("group", int(group.max()) + 1):
        level = sample("level", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", len(y)):
        sample("y", dist.Poisson(jnp.exp(jnp.log(exposure) + level[group] + slope * x)), obs=y)


def item_response(person: Any, item: Any, correct: Any) -> None:
    with numpyro.plate("person", int(person.max()) + 1):
        ability = sample("ability", dist.Normal(0.0, 1.0))
    with numpyro.plate("item", int(item.max()) + 1):
        difficulty = sample("difficulty", dist.Normal(0.0, 1.5))
        discrimination = sample("discrimination", dist.LogNormal(0.0, 0.4))
    logits = discrimination[item] * (ability[person] - difficulty[item])
    with numpyro.plate("answer", len(correct)):
        sample("correct", dist.Bernoulli(logits=logits), obs=correct)


def time_series(y: Any) -> None:
    persistence = sample("persistence", dist.Beta(4.0, 2.0))
    spread = sample("spread", dist.LogNormal(-0.7, 0.4))
    noise = sample("noise", dist.LogNormal(-0.7, 0.4))

    def transition(state: Any, seen: Any) -> tuple[Any, Any]:
        state = sample("state", dist.Normal(persistence * state, spread))
        sample("y", dist.Normal(state, noise), obs=seen)
        return state, None

    scan(transition, jnp.zeros(()), y)


def mixture(y: Any) -> None:
    weights = sample("weights", dist.Dirichlet(jnp.full(2, 2.0)))
    ordered = dist.TransformedDistribution(dist.Normal(0.0, 2.0).expand([2]).to_event(1), OrderedTransform())
    means = sample("means", ordered)
    scales = sample("scales", dist.LogNormal(0.0, 0.5).expand([2]).to_event(1))
    components = dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(means, scales))
    with numpyro.plate("row", len(y)):
        sample("y", components, obs=y)


def smooth_counts(x: Any, y: Any) -> None:
    length = sample("length", dist.InverseGamma(5.0, 5.0))
    amplitude = sample("amplitude", dist.HalfNormal(1.5))
    level = sample("level", dist.Normal(0.0, 2.0))
    covariance = amplitude**2 * jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2)
    root = jnp.linalg.cholesky(covariance + 1e-5 * jnp.eye(len(x)))
    with numpyro.plate("point", len(x)):
        white = sample("white", dist.Normal(0.0, 1.0))
    rate = deterministic("rate", jnp.exp(level + root @ white))
    with numpyro.plate("point", len(x)):
        sample("y", dist.Poisson(rate), obs=y)


def smooth_regression(x: Any, y: Any) -> None:
    length = sample("length", dist.InverseGamma(5.0, 5.0))
    amplitude = sample("amplitude", dist.HalfNormal(1.5))
    noise = sample("noise", dist.HalfNormal(0.5))
    covariance = amplitude**2 * jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2)
    process = dist.MultivariateNormal(jnp.zeros(len(x)), covariance + noise**2 * jnp.eye(len(x)))
    sample("y", process, obs=y)


def ordinal(x: Any, y: Any) -> None:
    slope = sample("slope", dist.Normal(0.0, 2.0))
    ordered = dist.TransformedDistribution(dist.Normal(0.0, 1.5).expand([3]).to_event(1), OrderedTransform())
    cutpoints = sample("cutpoints", ordered)
    with numpyro.plate("row", len(y)):
        sample("y", dist.OrderedLogistic(slope * x, cutpoints), obs=y)


def correlation(y: Any) -> None:
    dim = y.shape[1]
    root = sample("root", dist.LKJCholesky(dim, 2.0))
    scales = sample("scales", dist.LogNormal(0.0, 1.0).expand([dim]).to_event(1))
    mean = sample("mean", dist.Normal(0.0, 3.0).expand([dim]).to_event(1))
    deterministic("correlation", root @ root.T)
    with numpyro.plate("row", len(y)):
        sample("y", dist.MultivariateNormal(mean, scale_tril=scales[:, None] * root), obs=y)


def shares(counted: Any) -> None:
    concentration = sample("concentration", dist.Gamma(2.0, 0.2))
    overall = sample("overall", dist.Dirichlet(jnp.ones(counted.shape[1])))
    with numpyro.plate("town", len(counted)):
        share = sample("share", dist.Dirichlet(1.0 + concentration * overall))
        sample("counted", dist.Multinomial(counted.sum(axis=1), share), obs=counted)


def _regression_data(rng: np.random.Generator) -> tuple[Any, ...]:
    x = rng.normal(size=(60, 4))
    return x, 1.0 + x @ np.array([0.5, -1.0, 0.0, 2.0]) + 0.7 * rng.normal(size=60)


def _robust_data(rng: np.random.Generator) -> tuple[Any, ...]:
    x = rng.normal(size=50)
    return x, 0.5 - 1.5 * x + 0.4 * rng.standard_t(3, size=50)


def _schools_data(_: np.random.Generator) -> tuple[Any, ...]:
    return np.array([15.0, 10, 16, 11, 9, 11, 10, 18]), np.array([28.0, 8, -3, 7, -1, 1, 18, 12])


def _counts_data(rng: np.random.Generator) -> tuple[Any, ...]:
    group, x, exposure = np.arange(60) % 6, rng.normal(size=60), rng.uniform(1, 10, size=60)
    return group, x, exposure, rng.poisson(exposure * np.exp(0.4 * x + rng.normal(size=6)[group] - 0.5))


def _answers_data(rng: np.random.Generator) -> tuple[Any, ...]:
    person, item = (each.ravel() for each in np.indices((20, 8)))
    logits = rng.normal(size=20)[person] - rng.normal(size=8)[item]
    return person, item, rng.binomial(1, 1 / (1 + np.exp(-logits)))


def _series_data(rng: np.random.Generator) -> tuple[Any, ...]:
    state, states = 0.0, []
    for step in rng.normal(size=40):
        state = 0.8 * state + 0.5 * step
        states.append(state)
    return (np.array(states) + 0.4 * rng.normal(size=40),)


def _mixture_data(rng: np.random.Generator) -> tuple[Any, ...]:
    return (np.concatenate([rng.normal(-1.5, 0.7, size=60), rng.normal(1.5, 1.0, size=90)]),)


def _process_data(rng: np.random.Generator) -> tuple[Any, ...]:
    x = np.linspace(0, 5, 25)
    return x, rng.poisson(np.exp(1.2 + np.sin(1.5 * x)))


def _smooth_data(rng: np.random.Generator) -> tuple[Any, ...]:
    x = np.linspace(0, 5, 30)
    return x, np.sin(1.5 * x) + 0.3 * rng.normal(size=30)


def _ordinal_data(rng: np.random.Generator) -> tuple[Any, ...]:
    x = rng.normal(size=100)
    return x, np.digitize(1.2 * x + rng.logistic(size=100), [-1.0, 0.5, 2.0])


def _correlation_data(rng: np.random.Generator) -> tuple[Any, ...]:
    root = np.array([[1.0, 0, 0], [0.8, 0.6, 0], [-0.3, 0.5, 1.0]])
    return (rng.normal(size=(80, 3)) @ root.T,)


def _shares_data(rng: np.random.Generator) -> tuple[Any, ...]:
    return (np.stack([rng.multinomial(40, share) for share in rng.dirichlet([6, 3, 2], size=5)]),)


def _case(name: str, kind: str, model: Callable[..., Any], data: Callable[..., tuple[Any, ...]]) -> Case:
    def make() -> tuple[Model, SampleFn]:
        made = data(np.random.default_rng(1))
        return numpyro_model(model, *made), lambda seed: sampled(model, made, seed)

    return Case(name, kind, make)


def sampled(model: Callable[..., Any], data: tuple[Any, ...], seed: int) -> dict[str, np.ndarray]:
    """Draws by NumPyro's NUTS."""
    kernel = NUTS(model, target_accept_prob=TARGET)
    chains = MCMC(
        kernel,
        num_warmup=NUM_WARMUP,
        num_samples=NUM_DRAWS,
        num_chains=NUM_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    chains.run(jax.random.key(seed), *data)
    return {name: np.asarray(values) for name, values in chains.get_samples().items()}


CASES = [
    _case("regression", "linear regression", regression, _regression_data),
    _case("robust regression", "heavy tails, improper priors", robust_regression, _robust_data),
    _case("eight schools", "centred hierarchy", schools, _schools_data),
    _case("eight schools, non-centred", "hierarchy by reparam", non_centred_schools, _schools_data),
    _case("counts", "GLM with offsets", counts, _counts_data),
    _case("item response", "IRT with two parameters", item_response, _answers_data),
    _case("time series", "state space, scan", time_series, _series_data),
    _case("mixture", "marginalised components", mixture, _mixture_data),
    _case("smooth regression", "Gaussian process", smooth_regression, _smooth_data),
    _case("smooth counts", "latent Gaussian process", smooth_counts, _process_data),
    _case("ordinal", "ordered cutpoints", ordinal, _ordinal_data),
    _case("correlation", "LKJ", correlation, _correlation_data),
    _case("shares", "Dirichlet, simplex", shares, _shares_data),
]
