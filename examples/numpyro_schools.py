"""Eight schools in NumPyro: fitted as it is written, then as the fit advises; checked, drawn, handed on."""

import argparse
from pathlib import Path
from typing import Any

import arviz as az
import jax
import matplotlib as mpl
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, Predictive
from numpyro.infer.reparam import LocScaleReparam

import dlrd

mpl.use("Agg")
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--max-gradients", type=int, default=100_000, help="the budget of each fit")
parser.add_argument("--draws", type=int, default=1000, help="of each chain of NUTS")
arguments = parser.parse_args()

# The effects of coaching on a test, with their standard errors, after Rubin (1981).
effects = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools(errors: Any, effects: Any = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(5.0))
    with numpyro.plate("school", len(errors)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("effect", dist.Normal(theta, errors), obs=effects)


fit = dlrd.fit(dlrd.models.numpyro(schools, errors, effects), max_gradients=arguments.max_gradients)
assert fit.verdict is not None
print("As it is written:", *fit.verdict.warnings, sep="\n  ")

decentred = numpyro.handlers.reparam(schools, config={"theta": LocScaleReparam(0)})
fit = dlrd.fit(dlrd.models.numpyro(decentred, errors, effects), max_gradients=arguments.max_gradients)
print(fit.summary(["mu", "tau", "theta"]))

# NumPyro goes on with the fit as with the guide of an SVI run.
guide = dlrd.numpyro.guide(fit)
again = Predictive(decentred, guide=guide, params={}, num_samples=1000)(jax.random.key(0), errors)
above = np.mean(np.asarray(again["effect"]) > effects, axis=0)
print("New data above the observed:", ", ".join(f"{share:.0%}" for share in above))

# NUTS from the fit: it needs no metric of its own, and little warm-up.
kernel = NUTS(
    decentred, dense_mass=True, inverse_mass_matrix=fit.inverse_mass_matrix(), adapt_mass_matrix=False
)
chains = MCMC(kernel, num_warmup=100, num_samples=arguments.draws, num_chains=2, chain_method="vectorized",
              progress_bar=False)  # fmt: skip
chains.run(jax.random.key(1), errors, effects, init_params=fit.inits(2))
reference = chains.get_samples()
for name in ("mu", "tau"):
    values = np.asarray(reference[name])
    error = abs(np.mean(fit.sample(0, 10_000)[name]) - values.mean()) / values.std()
    print(f"The mean of {name} is {error:.2f} sds from that of NUTS.")

folder = Path("demo")
folder.mkdir(exist_ok=True)
data = [fit.to_arviz(), az.from_numpyro(chains)]
axes = az.plot_forest(data, model_names=["dlrd", "NUTS"], var_names=["mu", "tau", "theta"], combined=True)
axes[0].figure.savefig(folder / "schools.png", dpi=150, bbox_inches="tight")
print(f"Wrote {folder / 'schools.png'}.")
