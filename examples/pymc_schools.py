"""Eight schools in PyMC: a hierarchy with coords, fitted, checked and drawn."""

import argparse
from pathlib import Path
from typing import Any

import arviz as az
import matplotlib as mpl
import numpy as np
import pymc as pm

import dlrd.pymc

mpl.use("Agg")
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--max-gradients", type=int, default=100_000, help="the budget of the fit")
max_gradients = parser.parse_args().max_gradients

# The effects of coaching on a test, with their standard errors, after Rubin (1981).
effects = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfNormal("tau", 5)
    white = pm.Normal("white", 0, 1, dims="school")
    theta = pm.Deterministic("theta", mu + tau * white, dims="school")
    pm.Normal("effect", theta, errors, observed=effects, dims="school")

    idata: Any = dlrd.pymc.fit(max_gradients=max_gradients)
    pm.sample_posterior_predictive(idata, extend_inferencedata=True, random_seed=0, progressbar=False)

print(az.summary(idata, var_names=["mu", "tau", "theta"], kind="stats"))
print(f"{idata['fit'].attrs['outcome']}, k̂ = {float(idata['fit']['pareto_k']):.2f}")
above = (idata["posterior_predictive"]["effect"] > idata["observed_data"]["effect"]).mean(("chain", "draw"))
print("New data above the observed:", ", ".join(f"{share:.0%}" for share in above.values))

folder = Path("demo")
folder.mkdir(exist_ok=True)
axes = az.plot_forest(idata, var_names=["mu", "tau", "theta"])
axes[0].figure.savefig(folder / "schools.png", dpi=150, bbox_inches="tight")
print(f"Wrote {folder / 'schools.png'}.")
