"""The beginning of an automatic fit: which starts are tried, for how long, and which is kept."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import dlrd
from dlrd.families.curvature import MAX_WHOLE
from dlrd.fitting.automatic import plan as plan_module
from dlrd.fitting.automatic.judge.certificate import MIN_DRAWS, Certificate
from dlrd.fitting.automatic.plan import FIRST_GRADIENTS, Task
from dlrd.fitting.automatic.start import short_runs
from dlrd.fitting.automatic.start.candidates import Start
from dlrd.fitting.automatic.start.funnel import Funnel
from dlrd.fitting.automatic.start.short_runs import MAX_START_GAP, NUM_HALVINGS, begin
from dlrd.fitting.automatic.state import AutomaticState, Measured, Search
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.request import Aim

GIVEN = dlrd.MeanFieldNormal.standard(2)
SEARCHED, CLIMBED = 100, 30
"""Gradients of the search for modes, and for footholds."""
RUN = FIRST_GRADIENTS + MIN_DRAWS
DOUBTFUL = 2 * MAX_START_GAP

Begun = Callable[..., AutomaticState]


def at(place: float) -> Any:
    return dlrd.MeanFieldNormal([place, 0.0], [0.0, 0.0]).as_start()


def mode(place: float) -> Start:
    return Start(at(place), f"mode at {place}", True)


def foothold(place: float) -> Start:
    return Start(at(place), f"foothold at {place}")


@pytest.fixture
def begun(
    monkeypatch: pytest.MonkeyPatch,
    task: Callable[..., Task],
    state: Callable[..., AutomaticState],
    certificate: Callable[..., Certificate],
) -> Begun:
    """Begins with these starts, whose runs end with certificates made by hand.

    The ELBO of a start at x is x, and what is changed of its certificate stands under x: of the short run,
    and of each time that it is prolonged, of which the last one stays.
    """

    def make(
        modes: list[Start],
        footholds: list[Start] | None = None,
        changed: dict[float, list[dict[str, Any]]] | None = None,
        max_gradients: int = 10**5,
        **plan: Any,
    ) -> AutomaticState:
        made = task(aim=Aim(max_gradients=max_gradients), **plan)

        def run(family: Any, number: int, before: Measured | None = None) -> AutomaticState:
            place = float(family.mean[0])
            seen = (changed or {}).get(place, [{}])
            measured = Measured(
                family, certificate(**({"elbo": place} | seen[min(number, len(seen) - 1)])), family, 32
            )
            spent = {
                "start": 0,
                "steps": 2**number * FIRST_GRADIENTS,
                "certificates": (number + 1) * MIN_DRAWS,
                "curvature": 0,
            }
            kept = before is not None and before.certificate.elbo_bound >= measured.certificate.elbo_bound
            best = before if kept or measured.certificate.is_outside else measured
            return state(made, family, gradients=spent, latest=measured, best=best, num_agreed=number)

        def searched(found: list[Start], num_gradients: int) -> Callable[..., list[Start]]:
            def search(objective: Any, *args: Any) -> list[Start]:
                objective.num_gradients += num_gradients
                return found

            return search

        monkeypatch.setattr(plan_module, "FIRST_SHARE", 1.0)  # all runs are of the usual length
        monkeypatch.setattr(short_runs, "_short_run", lambda task, family, *spent, **options: run(family, 0))
        monkeypatch.setattr(
            short_runs,
            "_prolonged",
            lambda task, before: run(before.origin, before.num_agreed + 1, before.best),
        )
        monkeypatch.setattr(short_runs, "find_modes", searched(modes, SEARCHED))
        monkeypatch.setattr(short_runs, "find_footholds", searched(footholds or [], CLIMBED))
        return begin(made, GIVEN)

    return make


def place(state: AutomaticState) -> float:
    return float(state.origin.mean[0])


def num_prolonged(state: AutomaticState) -> int:
    """Of the run that is kept."""
    return state.num_agreed


def test_the_best_is_kept_and_all_are_counted(begun: Begun) -> None:
    found = begun([mode(1.0), mode(3.0), mode(2.0)])
    assert place(found) == 3
    assert found.search == Search((2.0, 1.0))  # so much lower are the others
    assert found.gradients == {
        "start": SEARCHED,
        "steps": 3 * FIRST_GRADIENTS,
        "certificates": 3 * MIN_DRAWS,
        "curvature": 0,
    }


def test_the_best_is_the_one_whose_elbo_is_surely_high(begun: Begun) -> None:
    assert place(begun([mode(1.0), mode(3.0)], changed={3.0: [{"elbo_error": 2.0}]})) == 1


def test_a_start_without_a_density_is_not_kept(begun: Begun) -> None:
    assert place(begun([mode(1.0), mode(3.0)], changed={3.0: [{"share_bad": 0.5}]})) == 1


@pytest.mark.parametrize("name", ["gap", "gain"])
@pytest.mark.parametrize(("left", "best"), [(0.9, -1.0), (1.1, 2.0), (np.nan, 2.0)])
def test_footholds_are_tried_where_much_is_to_be_gained_or_nobody_knows(
    begun: Begun, name: str, left: float, best: float
) -> None:
    unsure = {"gap": np.nan, "gain": np.nan} if np.isnan(left) else {name: left * MAX_START_GAP}
    found = begun([mode(-1.0)], [foothold(2.0)], {-1.0: [unsure]})
    assert place(found) == best
    assert found.gradients["start"] == (SEARCHED if best < 0 else SEARCHED + CLIMBED)


def test_one_doubtful_mode_is_enough(begun: Begun) -> None:
    assert place(begun([mode(1.0), mode(0.5)], [foothold(2.0)], {0.5: [{"gap": DOUBTFUL}]})) == 2


def test_footholds_are_tried_where_there_is_no_mode(begun: Begun) -> None:
    found = begun([], [foothold(1.0), foothold(2.0)])
    assert place(found) == 2
    assert found.gradients["start"] == SEARCHED + CLIMBED


def test_family_as_given_is_tried_where_there_is_neither(begun: Begun) -> None:
    """At 0: it wins against a mode below."""
    assert place(begun([])) == 0
    assert place(begun([mode(-1.0)], changed={-1.0: [{"gap": DOUBTFUL}]})) == 0
    assert place(begun([mode(1.0)], changed={1.0: [{"gap": DOUBTFUL}]})) == 1


@pytest.mark.parametrize(
    ("changed", "dim"),
    [({"has_modes": False}, 2), ({}, MAX_WHOLE + 1)],
    ids=["not wanted", "many dimensions"],
)
def test_modes_are_not_looked_for(
    task: Callable[..., Task], monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], dim: int
) -> None:
    family = dlrd.MeanFieldNormal.standard(dim)
    seen: list[str] = []
    monkeypatch.setattr(short_runs, "find_modes", lambda *args: seen.append("modes") or [])
    monkeypatch.setattr(short_runs, "find_footholds", lambda *args: seen.append("footholds") or [])
    monkeypatch.setattr(short_runs, "_short_run", lambda *args, **kwargs: None)
    monkeypatch.setattr(short_runs, "_best", lambda *args, **kwargs: None)
    model = dlrd.models.function(lambda z: -0.5 * jnp.sum(z**2), dim)
    begin(task(model, family, **changed), family)
    assert seen == ["footholds"]


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
def test_nothing_is_looked_for(
    task: Callable[..., Task], monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    """The only run is that of the family as given, which costs no gradients before."""
    kept: list[Any] = []
    monkeypatch.setattr(short_runs, "_short_run", lambda task, family: kept.append(family))
    family = changed.get("family", GIVEN)
    begin(task(**changed), family)
    (found,) = kept
    np.testing.assert_array_equal(jax.tree.leaves(found)[0], jax.tree.leaves(family)[0])


def test_footholds_are_no_other_modes(begun: Begun) -> None:
    doubtful = {1.0: [{"gap": 3.0}]}
    found = begun([mode(3.0), mode(1.0)], [foothold(2.0)], doubtful)
    assert found.search == Search((2.0,))
    # Of modes that are below what is no mode, nothing is said.
    assert begun([mode(1.0), mode(0.5)], [foothold(2.0)], doubtful).search == Search((), is_at_mode=False)


def test_funnel_at_the_start_is_told_of(begun: Begun) -> None:
    funnel = Funnel(0, (1, 2, 3, 4))
    assert begun([], [foothold(1.0)._replace(funnel=funnel)]).search == Search((), funnel, is_at_mode=False)
    others = [foothold(1.0)._replace(funnel=funnel), foothold(2.0)]
    assert begun([], others).search.funnel is None  # not at the one that is kept


@pytest.mark.parametrize(("num_affordable", "best"), [(0, 1.0), (1, 1.0), (2, 2.0), (3, 3.0)])
def test_budget_limits_the_short_runs(begun: Begun, num_affordable: int, best: float) -> None:
    """But for the first, which there must be."""
    budget = SEARCHED + num_affordable * RUN
    assert place(begun([mode(1.0), mode(2.0), mode(3.0)], max_gradients=budget)) == best
    # The starts of those are measured as well.
    budget += CLIMBED + (MIN_DRAWS if num_affordable else 0)
    footholds = [foothold(1.0), foothold(2.0), foothold(3.0)]
    assert place(begun([], footholds, max_gradients=budget)) == best
    # A mode from which something may be gained, and the first foothold.
    found = begun([mode(0.5)], footholds, {0.5: [{"gap": DOUBTFUL}]}, max_gradients=budget)
    assert place(found) == max(best - 1, 0.5)


def test_a_run_that_rises_may_overtake(begun: Begun) -> None:
    """It promises 5 nats from 1, and has 4 by the second time that both are prolonged."""
    rising = [{"gap": 5.0}, {"elbo": 2.0, "gap": 4.0}, {"elbo": 4.0}]
    found = begun([], [foothold(3.0), foothold(1.0)], {1.0: rising})
    assert (place(found), num_prolonged(found)) == (1, 2)
    # Twice prolonged, a run has had four times the gradients of the steps; so has the other.
    assert found.gradients["steps"] == 2 * 4 * FIRST_GRADIENTS
    assert found.gradients["certificates"] == 2 * 3 * MIN_DRAWS


@pytest.mark.parametrize(("gap", "times"), [(1.97, 0), (1.99, NUM_HALVINGS)])
def test_a_run_that_cannot_overtake_is_given_up(begun: Begun, gap: float, times: int) -> None:
    """3 less two standard errors of 0.01 is what it would have to reach from 1."""
    found = begun([], [foothold(3.0), foothold(1.0)], {1.0: [{"gap": gap}]})
    assert (place(found), num_prolonged(found)) == (3, times)
    assert found.gradients["steps"] == 2 * 2**times * FIRST_GRADIENTS


def test_one_of_three_is_given_up_and_the_others_go_on(begun: Begun) -> None:
    changed = {1.0: [{"gap": 1.0}], 2.0: [{"gap": 5.0}, {"gap": 0.5}]}
    found = begun([], [foothold(1.0), foothold(2.0), foothold(3.0)], changed)
    assert (place(found), num_prolonged(found)) == (3, 1)
    assert found.gradients["steps"] == (1 + 2 + 2) * FIRST_GRADIENTS


def test_of_runs_that_cannot_be_told_apart_one_from_a_mode_goes_on(begun: Begun) -> None:
    doubtful = [{"gap": DOUBTFUL}]
    settled = [{"gap": DOUBTFUL}, {"elbo": 2.99}]
    assert place(begun([mode(2.5)], [foothold(3.0)], {2.5: settled})) == 2.5
    assert place(begun([mode(2.5)], [foothold(3.0)], {2.5: [{"gap": DOUBTFUL}, {"elbo": 2.95}]})) == 3
    assert place(begun([mode(2.5)], [foothold(3.0)], {2.5: [doubtful[0] | {"elbo": 2.99}]})) == 3


def test_noise_below_zero_gives_no_run_up(begun: Begun) -> None:
    """What seems to be gained may be less than nothing, and not even the best could then reach itself."""
    seen = {"gap": -0.5, "gain": -0.5, "elbo_error": 0.0}
    assert place(begun([mode(1.0)], [foothold(3.0)], changed={1.0: [{"gap": 9.0}], 3.0: [seen]})) == 3


def test_a_run_that_falls_keeps_the_best_that_it_has_had(begun: Begun) -> None:
    """Both are prolonged; the higher one falls below its own bound, and the other one does not reach it."""
    changed = {3.0: [{}, {"elbo": 0.0}], 1.0: [{"gap": 5.0}, {}]}
    assert place(begun([], [foothold(3.0), foothold(1.0)], changed)) == 3


def test_prolonged_runs_leave_half_of_the_budget(begun: Begun) -> None:
    """To twice the steps: what two short runs have cost, and as much for each of them again, twice."""
    footholds, rising = [foothold(3.0), foothold(1.0)], {1.0: [{"gap": 5.0}]}
    enough = 2 * (SEARCHED + CLIMBED + 2 * RUN + 2 * 2 * RUN)
    assert num_prolonged(begun([], footholds, rising, max_gradients=enough)) == 1
    assert num_prolonged(begun([], footholds, rising, max_gradients=enough - 1)) == 0


def shifted(z: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum((z - 2.0) ** 2)


def test_search_and_short_run_of_a_normal(task: Callable[..., Task]) -> None:
    """As they are: the mode is found, steps are taken from there, and the family is measured."""
    made = task(shifted, num_starts=2)
    found = begin(made, GIVEN)
    assert found.search == Search(())
    assert found.step == FIRST_GRADIENTS // 8
    assert found.gradients["steps"] == FIRST_GRADIENTS
    assert found.gradients["certificates"] == MIN_DRAWS
    assert found.gradients["start"] > 0
    np.testing.assert_allclose(found.family.mean, 2.0, atol=1e-3)
    assert found.latest is not None
    assert found.latest.step == found.step
    assert not found.is_judged
    longer = short_runs._prolonged(made, found)
    assert longer.step == 2 * found.step
    assert longer.gradients["steps"] == 2 * FIRST_GRADIENTS
    assert longer.gradients["certificates"] == 2 * MIN_DRAWS
    assert longer.latest is not None
    assert longer.latest.step == longer.step


def test_prolonged_run_is_one_that_was_never_ended(task: Callable[..., Task]) -> None:
    """Bit for bit, its steps at least: the certificate in between leaves them alone."""
    made = task(shifted, has_start=False)
    short = begin(made, GIVEN)
    twice = short_runs._prolonged(made, short)
    whole = short_runs.run_until(made, replace(short, steps=_fresh(made)), 2 * short.step)
    np.testing.assert_array_equal(twice.family.mean, whole.family.mean)
    np.testing.assert_array_equal(twice.family.std, whole.family.std)


def _fresh(task: Task) -> Any:
    return short_runs.fresh_steps(task.method, GIVEN.as_start(), task.key, task.first_rate)


def test_a_start_that_is_measured_is_what_the_fit_goes_back_to(task: Callable[..., Task]) -> None:
    """From the optimum, steps can only lead away."""
    made = task()
    family = GIVEN.as_start()
    plain, measured = (short_runs._short_run(made, family, is_measured=each) for each in (False, True))
    assert measured.best is not None
    assert measured.best.step == 0
    assert measured.step == plain.step
    assert measured.gradients["certificates"] == plain.gradients["certificates"] + MIN_DRAWS


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


def test_where_a_search_that_was_cut_leads_nowhere_the_family_as_given_is_tried() -> None:
    """Eight schools, centred, whose neck the search was in when its budget ended: sds of 1e9 are no start."""
    effects = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def schools(z: jax.Array) -> jax.Array:
        mean, log_scale, own = z[0], z[1], z[2:]
        scale = jnp.exp(log_scale)
        prior = norm.logpdf(mean, 0, 5) - jnp.log1p((scale / 5) ** 2) + log_scale
        return prior + jnp.sum(norm.logpdf(own, mean, scale)) + jnp.sum(norm.logpdf(effects, own, errors))

    family = dlrd.MeanFieldNormal.standard(10)
    fits = [dlrd.fit(schools, family, key=1, max_gradients=budget, progress=False) for budget in (700, 800)]
    for budget, found in zip((700, 800), fits, strict=True):
        assert found.verdict is not None
        assert found.outcome is dlrd.Outcome.BUDGET
        assert np.isfinite(found.verdict.elbo)
        assert found.verdict.num_gradients <= budget
