"""The automatic mode, the paper's rule alone, and plain stochastic variational inference by optax's rules."""

import functools
from typing import Any

import equinox as eqx
import jax
import optax
from optax import contrib

from dlrd.bench.peers.answer import Answer, Task
from dlrd.bench.posteriors.cases import FAMILIES
from dlrd.bench.posteriors.optimum import Normal
from dlrd.families import FullRankNormal, MeanFieldNormal, split
from dlrd.fitting import fit
from dlrd.gradients import sticking_the_landing
from dlrd.rates import dynamic_decay

NUM_DRAWS = 8
RATE = 1e-2
"""Of every rule that wants one: the one that the paper starts from."""
GRID = 1e-1, 1e-2, 1e-3, 1e-4
ACCUMULATED = 200
"""Steps whose mean loss is compared by the rule that reduces on a plateau: single ones are all noise."""


def automatic(task: Task) -> Answer:
    """`dlrd.fit` with nothing but its budget."""
    found = fit(
        task.log_density, _start(task), key=task.seed, max_gradients=task.max_gradients, progress=False
    )
    assert found.verdict is not None
    assert isinstance(found.family, (MeanFieldNormal, FullRankNormal))
    return Answer(found.family, found.verdict.num_gradients)


def paper_rule(task: Task) -> Answer:
    """Adam with dynamic learning rate decay, as in the paper."""
    return _answer(task, optax.chain(optax.scale_by_adam(), dynamic_decay(RATE)))


def schedule_free(task: Task) -> Answer:
    """optax's schedule-free Adam, at the parameters that it means to be evaluated."""
    optimizer = contrib.schedule_free_adamw(RATE)
    trained, state = _trained(task, optimizer)
    trainable: Any = split(trained)[0]
    found: Any = contrib.schedule_free_eval_params(state, trainable)
    return Answer(eqx.combine(found, split(trained)[1]), _num_steps(task) * NUM_DRAWS)


def reduce_on_plateau(task: Task) -> Answer:
    """Adam, its rate a tenth each time the mean loss of many steps does not fall any more."""
    rule = contrib.reduce_on_plateau(accumulation_size=ACCUMULATED)
    return _answer(task, optax.chain(optax.adam(RATE), rule))


def static_rates(task: Task) -> list[Answer]:
    """Adam with each rate of a grid; whoever compares takes the best in hindsight."""
    return [_answer(task, optax.adam(rate)) for rate in GRID]


def _start(task: Task) -> Normal:
    return FAMILIES[task.family].standard(task.dim)


def _num_steps(task: Task) -> int:
    return max(1, task.max_gradients // NUM_DRAWS)


def _answer(task: Task, optimizer: optax.GradientTransformation) -> Answer:
    return Answer(_trained(task, optimizer)[0], _num_steps(task) * NUM_DRAWS)


def _trained(task: Task, optimizer: optax.GradientTransformation) -> tuple[Normal, optax.OptState]:
    """The family and the optimiser's state after all steps."""
    extended = optax.with_extra_args_support(optimizer)
    start: Any
    start, rest = split(_start(task))

    @functools.partial(jax.jit, static_argnums=1)
    def run(key: jax.Array, num_steps: int) -> tuple[object, optax.OptState]:
        def step(carry: tuple, key: jax.Array) -> tuple[tuple, None]:
            trainable, state = carry
            estimate = sticking_the_landing(task.log_density, eqx.combine(trainable, rest), key, NUM_DRAWS)
            loss_gradient = jax.tree.map(lambda leaf: -leaf, split(estimate.gradient)[0])
            loss = -estimate.elbo_terms.mean()
            updates, state = extended.update(loss_gradient, state, trainable, value=loss)
            return (optax.apply_updates(trainable, updates), state), None

        carry = (start, extended.init(start))
        return jax.lax.scan(step, carry, jax.random.split(key, num_steps))[0]

    trainable, state = run(jax.random.key(task.seed), _num_steps(task))
    return eqx.combine(trainable, rest), state
