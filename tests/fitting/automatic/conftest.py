"""What the tests of automatic fits share: certificates and states made by hand, so that few tests fit."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families import split, started
from dlrd.fitting.automatic.judge.certificate import Certificate
from dlrd.fitting.automatic.plan import Plan, Task, task_for
from dlrd.fitting.automatic.state import AutomaticState, fresh_steps
from dlrd.fitting.history import Recorder
from dlrd.fitting.request import Aim
from dlrd.models import FunctionModel


def normal(z: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(z**2)


@pytest.fixture(scope="session")
def certificate() -> Callable[..., Certificate]:
    """Makes a certificate of a family at its optimum, with what is given changed."""
    seen = Certificate(
        num_draws=256,
        elbo=-1.0,
        elbo_error=0.01,
        gap=0.0,
        gap_error=0.0,
        gain=0.0,
        gain_error=0.0,
        share_bad=0.0,
        share_failed=0.0,
        log_ratios=np.zeros(256),
        gradients=np.zeros((8, 4)),
    )
    return seen._replace


@pytest.fixture(scope="session")
def task() -> Callable[..., Task]:
    """Makes a task: a standard normal in two dimensions, unless a model is given, and parts of the plan."""

    def make(
        model: Any = normal, family: Any = None, gradient: Any = None, aim: Aim | None = None, **plan: Any
    ) -> Task:
        model = FunctionModel(model, (2,)) if callable(model) else model
        family = dlrd.MeanFieldNormal.standard(2) if family is None else family
        return task_for(model, family, jax.random.key(0), gradient, aim or Aim(), Plan(**plan))

    return make


@pytest.fixture(scope="session")
def state() -> Callable[..., AutomaticState]:
    """Makes the state of a task before its first step, with what is given changed."""

    def make(task: Task, family: Any = None, **changed: Any) -> AutomaticState:
        family = started(dlrd.MeanFieldNormal.standard(2) if family is None else family)
        return AutomaticState(
            **(
                {
                    "steps": fresh_steps(task.method, family, task.key, task.first_rate),
                    "rest": split(family)[1],
                    "recorder": Recorder(every=1),
                    "gradients": {"start": 0, "steps": 0, "certificates": 0, "curvature": 0},
                    "origin": family,
                }
                | changed
            )
        )

    return make
