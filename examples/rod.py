"""A compiled program, calibrated: how well a rod conducts heat, from two thermometers on it."""

import argparse
import subprocess
import sysconfig
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

import dlrd
from dlrd.models import priors

jax.config.update("jax_enable_x64", True)

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--max-gradients", type=int, default=100_000, help="the budget of the fit")
parser.add_argument("--draws", type=int, default=100, help="runs for the predicted temperatures")
arguments = parser.parse_args()

folder = Path("demo")
folder.mkdir(exist_ok=True)
compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
source = Path(__file__).with_name("rod.c")
subprocess.run([compiler, "-O2", "-o", folder / "rod", source], check=True)

# --8<-- [start:model]
run = dlrd.models.command(
    [str(folder / "rod"), "rod.txt", "rod.csv"],
    inputs={"rod.txt": "diffusivity = $diffusivity\nloss = $loss\nheating = $heating\n"},
    read="rod.csv:near,far",
)
prior = {
    "diffusivity": priors.lognormal(5e-5, 0.5),
    "loss": priors.lognormal(1e-3, 0.5),
    "heating": priors.lognormal(1000.0, 0.5),
}
measured = np.loadtxt(Path(__file__).with_name("rod.csv"), delimiter=",", skiprows=1)
time, data = measured[:, 0], measured[:, 1:].T.ravel()
model = dlrd.models.simulator(
    run, prior, data, noise=priors.half_normal(5.0), log=folder / "rod.jsonl", time_limit=10.0
)
fit = dlrd.fit(model, starts=4, max_gradients=arguments.max_gradients)
print(fit.summary())
# --8<-- [end:model]

predicted = np.asarray(fit.predict(1, arguments.draws)["data"]).reshape(-1, 2, len(time))
low, middle, high = np.quantile(predicted, [0.05, 0.5, 0.95], axis=0)
draws = {name: np.asarray(values) for name, values in fit.sample(0, 2_000).items()}
figure = Figure(figsize=(10, 4), layout="constrained")
left, right = figure.subplots(1, 2)
left.plot(1e6 * draws["diffusivity"], 1e3 * draws["loss"], ".", markersize=3, alpha=0.4)
left.set(xlabel="diffusivity, mm²/s", ylabel="loss, 1/1000 s", title="Posterior")
for i, (name, color) in enumerate({"near": "tab:red", "far": "tab:blue"}.items()):
    right.fill_between(time, low[i], high[i], color=color, alpha=0.25, linewidth=0)
    right.plot(time, middle[i], color=color, label=f"{name}: median and 90 %")
    right.plot(time, measured[:, 1 + i], ".", color=color)
right.set(xlabel="time, s", ylabel="temperature above the air, K", title="Predicted and measured")
right.legend()
figure.savefig(folder / "rod.png", dpi=120)
print(f"Wrote {folder / 'rod.png'}, and all runs to {folder / 'rod.jsonl'}.")
model.close()
