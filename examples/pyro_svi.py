"""Pyro's stochastic variational inference with a learning rate that falls by itself: eight schools.

Pyro's `SVI` makes an optimiser of its own for each parameter, so each would decide for itself. In a loop of
PyTorch's, with the same loss, one optimiser has them all, and they decide together.
"""

import argparse

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import Trace_ELBO
from pyro.infer.autoguide import AutoNormal

import dlrd.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=4_000, help="steps of the optimiser")
num_steps = parser.parse_args().steps

effects = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
errors = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def model() -> None:
    """Effects of coaching in eight schools, which vary around a common mean."""
    mean = pyro.sample("mean", dist.Normal(0.0, 5.0))
    spread = pyro.sample("spread", dist.HalfCauchy(5.0))
    with pyro.plate("schools", 8):
        offset = pyro.sample("offset", dist.Normal(0.0, 1.0))
        pyro.sample("effect", dist.Normal(mean + spread * offset, errors), obs=effects)


def fitted(initial_rate: float, has_rule: bool) -> AutoNormal:
    """The guide after all steps; says how good it is."""
    pyro.clear_param_store()  # or guides of one name share their parameters
    pyro.set_rng_seed(0)
    guide = AutoNormal(model)
    loss_fn = Trace_ELBO(4, max_plate_nesting=1, vectorize_particles=True).differentiable_loss
    loss_fn(model, guide)  # makes the guide's parameters
    optimizer = torch.optim.Adam(guide.parameters(), lr=initial_rate)
    scheduler = dlrd.torch.DynamicDecay(optimizer) if has_rule else None
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss_fn(model, guide).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    how = "fixed" if scheduler is None else f"lowered {scheduler.num_decays} times by the rule"
    print(f"a rate of {initial_rate:g}, {how}: ELBO {elbo(guide):.3f}")
    return guide


def elbo(guide: AutoNormal) -> float:
    """From the same noise for all guides, so that their differences have little of it."""
    pyro.set_rng_seed(1)
    return -Trace_ELBO(100_000, max_plate_nesting=1, vectorize_particles=True).loss(model, guide)


fitted(1e-1, has_rule=False)
guide = fitted(1e-1, has_rule=True)
with torch.no_grad():
    low, median, high = guide.quantiles([0.05, 0.5, 0.95])["mean"]
print(f"The common mean: {median:.1f}, with 90 % between {low:.1f} and {high:.1f}")
