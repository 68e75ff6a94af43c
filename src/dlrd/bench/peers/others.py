"""Other libraries, each with the settings of its own documentation; all get the same budget of gradients."""

import functools
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dlrd.bench.peers.answer import Answer, Task, Vector, full_rank, mean_field
from dlrd.families import FullRankNormal
from dlrd.models import LogDensity

BLACKJAX_DRAWS = 100
"""Of each step, BlackJAX's default."""
BLACKJAX_RATE = 1e-2
NUMPYRO_RATE = PYRO_RATE = 5e-4
"""Of Adam, as in the example of NumPyro's `SVI` and Pyro's first tutorial of it."""


def check_installed() -> None:
    """Raises an error that names the first library that is missing."""
    for name in ("blackjax", "numpyro", "pymc"):
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"no module named {name}", name=name)


def numpyro_svi(task: Task) -> Answer:
    """NumPyro's `SVI.run`, its compiled loop, with an automatic guide: Adam, one draw a step."""
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoDiagonalNormal, AutoMultivariateNormal

    def model() -> None:
        unbounded = numpyro.distributions.ImproperUniform(
            numpyro.distributions.constraints.real_vector, (), (task.dim,)
        )
        z = numpyro.sample("z", unbounded)
        numpyro.factor("log_density", task.log_density(jnp.asarray(z)))

    guide = AutoDiagonalNormal(model) if task.is_mean_field else AutoMultivariateNormal(model)
    svi = SVI(model, guide, numpyro.optim.Adam(NUMPYRO_RATE), Trace_ELBO())
    found = svi.run(jax.random.key(task.seed), task.max_gradients, progress_bar=False).params
    if task.is_mean_field:
        return Answer(mean_field(found["auto_loc"], found["auto_scale"]), task.max_gradients)
    root = found["auto_scale_tril"]
    return Answer(full_rank(found["auto_loc"], root @ root.T), task.max_gradients)


