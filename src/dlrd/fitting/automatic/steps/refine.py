"""The curvature that a family carries, brought up to date."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dlrd.families import Family, Refinable, split
from dlrd.fitting.automatic.judge.stopping import MAX_CURVATURES
from dlrd.fitting.automatic.plan import Task
from dlrd.fitting.automatic.start.mode import mean_curvature
from dlrd.fitting.automatic.start.objective import Objective, host_noise
from dlrd.fitting.automatic.state import AutomaticState
from dlrd.fitting.automatic.steps.stepping import certificate_key
from dlrd.models import Model
from dlrd.models.second_order import COST


def refining_cost(model: Model, family: Family) -> int | None:
    """The gradients of a Hessian, by which it is refined; None where it is not."""
    is_known = model.is_exact and model.has_gradient
    if not is_known or not isinstance(family, Refinable) or not family.curvature.is_whole:
        return None
    found = family.curvature.couplings
    return COST * (model.dim if found is None else found.coloring.num_colors)


@eqx.filter_jit
def _drawn(family: Refinable, noise: Float[Array, "draw noise"]) -> Float[Array, "draw dim"]:
    """As many each time, so that all numbers of points share one program."""
    return family.from_noise(noise)


def refine(task: Task, state: AutomaticState, num_points: int) -> AutomaticState:
    """Weighs in the mean curvature at draws of the family."""
    family = state.family
    assert isinstance(family, Refinable)
    dtype = jnp.result_type(*jax.tree.leaves(split(state.family)[0]))
    objective = Objective(task.method.model, dtype)
    half = host_noise(certificate_key(task, state, use=1), (MAX_CURVATURES // 2, family.noise_size))
    noise = jax.device_put(np.asarray(np.stack([half, -half], axis=1).reshape(MAX_CURVATURES, -1), dtype))
    points = np.asarray(_drawn(family, noise), float)[: num_points // 2 * 2]
    trust = max(0.5, len(points) / (state.num_curvatures + len(points)))
    refined = family.with_curvature(mean_curvature(objective, points, family.curvature, trust))
    state = state.spent("curvature", objective.num_gradients)
    return replace(state, rest=split(refined)[1], num_curvatures=state.num_curvatures + len(points))
