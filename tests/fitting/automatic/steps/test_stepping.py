"""Steps and certificates: what was measured belongs to the family that was measured."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families.couplings import couplings
from dlrd.families.pattern import Pattern
from dlrd.families.sparse_curvature import SparseCurvature
from dlrd.fitting.automatic.judge.certificate import MIN_DRAWS, Certificate, certify, correction
from dlrd.fitting.automatic.plan import Task
from dlrd.fitting.automatic.state import AutomaticState, Measured
from dlrd.fitting.automatic.steps import stepping
from dlrd.fitting.automatic.steps.stepping import (
    MAX_TAIL_SHARE,
    MIN_STEPS,
    NUM_DOUBTFUL_DRAWS,
    NUM_TAIL_DRAWS,
    certificate_key,
    correct,
    lengthen_certificate,
    look_at_tail,
    probe,
    probing_cost,
    step_cost,
    steps_for,
    take_certificate,
    take_steps,
    taught,
    with_values,
)
from dlrd.fitting.step import _noise
from dlrd.models import FunctionModel

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
    family, seen, came_from, step, _ = looked.latest
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


def test_corrected_family_is_measured_with_other_draws(made: Task, looked: AutomaticState) -> None:
    assert looked.latest is not None
    moved = correct(made, looked)
    assert moved.latest is not None
    seen, after = looked.latest.certificate, moved.latest.certificate
    assert_same(moved.latest.family, correction(looked.latest.family, seen))
    assert after.num_draws == NUM_TAIL_DRAWS
    assert not np.isin(after.log_ratios[:MIN_DRAWS], seen.log_ratios).any()
    assert after.gap >= seen.corrected_gap
    assert moved.gradients == looked.gradients  # values of a model in jax do not count
    assert moved.origin is looked.origin
    # The draws behind k̂ are of the same kind.
    longer = with_values(made, moved.latest).certificate
    np.testing.assert_array_equal(longer.log_ratios[:NUM_TAIL_DRAWS], after.log_ratios)
    assert (longer.gap, longer.gap_error) == (after.gap, after.gap_error)


def test_values_alone_are_those_of_a_longer_certificate(made: Task, looked: AutomaticState) -> None:
    assert looked.latest is not None
    before, after = looked.latest.certificate, with_values(made, looked.latest).certificate
    certified = lengthen_certificate(made, looked, NUM_TAIL_DRAWS).latest
    assert certified is not None
    assert after.num_draws == NUM_TAIL_DRAWS
    # They are differences of log densities, of up to ten nats, whose rounding does not shrink with them.
    rounding = 10 * np.finfo(np.float32).eps
    np.testing.assert_allclose(after.log_ratios, certified.certificate.log_ratios, rtol=1e-5, atol=rounding)
    assert (after.gap, after.gain) == (before.gap, before.gain)
    assert after.elbo == np.mean(after.log_ratios)
    assert look_at_tail(made, looked) is looked  # costs nothing where values are cheap


def test_doubtful_tails_get_more_values(
    made: Task, looked: AutomaticState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large k̂ of ratios that are all near one."""
    assert looked.latest is not None
    for shape, apart, num_draws in (
        (0.6, 0.001, NUM_TAIL_DRAWS),
        (0.8, 0.02, NUM_TAIL_DRAWS),
        (0.8, 0.001, NUM_DOUBTFUL_DRAWS),
    ):
        monkeypatch.setattr(stepping, "tail_shape", lambda ratios, shape=shape: (shape, 0.1))
        monkeypatch.setattr(stepping, "divergence", lambda ratios, apart=apart: apart)
        assert with_values(made, looked.latest).certificate.num_draws == num_draws


class Outside(FunctionModel):
    """As models outside jax, whose values are as dear as gradients."""

    can_fail = True


@pytest.fixture(scope="module")
def outside(made: Task) -> Task:
    return made._replace(method=made.method._replace(model=Outside(skewed, (2,))))


def test_tail_is_looked_at_longer(outside: Task, looked: AutomaticState) -> None:
    """With so much spent that all the draws are little beside it: those of a longer certificate."""
    rich = looked.spent("start", int(NUM_TAIL_DRAWS / MAX_TAIL_SHARE))
    longer = look_at_tail(outside, rich)
    assert longer.latest is not None
    assert longer.latest.certificate.num_draws == NUM_TAIL_DRAWS
    certified = lengthen_certificate(outside, rich, NUM_TAIL_DRAWS).latest
    assert certified is not None
    rounding = 10 * np.finfo(np.float32).eps
    ratios = longer.latest.certificate.log_ratios
    np.testing.assert_allclose(ratios, certified.certificate.log_ratios, rtol=1e-5, atol=rounding)
    assert longer.gradients["certificates"] == NUM_TAIL_DRAWS
    assert look_at_tail(outside, longer).latest is longer.latest  # once is enough
    assert with_values(outside, longer.latest) is longer.latest


@pytest.mark.parametrize(("spent", "num_more"), [(MIN_DRAWS, 1), (2 * MIN_DRAWS - 1, 1), (MIN_DRAWS - 1, 0)])
def test_tail_is_looked_at_for_a_tenth_of_what_was_spent(
    outside: Task, looked: AutomaticState, spent: int, num_more: int
) -> None:
    missing = int(spent / MAX_TAIL_SHARE) - looked.num_gradients
    longer = look_at_tail(outside, looked.spent("start", missing))
    assert longer.latest is not None
    assert longer.latest.certificate.num_draws == (1 + num_more) * MIN_DRAWS


