"""Steps and certificates: what was measured belongs to the family that was measured."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.fitting.automatic.judge.certificate import MIN_DRAWS, Certificate, certify
from dlrd.fitting.automatic.plan import Task
from dlrd.fitting.automatic.state import AutomaticState, Measured
from dlrd.fitting.automatic.steps import stepping
from dlrd.fitting.automatic.steps.stepping import (
    certificate_key,
    lengthen_certificate,
    take_certificate,
    take_steps,
)

NUM_STEPS = 4


def skewed(z: jax.Array) -> jax.Array:
    return jnp.sum(z - jnp.exp(z))


@pytest.fixture(scope="module")
def made(task: Callable[..., Task]) -> Task:
    return task(skewed)


@pytest.fixture(scope="module")
def fresh(made: Task, state: Callable[..., AutomaticState]) -> AutomaticState:
    return state(made)


@pytest.fixture(scope="module")
def reports() -> list[AutomaticState]:
    """Of the steps below."""
    return []


@pytest.fixture(scope="module")
def moved(made: Task, fresh: AutomaticState, reports: list[AutomaticState]) -> AutomaticState:
    return take_steps(made, fresh, NUM_STEPS, reports.append)


@pytest.fixture(scope="module")
def looked(made: Task, moved: AutomaticState) -> AutomaticState:
    return take_certificate(made, moved, MIN_DRAWS)


def assert_same(left: Any, right: Any) -> None:
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(a, b)


def test_steps_are_taken_recorded_and_counted(
    fresh: AutomaticState, moved: AutomaticState, reports: list[AutomaticState]
) -> None:
    assert (fresh.step, moved.step) == (0, NUM_STEPS)
    assert moved.recorder.history().step.tolist() == [1, 2, 3, 4]
    assert moved.gradients["steps"] == NUM_STEPS * 8
    assert moved.steps.outcome.tolist() == [dlrd.Outcome.BUDGET.value]
    assert moved.origin is fresh.origin
    assert [report.step for report in reports][-1] == NUM_STEPS
    assert all(report.gradients["steps"] == 8 * report.step for report in reports)
    assert fresh.recorder.num_steps == 0


def test_certificate_and_its_family_stay_together(
    made: Task, moved: AutomaticState, looked: AutomaticState
) -> None:
    assert looked.latest is not None
    family, seen, came_from, step = looked.latest
    assert step == NUM_STEPS
    assert_same(family, moved.family)
    assert came_from is moved.origin
    again = certify(made.method.model, family, certificate_key(made, moved), MIN_DRAWS, came_from)
    assert_same(seen, again)
    assert looked.best is looked.latest
    assert looked.gradients["certificates"] == MIN_DRAWS
    assert moved.latest is None


def test_the_way_goes_on_from_what_was_measured(looked: AutomaticState) -> None:
    assert looked.latest is not None
    assert looked.origin is looked.latest.family


def test_steps_behind_a_certificate_leave_it_alone(made: Task, looked: AutomaticState) -> None:
    further = take_steps(made, _running(looked), 2 * NUM_STEPS, lambda state: None)
    assert further.step == 2 * NUM_STEPS
    assert further.latest is looked.latest
    assert np.any(further.family.mean != looked.family.mean)


def test_lengthening_keeps_the_draws(made: Task, looked: AutomaticState) -> None:
    longer = lengthen_certificate(made, looked, 2 * MIN_DRAWS)
    assert longer.latest is not None
    assert looked.latest is not None
    before, after = looked.latest.certificate, longer.latest.certificate
    assert after.num_draws == 2 * MIN_DRAWS
    np.testing.assert_array_equal(after.log_ratios[:MIN_DRAWS], before.log_ratios)
    assert longer.latest._replace(certificate=before) == looked.latest
    assert longer.gradients["certificates"] == 2 * MIN_DRAWS  # the new ones alone have been added
    assert longer.origin is looked.origin


def test_each_use_and_each_step_has_a_key_of_its_own(
    made: Task, fresh: AutomaticState, moved: AutomaticState
) -> None:
    keys = [certificate_key(made, state, use) for state in (fresh, moved) for use in range(4)]
    steps = [jax.random.fold_in(made.key, step) for step in range(NUM_STEPS)]
    words = np.stack([jax.random.key_data(key) for key in [*keys, *steps]])
    assert len(np.unique(words, axis=0)) == len(words)


def _running(state: AutomaticState) -> AutomaticState:
    return replace(state, steps=state.steps._replace(outcome=jnp.zeros_like(state.steps.outcome)))


@pytest.mark.parametrize(
    ("changed", "is_kept"),
    [
        ({"elbo": -0.5}, True),
        ({"elbo": -1.5}, False),
        ({"elbo": -0.5, "elbo_error": 1.0}, False),  # higher, and not surely so
        ({"elbo": -0.5, "share_bad": 0.5}, False),
        ({"elbo": -0.5, "share_bad": 1e-4}, True),
        ({}, False),  # the same again
    ],
    ids=["higher", "lower", "unsure", "outside", "hardly outside", "equal"],
)
def test_the_best_is_the_one_with_the_highest_bound(
    fresh: AutomaticState, certificate: Callable[..., Certificate], changed: dict[str, float], is_kept: bool
) -> None:
    first = Measured(fresh.origin, certificate(), fresh.origin, 32)
    second = Measured(fresh.origin, certificate(**changed), fresh.origin, 64)
    once = stepping._kept(fresh, first, 256)
    assert once.best is once.latest is first
    twice = stepping._kept(once, second, 256)
    assert twice.latest is second
    assert twice.best is (second if is_kept else first)
    assert twice.gradients["certificates"] == 512


def test_nothing_outside_is_ever_the_best(
    fresh: AutomaticState, certificate: Callable[..., Certificate]
) -> None:
    outside = Measured(fresh.origin, certificate(share_bad=0.5), fresh.origin, 32)
    assert stepping._kept(fresh, outside, 256).best is None
