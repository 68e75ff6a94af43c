"""A training loop of PyTorch's whose iterates oscillate: the rate fixed, and lowered by the rule."""

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure

import dlrd.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=4_000, help="steps of each run")
num_steps = parser.parse_args().steps

generator = torch.Generator().manual_seed(0)
inputs = torch.randn(10_000, 50, generator=generator)
weights = torch.randn(50, generator=generator)
targets = (torch.rand(10_000, generator=generator) < torch.sigmoid(inputs @ weights)).float()
loss_fn = torch.nn.BCEWithLogitsLoss()


def train(initial_rate: float, has_rule: bool) -> tuple[list[float], list[float]]:
    """The loss on all data, and the learning rate, after each tenth step on 32 of the cases."""
    batches = torch.Generator().manual_seed(1)
    model = torch.nn.Linear(50, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.Adam(model.parameters(), lr=initial_rate)
    scheduler = dlrd.torch.DynamicDecay(optimizer) if has_rule else None
    losses, rates = [], []
    for step in range(num_steps):
        batch = torch.randint(len(inputs), (32,), generator=batches)
        optimizer.zero_grad()
        loss_fn(model(inputs[batch])[:, 0], targets[batch]).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        if step % 10 == 9:
            with torch.no_grad():
                losses.append(loss_fn(model(inputs)[:, 0], targets).item())
            rates.append(optimizer.param_groups[0]["lr"])
    return losses, rates


def least_loss() -> float:
    """The loss at the optimum, by Newton's method."""
    model = torch.zeros(50, dtype=torch.float64)
    features = inputs.double()
    for _ in range(20):
        chance = torch.sigmoid(features @ model)
        gradient = features.T @ (chance - targets)
        model -= torch.linalg.solve((features.T * (chance * (1 - chance))) @ features, gradient)
    return loss_fn(features @ model, targets.double()).item()


optimum = least_loss()
figure = Figure(figsize=(9, 6), layout="constrained")
top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
steps = range(10, num_steps + 1, 10)
for color, initial_rate in zip(("tab:red", "tab:orange", "tab:blue"), (1e-1, 3e-2, 1e-2), strict=True):
    for has_rule, style in ((False, ":"), (True, "-")):
        losses, rates = train(initial_rate, has_rule)
        label = f"{initial_rate:g}, " + ("with the rule" if has_rule else "fixed")
        top.plot(steps, [loss - optimum for loss in losses], style, color=color, label=label)
        bottom.plot(steps, rates, style, color=color)
        print(f"{label}: loss {losses[-1] - optimum:.1e} above the least, at a rate of {rates[-1]:.0e}")
top.set(
    yscale="log",
    ylabel="loss on all data, above the least",
    title="Logistic regression with Adam, 32 of 10,000 cases a step",
)
top.legend(title="learning rate")
bottom.set(yscale="log", ylabel="learning rate", xlabel="step")

folder = Path("demo")
folder.mkdir(exist_ok=True)
figure.savefig(folder / "torch_loop.png", dpi=120)
print(f"Wrote {folder / 'torch_loop.png'}.")
