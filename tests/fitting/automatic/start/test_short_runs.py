"""The beginning of an automatic fit: which starts are tried, and which is kept."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.fitting.automatic.judge.certificate import MIN_DRAWS, Certificate
from dlrd.fitting.automatic.plan import FIRST_GRADIENTS, Task
from dlrd.fitting.automatic.start import short_runs
from dlrd.fitting.automatic.start.candidates import Start, as_given
from dlrd.fitting.automatic.start.short_runs import MAX_START_GAP, begin
from dlrd.fitting.automatic.state import AutomaticState, Measured, Search
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.request import Aim

GIVEN = dlrd.MeanFieldNormal.standard(2)
SEARCHED = 100
RUN = FIRST_GRADIENTS + MIN_DRAWS

Begun = Callable[..., AutomaticState]


def at(place: float) -> Any:
    return dlrd.MeanFieldNormal([place, 0.0], [0.0, 0.0]).as_start()


def mode(place: float) -> Start:
    return Start(at(place), f"mode at {place}", True)


def elsewhere(place: float) -> Start:
    return Start(at(place), f"at {place}")


@pytest.fixture
def begun(
    monkeypatch: pytest.MonkeyPatch,
    task: Callable[..., Task],
    state: Callable[..., AutomaticState],
    certificate: Callable[..., Certificate],
) -> Begun:
    """Begins with these starts, whose short runs end with certificates made by hand.

    The ELBO of a start at x is x, and what is changed of its certificate stands under x.
    """

    def make(
        starts: list[Start],
        changed: dict[float, dict[str, Any]] | None = None,
        has_searched: bool = True,
        num_starts: int = 8,
        max_gradients: int = 10**5,
    ) -> AutomaticState:
        made = task(num_starts=num_starts, aim=Aim(max_gradients=max_gradients))

        def short_run(task: Task, family: Any) -> AutomaticState:
            place = float(family.mean[0])
            seen = certificate(elbo=place, **(changed or {}).get(place, {}))
            measured = Measured(family, seen, family, 32)
            spent = {"start": 0, "steps": FIRST_GRADIENTS, "certificates": MIN_DRAWS, "curvature": 0}
            best = None if seen.is_outside else measured
            return state(task, family, gradients=spent, latest=measured, best=best)

        monkeypatch.setattr(short_runs, "_short_run", short_run)
        monkeypatch.setattr(
            short_runs, "_candidates", lambda task, family, given: (list(starts), SEARCHED, has_searched)
        )
        return begin(made, GIVEN)

    return make


def place(state: AutomaticState) -> float:
    return float(state.origin.mean[0])


def test_the_best_is_kept_and_all_are_counted(begun: Begun) -> None:
    found = begun([mode(1.0), mode(3.0), mode(2.0)])
    assert place(found) == 3
    assert found.search == Search(True, (2.0, 1.0))  # so much lower are the others
    assert found.gradients == {
        "start": SEARCHED,
        "steps": 3 * FIRST_GRADIENTS,
        "certificates": 3 * MIN_DRAWS,
        "curvature": 0,
    }


def test_the_best_is_the_one_whose_elbo_is_surely_high(begun: Begun) -> None:
    assert place(begun([mode(1.0), mode(3.0)], {3.0: {"elbo_error": 2.0}})) == 1


def test_a_start_without_a_density_is_not_kept(begun: Begun) -> None:
    assert place(begun([mode(1.0), mode(3.0)], {3.0: {"share_bad": 0.5}})) == 1


def test_other_starts_are_no_other_modes(begun: Begun) -> None:
    assert begun([mode(3.0), elsewhere(1.0), mode(2.0)]).search == Search(True, (1.0,))
    assert begun([elsewhere(3.0), mode(1.0)]).search == Search(True, ())


def test_no_mode_is_told_if_one_was_looked_for(begun: Begun) -> None:
    assert not begun([elsewhere(1.0), elsewhere(2.0)]).search.has_mode
    assert begun([elsewhere(1.0)], has_searched=False).search.has_mode


@pytest.mark.parametrize("name", ["gap", "gain"])
def test_family_as_given_is_tried_too_where_much_is_to_be_gained(begun: Begun, name: str) -> None:
    """At 0: it wins against a mode below."""
    doubtful = {-1.0: {name: 1.1 * MAX_START_GAP}}
    assert place(begun([mode(-1.0)], doubtful)) == 0
    assert begun([mode(-1.0)], doubtful).gradients["steps"] == 2 * FIRST_GRADIENTS
    assert place(begun([mode(-1.0)], {-1.0: {name: 0.9 * MAX_START_GAP}})) == -1
    assert place(begun([mode(-1.0)], doubtful, num_starts=1)) == -1  # one start was asked for
    assert place(begun([mode(-1.0), elsewhere(-2.0)], doubtful)) == -1  # it is among them already


@pytest.mark.parametrize(("num_affordable", "best"), [(0, 1.0), (1, 1.0), (2, 2.0), (3, 3.0)])
def test_budget_limits_the_short_runs(begun: Begun, num_affordable: int, best: float) -> None:
    """But for the first, which there must be."""
    budget = SEARCHED + num_affordable * RUN
    found = begun([mode(1.0), mode(2.0), mode(3.0)], max_gradients=budget)
    assert place(found) == best
    doubtful = {-1.0: {"gap": 2 * MAX_START_GAP}}
    assert place(begun([mode(-1.0)], doubtful, max_gradients=budget)) == (0 if num_affordable > 1 else -1)


@pytest.mark.parametrize(
    "changed",
    [
        {"has_start": False},
        {"is_natural": False},
        {"family": dlrd.Mixture([GIVEN, GIVEN])},
        {"gradient": dlrd.reparameterized},
    ],
    ids=["not wanted", "not natural", "cannot start at a mode", "given estimator"],
)
def test_modes_are_not_always_looked_for(task: Callable[..., Task], changed: dict[str, Any]) -> None:
    family = changed.get("family", GIVEN)
    starts, num_gradients, has_searched = short_runs._candidates(task(**changed), family, as_given(family))
    assert [start.name for start in starts] == ["the family as given"]
    assert (num_gradients, has_searched) == (0, False)


def shifted(z: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum((z - 2.0) ** 2)


def test_search_and_short_run_of_a_normal(task: Callable[..., Task]) -> None:
    """As they are: the mode is found, steps are taken from there, and the family is measured."""
    found = begin(task(shifted, num_starts=2), GIVEN)
    assert found.search == Search(True, ())
    assert found.step == FIRST_GRADIENTS // 8
    assert found.gradients["steps"] == FIRST_GRADIENTS
    assert found.gradients["certificates"] == MIN_DRAWS
    assert found.gradients["start"] > 0
    np.testing.assert_allclose(found.family.mean, 2.0, atol=1e-3)
    assert found.latest is not None
    assert found.latest.step == found.step
    assert not found.is_judged


def test_interrupt_in_a_short_run_ends_the_search(
    task: Callable[..., Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(task: Task, state: AutomaticState, num_steps: int, report: Any) -> AutomaticState:
        steps = state.steps._replace(outcome=jnp.asarray([Outcome.INTERRUPTED.value]))
        return AutomaticState(steps, state.rest, state.recorder, state.gradients, state.origin)

    monkeypatch.setattr(short_runs, "take_steps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        begin(task(has_start=False), GIVEN)


def test_a_step_is_taken_even_with_many_draws(task: Callable[..., Task]) -> None:
    """So that a start without a density is noticed."""
    found = begin(task(lambda z: -jnp.inf + 0 * jnp.sum(z), has_start=False, num_draws=300), GIVEN)
    assert found.steps.outcome[0] == Outcome.DIVERGED.value
