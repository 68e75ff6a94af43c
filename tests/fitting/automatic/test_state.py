"""The state of an automatic fit: replaced by the next, never written into."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.fitting.automatic.judge.certificate import Certificate
from dlrd.fitting.automatic.plan import Task
from dlrd.fitting.automatic.state import AutomaticState, Measured
from dlrd.fitting.average import extended
from dlrd.fitting.average import start as empty_average
from dlrd.fitting.outcome import Outcome

MakeTask = Callable[..., Task]
MakeState = Callable[..., AutomaticState]
MakeCertificate = Callable[..., Certificate]

ELSEWHERE = dlrd.MeanFieldNormal([3.0, -2.0], [0.5, 0.25])


def test_fields_cannot_be_written(task: MakeTask, state: MakeState) -> None:
    before = state(task())
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.judged_at = 3  # pyright: ignore[reportAttributeAccessIssue] - refused


def test_gradients_are_counted_by_phase(task: MakeTask, state: MakeState) -> None:
    before = state(task())
    after = before.spent("steps", 5).spent("steps", 2).spent("curvature", 10)
    assert after.gradients == {"start": 0, "steps": 7, "certificates": 0, "curvature": 10}
    assert after.num_gradients == 17
    assert before.num_gradients == 0
    with pytest.raises(KeyError):
        before.spent("naps", 1)


def test_answer_is_the_latest_unless_the_elbo_was_surely_higher(
    task: MakeTask, state: MakeState, certificate: MakeCertificate
) -> None:
    before = state(task())
    assert before.answer(Outcome.BUDGET) is None
    best, near, far = (
        Measured(before.family, certificate(elbo=elbo, elbo_error=0.1), before.family, 1)
        for elbo in (1.0, 0.7, 0.5)
    )
    for latest, outcome, expected in (
        (far, Outcome.BUDGET, best),
        (near, Outcome.BUDGET, near),
        (near, Outcome.DIVERGED, best),
        (far, Outcome.CERTIFIED, far),
    ):
        assert dataclasses.replace(before, best=best, latest=latest).answer(outcome) is expected


def test_fresh_state(task: MakeTask, state: MakeState) -> None:
    fresh = state(task(), ELSEWHERE)
    assert (fresh.step, fresh.judged_at, fresh.num_rollbacks) == (0, 0, 0)
    np.testing.assert_allclose(fresh.rate, 0.3, rtol=1e-6)
    np.testing.assert_array_equal(fresh.family.mean, ELSEWHERE.mean)


def test_family_is_the_average_over_the_tail(task: MakeTask, state: MakeState) -> None:
    """Of places 1, 2 and 4, the first is left out by then."""
    fresh = state(task())
    average: Any = jax.tree.map(lambda leaf: leaf[0], fresh.steps.average)
    trained = jax.tree.map(lambda leaf: leaf[0], fresh.steps.trainable)
    places = [jax.tree.map(lambda leaf, by=by: leaf + by, trained) for by in (1.0, 2.0, 4.0)]
    for place in places:
        average = extended(average, place, jnp.asarray(True))
    steps = fresh.steps._replace(
        average=jax.tree.map(lambda leaf: leaf[None], average),
        trainable=jax.tree.map(lambda leaf: leaf[None], places[-1]),
    )
    averaged = dataclasses.replace(fresh, steps=steps).family
    np.testing.assert_allclose(averaged.mean, 3.0)
    assert averaged.curvature.hessian is fresh.rest.curvature.hessian
    np.testing.assert_array_equal(dataclasses.replace(fresh, steps=steps).last_iterate.mean, 4.0)


def test_family_is_the_latest_where_no_average_is_kept(task: MakeTask, state: MakeState) -> None:
    fresh = state(task(is_averaging=False), ELSEWHERE)
    assert fresh.steps.average is None
    np.testing.assert_array_equal(fresh.family.mean, ELSEWHERE.mean)


def test_restarted_from_another_family(task: MakeTask, state: MakeState) -> None:
    """Steps are not forgotten, and the curvature stays; moments, averages and windows are new."""
    made = task()
    fresh = state(made)
    moving = fresh.steps._replace(
        step=jnp.asarray([40], jnp.int32),
        outcome=jnp.asarray([dlrd.Outcome.DIVERGED.value], jnp.int32),
        trainable=jax.tree.map(lambda leaf: leaf + jnp.nan, fresh.steps.trainable),
        opt_state=jax.tree.map(lambda leaf: leaf + 1, fresh.steps.opt_state),
    )
    before = dataclasses.replace(fresh, steps=moving, num_rollbacks=3)
    after = before.restarted(made.method, ELSEWHERE.as_start(), made.key, 0.125)
    assert (after.step, after.rate, after.num_rollbacks) == (40, 0.125, 3)
    assert after.steps.outcome.tolist() == [dlrd.Outcome.RUNNING.value]
    np.testing.assert_array_equal(after.family.mean, ELSEWHERE.mean)
    np.testing.assert_array_equal(after.family.curvature.hessian, fresh.rest.curvature.hessian)
    empty: Any = empty_average(fresh.steps.trainable)
    np.testing.assert_array_equal(after.steps.average.num_open, empty.num_open)
    assert int(after.steps.opt_state.position[0]) == int(fresh.steps.opt_state.position[0])
    assert np.isnan(before.family.mean).all()  # what was there before is as it was


def test_judged_once_consequences_were_drawn(
    task: MakeTask, state: MakeState, certificate: MakeCertificate
) -> None:
    fresh = state(task())
    assert fresh.is_judged  # there is nothing to judge
    measured = Measured(fresh.origin, certificate(), fresh.origin, step=32)
    looked = dataclasses.replace(fresh, latest=measured)
    assert not looked.is_judged
    assert dataclasses.replace(looked, judged_at=32).is_judged
    assert not dataclasses.replace(looked, judged_at=16).is_judged
