"""NUTS that starts where a fit ended: what the fit saves of the warm-up, in BlackJAX and NumPyro."""

import argparse
import time
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.step_size import dual_averaging_adaptation
from jax.scipy.stats import gamma, norm
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

import dlrd

jax.config.update("jax_enable_x64", True)

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--draws", type=int, default=1000, help="of each chain, after the warm-up")
parser.add_argument("--warmup", type=int, default=1000, help="steps without the fit")
parser.add_argument("--short-warmup", type=int, default=100, help="steps with it, for the step size alone")
arguments = parser.parse_args()
NUM_CHAINS = 4

# A regression on features that are alike and on different scales: hard without a dense metric.
rng = np.random.default_rng(0)
features = rng.normal(size=(200, 12)) @ (0.3 * rng.normal(size=(12, 12)) + np.diag(np.geomspace(0.02, 5, 12)))
outcomes = features @ rng.normal(size=12) + rng.normal(size=200)


def log_density(v: dict[str, jax.Array]) -> jax.Array:
    log_prior = jnp.sum(norm.logpdf(v["slopes"], 0, 10)) + gamma.logpdf(v["sigma"], 2)
    return log_prior + jnp.sum(norm.logpdf(outcomes, features @ v["slopes"], v["sigma"]))


model = dlrd.models.function(log_density, {"slopes": (12,), "sigma": dlrd.positive()})
begun = time.perf_counter()
fit = dlrd.fit(model, progress=False)
assert fit.verdict is not None
print(
    f"Fit: {fit.verdict.num_gradients:,} gradients, {time.perf_counter() - begun:.1f} s. {fit.outcome.name}."
)
metric = fit.inverse_mass_matrix()
starts = fit.inits(NUM_CHAINS)  # one row a chain, in the coordinates that are fitted


def shown(library: str, kind: str, warmup: int, sampling: int, draws: Any) -> None:
    """A line of the table; gradients are leapfrog steps of all chains."""
    worst = min(np.min(effective_sample_size(np.asarray(values))) for values in draws.values())
    print(f"{library:9s} {kind:8s} {warmup:13,} {sampling:15,} {worst:13,.0f}")


def with_numpyro(kind: str, num_warmup: int, points: Any, **settings: Any) -> None:
    kernel = NUTS(potential_fn=lambda z: -model.log_density(z), dense_mass=True, **settings)
    sampler = MCMC(
        kernel, num_warmup=num_warmup, num_samples=arguments.draws, num_chains=NUM_CHAINS,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    sampler.warmup(jax.random.key(1), init_params=points, extra_fields=("num_steps",), collect_warmup=True)
    warmup = int(jnp.sum(sampler.get_extra_fields()["num_steps"]))
    sampler.run(jax.random.key(2), extra_fields=("num_steps",))
    sampling = int(jnp.sum(sampler.get_extra_fields()["num_steps"]))
    flat = jnp.asarray(sampler.get_samples(group_by_chain=True))
    shown("NumPyro", kind, warmup, sampling, jax.vmap(model.constrained)(flat))


def with_blackjax(kind: str, num_warmup: int, points: Any, inverse_mass_matrix: Any) -> None:
    """With a metric, the warm-up looks for the step size alone, by dual averaging."""

    def run(key: jax.Array, point: jax.Array) -> Any:
        warmup_key, key = jax.random.split(key)
        if inverse_mass_matrix is None:
            adaptation: Any = blackjax.window_adaptation(
                blackjax.nuts, model.log_density, is_mass_matrix_diagonal=False
            )
            (state, settings), info = adaptation.run(warmup_key, point, num_steps=num_warmup)
            num_warmup_steps = jnp.sum(info.info.num_integration_steps)
        else:
            state, settings, num_warmup_steps = tuned(warmup_key, point)
        step: Any = blackjax.nuts(model.log_density, **settings).step

        def one(state: Any, key: jax.Array) -> Any:
            state, info = step(key, state)
            return state, (state.position, info.num_integration_steps)

        positions, counts = jax.lax.scan(one, state, jax.random.split(key, arguments.draws))[1]
        return positions, num_warmup_steps, jnp.sum(counts)

    def tuned(key: jax.Array, point: jax.Array) -> Any:
        init, update, final = dual_averaging_adaptation(0.8)
        kernel = blackjax.nuts.build_kernel()

        def one(carry: Any, key: jax.Array) -> Any:
            state, tuning = carry
            state, info = kernel(
                key, state, model.log_density, jnp.exp(tuning.log_step_size), inverse_mass_matrix
            )
            return (state, update(tuning, info.acceptance_rate)), info.num_integration_steps

        begin = blackjax.nuts.init(point, model.log_density), init(0.5)
        (state, tuning), counts = jax.lax.scan(one, begin, jax.random.split(key, num_warmup))
        settings = {"step_size": final(tuning), "inverse_mass_matrix": inverse_mass_matrix}
        return state, settings, jnp.sum(counts)

    keys = jax.random.split(jax.random.key(3), NUM_CHAINS)
    flat, warmup, sampling = jax.jit(jax.vmap(run))(keys, points)
    shown("BlackJAX", kind, int(warmup.sum()), int(sampling.sum()), jax.vmap(model.constrained)(flat))


print(f"{'':18s} {'warm-up grads':>13s} {'sampling grads':>15s} {'smallest ESS':>13s}")
elsewhere = jax.random.uniform(jax.random.key(0), starts.shape, minval=-2, maxval=2)  # as NumPyro does
with_numpyro("alone", arguments.warmup, elsewhere)
with_numpyro("with fit", arguments.short_warmup, starts, inverse_mass_matrix=metric, adapt_mass_matrix=False)
with_blackjax("alone", arguments.warmup, elsewhere, None)
with_blackjax("with fit", arguments.short_warmup, starts, jnp.asarray(metric))