def test_tail_is_looked_at_within_the_budget(outside: Task, looked: AutomaticState) -> None:
    for left, num_draws in ((2 * MIN_DRAWS - 1, 2 * MIN_DRAWS), (MIN_DRAWS - 1, MIN_DRAWS)):
        spent = outside.max_gradients - left - looked.num_gradients
        longer = look_at_tail(outside, looked.spent("start", spent))
        assert longer.latest is not None
        assert longer.latest.certificate.num_draws == num_draws


def test_no_tail_without_a_certificate(made: Task, moved: AutomaticState) -> None:
    assert look_at_tail(made, moved) is moved


def test_each_use_and_each_step_has_a_key_of_its_own(
    made: Task, fresh: AutomaticState, moved: AutomaticState
) -> None:
    keys = [certificate_key(made, state, use) for state in (fresh, moved) for use in range(5)]
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


CHAIN_DIM = 12


def chained(z: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(z**2) - 0.5 * jnp.sum(jnp.diff(z) ** 2)


@pytest.fixture(scope="module")
def of_chain(
    task: Callable[..., Task], state: Callable[..., AutomaticState]
) -> Callable[..., tuple[Task, AutomaticState]]:
    """A fit that takes Hessians: of a chain, in which three colours tell neighbours apart."""
    found = couplings(Pattern(CHAIN_DIM, np.arange(1, CHAIN_DIM), np.arange(CHAIN_DIM - 1)))
    assert found is not None
    assert found.coloring.num_colors == 3
    given = dlrd.SparseNormal.standard(CHAIN_DIM)
    family = given.at_mode(np.zeros(CHAIN_DIM), SparseCurvature.unit(found))

    def make(num_draws: int) -> tuple[Task, AutomaticState]:
        made = task(dlrd.models.function(chained, CHAIN_DIM), given, num_draws=num_draws)
        return made, state(made, family)

    return make


def test_a_step_costs_a_gradient_a_draw(made: Task, fresh: AutomaticState) -> None:
    assert step_cost(made, fresh) == 8
    assert [steps_for(made, fresh, budget) for budget in (256, 15, 7)] == [32, 1, 1]


def test_a_step_with_hessians_costs_two_more_for_each_colour_of_two_draws(
    of_chain: Callable[..., tuple[Task, AutomaticState]],
) -> None:
    assert step_cost(*of_chain(8)) == 8 + 2 * 3 * 2
    assert step_cost(*of_chain(1)) == 1 + 2 * 3  # of the only draw
    assert [steps_for(*of_chain(8), budget) for budget in (4096, 256)] == [204, MIN_STEPS]


def test_steps_with_hessians_are_counted_with_them(
    of_chain: Callable[..., tuple[Task, AutomaticState]],
) -> None:
    after = take_steps(*of_chain(8), NUM_STEPS, lambda state: None)
    assert after.gradients["steps"] == NUM_STEPS * 20


def test_draws_of_steps_with_hessians_come_with_their_mirror_images(
    of_chain: Callable[..., tuple[Task, AutomaticState]],
) -> None:
    """An odd number of draws cannot."""
    for num_draws, is_paired in ((8, True), (7, False)):
        made, fresh = of_chain(num_draws)
        assert made.method.draws == ("sobol_pairs" if is_paired else "sobol")
        one = jax.tree.map(lambda leaf: leaf[0], fresh.steps)
        noise = np.asarray(_noise(made.method, fresh.origin, one))
        assert noise.shape == (num_draws, CHAIN_DIM)
        assert np.array_equal(noise[: num_draws // 2], -noise[-(num_draws // 2) :]) == is_paired


def test_what_a_certificate_shows_is_taught(
    task: Callable[..., Task], state: Callable[..., AutomaticState]
) -> None:
    """What was measured stays as it was measured, and can be prolonged; the steps that follow know more."""
    full_rank = dlrd.FullRankNormal.standard(2)
    made = task(lambda z: -0.5 * jnp.sum(z**2) - 0.1 * jnp.sum(z**4), full_rank)
    begun = state(made, full_rank)
    assert taught(begun) is begun
    longer = lengthen_certificate(made, take_certificate(made, begun, MIN_DRAWS), 4 * MIN_DRAWS)
    whole = take_certificate(made, begun, 4 * MIN_DRAWS)
    assert longer.latest is not None
    assert whole.latest is not None
    lessons: Any = longer.latest.certificate.lessons
    np.testing.assert_allclose(whole.latest.certificate.lessons, lessons, rtol=1e-5)
    knowing: Any = taught(longer).family
    np.testing.assert_array_equal(knowing.fourths.values, begun.origin.taught(lessons).fourths.values)
    assert np.all(knowing.fourths.values < 0)
    assert_same(taught(longer).latest, longer.latest)


def test_a_family_that_cannot_be_taught_stays(looked: AutomaticState) -> None:
    assert taught(looked) is looked


def test_flat_ways_are_looked_for_and_counted(made: Task, looked: AutomaticState) -> None:
    assert looked.latest is not None
    family, seen = looked.latest.family, looked.latest.certificate
    most = probing_cost(made.method.model, family, seen)
    probed = probe(made, looked)
    assert probed.latest is not None
    assert most is not None
    assert 0 < probed.num_gradients - looked.num_gradients <= most
    known = probed.latest.certificate
    assert known.flat_ways is not None
    assert len(known.flat_ways) > 0
    np.testing.assert_allclose(known.gap, seen.gap + known.flat_gap, atol=1e-9)
    assert_same(probed.latest.family, family)
    # Of a family whose coordinates turn with it, two gradients cannot be compared.
    assert probing_cost(made.method.model, dlrd.FullRankNormal.standard(2), seen) is None