def blackjax_vi(task: Task) -> Answer:
    """BlackJAX's mean-field or full-rank variational inference, with Adam, its loop compiled."""
    import blackjax

    make = blackjax.meanfield_vi if task.is_mean_field else blackjax.fullrank_vi
    algorithm = make(task.log_density, optax.adam(BLACKJAX_RATE), BLACKJAX_DRAWS)
    num_steps = max(1, task.max_gradients // BLACKJAX_DRAWS)

    @functools.partial(jax.jit, static_argnums=1)
    def run(key: jax.Array, num_steps: int) -> Any:
        def step(state: Any, key: jax.Array) -> tuple[Any, None]:
            return algorithm.step(key, state)[0], None

        start = algorithm.init(jnp.zeros(task.dim))
        return jax.lax.scan(step, start, jax.random.split(key, num_steps))[0]

    state = run(jax.random.key(task.seed), num_steps)
    num_gradients = num_steps * BLACKJAX_DRAWS
    if task.is_mean_field:
        return Answer(mean_field(state.mu, jnp.exp(state.rho)), num_gradients)
    root = (
        jnp.zeros((task.dim, task.dim)).at[jnp.tril_indices(task.dim, -1)].set(state.chol_params[task.dim :])
    )
    root = root + jnp.diag(jnp.exp(state.chol_params[: task.dim]))
    return Answer(full_rank(state.mu, root @ root.T), num_gradients)


def blackjax_pathfinder(task: Task) -> Answer:
    """BlackJAX's Pathfinder, whose normal is not of low dimension: counted among the full-rank ones.

    It evaluates the density without its gradient at 200 draws for each point of its path; they count too.
    """
    state, info = pathfinder_fn(task.log_density, task.dim)(task.seed)
    num_points = info.path.elbo.shape[0]
    num_iterations = int(jnp.sum(jnp.isfinite(info.path.elbo)))
    return Answer(pathfinder_normal(state), 200 * num_points + num_iterations)


def pathfinder_fn(log_density: LogDensity, dim: int) -> Callable[[int], tuple[Any, Any]]:
    """BlackJAX's Pathfinder as a function of a seed, which gives its state and how it came there."""
    from blackjax.vi import pathfinder

    approximate = jax.jit(lambda key, start: pathfinder.approximate(key, log_density, start))

    def run(seed: int) -> tuple[Any, Any]:
        start = jax.random.uniform(jax.random.key(seed + 1000), (dim,), minval=-2, maxval=2)
        return jax.block_until_ready(approximate(jax.random.key(seed), start))

    return run


def pathfinder_normal(state: Any) -> FullRankNormal:
    """The normal of a state of Pathfinder."""
    covariance = jnp.diag(state.alpha) + state.beta @ state.gamma @ state.beta.T
    return full_rank(state.position + covariance @ state.grad_position, covariance)


def pyro_svi(task: Task) -> Answer:
    """Pyro's `SVI` with an automatic guide: Adam, one draw a step."""
    import pyro
    import torch
    from pyro import distributions
    from pyro.infer import SVI, Trace_ELBO
    from pyro.infer.autoguide import AutoDiagonalNormal, AutoMultivariateNormal
    from pyro.optim import PyroOptim

    value_and_slope = jax.jit(jax.value_and_grad(task.log_density))

    class LogDensity(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, z: Any) -> Any:
            value, slope = value_and_slope(z.detach().numpy())
            ctx.slope = torch.tensor(np.asarray(slope))
            return torch.tensor(float(value))

        @staticmethod
        def backward(ctx: Any, *grad_outputs: Any) -> Any:
            return grad_outputs[0] * ctx.slope

    def model() -> None:
        normal = distributions.Normal(torch.zeros(task.dim), torch.ones(task.dim))
        z = pyro.sample("z", normal.mask(False).to_event(1))  # the guide wants something to draw from
        pyro.factor("log_density", LogDensity.apply(z))

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        pyro.clear_param_store()
        pyro.set_rng_seed(task.seed)
        guide: Any = AutoDiagonalNormal(model) if task.is_mean_field else AutoMultivariateNormal(model)
        svi = SVI(model, guide, PyroOptim(torch.optim.Adam, {"lr": PYRO_RATE}), Trace_ELBO())
        for _ in range(task.max_gradients):
            svi.step()
    finally:
        torch.set_default_dtype(before)
    mean, std = guide.loc.detach().numpy(), guide.scale.detach().numpy()
    if task.is_mean_field:
        return Answer(mean_field(mean, std), task.max_gradients)
    root = std[:, None] * guide.scale_tril.detach().numpy()
    return Answer(full_rank(mean, root @ root.T), task.max_gradients)


def pymc_advi(task: Task) -> Answer:
    """PyMC's ADVI or full-rank ADVI: its windowed Adagrad, one draw a step."""
    # About libraries that would make its own linear algebra faster, which is not what takes time here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _pymc_advi(task)


def _pymc_advi(task: Task) -> Answer:
    import pymc
    from pytensor import tensor
    from pytensor.graph.op import Op

    types: Any = tensor
    value_fn = jax.jit(task.log_density)
    slope_fn = jax.jit(jax.grad(task.log_density))

    class Slope(Op):
        itypes, otypes = (types.dvector,), (types.dvector,)

        def perform(self, node: Any, inputs: Any, output_storage: Any) -> None:
            output_storage[0][0] = np.asarray(slope_fn(inputs[0]), float)

    slope_op: Any = Slope()

    class Value(Op):
        itypes, otypes = (types.dvector,), (types.dscalar,)

        def perform(self, node: Any, inputs: Any, output_storage: Any) -> None:
            output_storage[0][0] = np.asarray(value_fn(inputs[0]), float)

        def grad(self, inputs: Any, output_grads: Any) -> list[Any]:
            return [output_grads[0] * slope_op(inputs[0])]

    value_op: Any = Value()
    with pymc.Model():
        z = pymc.Flat("z", shape=task.dim, initval=np.zeros(task.dim))
        pymc.Potential("log_density", value_op(z))
        found: Any = pymc.fit(
            task.max_gradients,
            method="advi" if task.is_mean_field else "fullrank_advi",
            random_seed=task.seed,
            progressbar=False,
        )
    mean: Vector = found.mean.eval()
    if task.is_mean_field:
        return Answer(mean_field(mean, found.std.eval()), task.max_gradients)
    return Answer(full_rank(mean, found.cov.eval()), task.max_gradients)
