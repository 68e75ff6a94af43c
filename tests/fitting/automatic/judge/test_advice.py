"""What a user is told about a fit: each warning where it is due, and none where it is not."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import dlrd
from dlrd.families import Family, split
from dlrd.fitting.automatic.judge.advice import MIN_DRIFT, warnings
from dlrd.fitting.automatic.judge.certificate import Certificate
from dlrd.fitting.automatic.start.funnel import Funnel
from dlrd.fitting.automatic.state import AutomaticState, Search
from dlrd.fitting.average import TailAverage
from dlrd.fitting.history import Recorder
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.step import State

FAMILY = dlrd.MeanFieldNormal([0.0, 1.0], np.log([1.0, 2.0]))
MODEL = dlrd.models.function(lambda z: -0.5 * (z @ z), 2, names=("slope", "offset"))
TOLERANCE = 0.01


def state(family: Any = FAMILY, drift: tuple[float, float] | None = None, **changed: Any) -> AutomaticState:
    """Without a step; with a drift, of one whose tail average has moved by so much."""
    trained, rest = split(family)
    average = None
    if drift is not None:
        moved = eqx.tree_at(lambda q: q.loc, trained, family.loc + np.asarray(drift))
        # The newer stretch is so much shorter that the average is at the older one.
        counts = np.array([10**9]), np.array([1])
        average = TailAverage(_of_one_run(trained), _of_one_run(moved), *counts)
    steps: Any = State(_of_one_run(trained), (), np.zeros(1), np.zeros(1), None, None, average)
    return AutomaticState(steps, rest, Recorder(every=1), {"start": 0}, family, **changed)


def _of_one_run(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], tree)


def told(
    state: AutomaticState,
    family: Family = FAMILY,
    certificate: Certificate | None = None,
    outcome: Outcome = Outcome.CERTIFIED,
    is_far: bool = False,
    model: dlrd.models.Model = MODEL,
) -> list[str]:
    return warnings(state, family, certificate, outcome, is_far, model, TOLERANCE)


def test_nothing_to_say_of_a_good_fit(certificate: Callable[..., Certificate]) -> None:
    assert told(state(), certificate=certificate()) == []


def test_draws_without_a_density(certificate: Callable[..., Certificate]) -> None:
    (warning,) = told(state(), certificate=certificate(share_bad=0.125))
    assert warning.startswith("log_density is not finite at 12.5% of the draws, which were left out;")
    assert "Transform bounded parameters" in warning


def test_draws_that_failed(certificate: Callable[..., Certificate]) -> None:
    (warning,) = told(state(), certificate=certificate(share_failed=0.25))
    assert warning.startswith("25.0% of the draws failed and were left out;")


def test_other_modes() -> None:
    (warning,) = told(state(search=Search((2.944, 13.0))))
    assert warning.startswith("2 other mode(s) were found, with an ELBO lower by 2.9, 13;")


@pytest.mark.parametrize(
    ("others", "along"), [((1,), "along offset depends"), ((1, 1, 1, 1, 1), "and 2 more depends")]
)
def test_a_funnel_is_named_by_its_coordinates(others: tuple[int, ...], along: str) -> None:
    (warning,) = told(state(search=Search(funnel=Funnel(0, others))))
    assert along in warning
    assert "depends on slope, as in a funnel" in warning
    assert "non-centred" in warning


class Hierarchy(dlrd.models.FunctionModel):
    """A model that can be parameterised otherwise, along its second coordinate."""

    def __init__(self) -> None:
        super().__init__(MODEL.log_density, MODEL.shape, MODEL.names)

    def reparameterization(self, coordinates: Sequence[int]) -> str | None:
        return 'reparam("offset")' if 1 in coordinates else None


def test_a_model_that_knows_another_parameterisation_says_how() -> None:
    (warning,) = told(state(search=Search(funnel=Funnel(0, (1,)))), model=Hierarchy())
    assert warning.endswith('would help, as reparam("offset").')
    (warning,) = told(state(search=Search(funnel=Funnel(1, (0,)))), model=Hierarchy())
    assert warning.endswith("would help.")
    (warning,) = told(state(), is_far=True, model=Hierarchy())
    assert warning.endswith('; a centred hierarchy may gain from reparam("offset").')


def test_a_budget_that_was_too_small_says_what_it_would_take(certificate: Callable[..., Certificate]) -> None:
    """The gap is at most 0.1, half the tolerance is wanted: 20 times the 1,000 gradients."""
    spent = replace(state(), gradients={"start": 400, "steps": 600})
    seen = certificate(gap=0.08, gap_error=0.01)
    (warning,) = told(spent, certificate=seen, outcome=Outcome.BUDGET)
    assert "up to 0.1 nats below the best nearby" in warning
    assert "max_gradients=20,000 would about be enough" in warning
    assert told(spent, certificate=seen) == []


def test_a_budget_that_ended_without_a_certificate() -> None:
    assert told(state(), outcome=Outcome.BUDGET) == [
        "the budget ended before the fit was sure: raise max_gradients."
    ]


@pytest.mark.parametrize(
    ("family", "way_out"),
    [
        (FAMILY, "try no family at all: dlrd.fit then goes on to richer normals, as far as that pays."),
        (dlrd.FullRankNormal.standard(2), "try another parameterisation."),
        (dlrd.Mixture([FAMILY, FAMILY]), "try a richer family, or another parameterisation."),
    ],
    ids=["mean-field", "full-rank", "mixture"],
)
def test_heavy_tails_need_another_family(family: Any, way_out: str) -> None:
    (warning,) = told(state(), family, is_far=True)
    assert warning.startswith("the posterior has heavier tails or another shape than the family (k̂ > 0.7)")
    assert warning.endswith(way_out)


def test_drift_is_that_of_a_named_coordinate() -> None:
    """The second coordinate has moved further, and less in units of its standard deviation, 2."""
    drifted = state(drift=(-1.0, 1.5))
    assert told(drifted, outcome=Outcome.BUDGET)[1:] == ["slope still drifted, by 1.0 sd, until the end."]
    assert told(state(drift=(0.5, 3.0)), outcome=Outcome.BUDGET)[1:] == [
        "offset still drifted, by 1.5 sd, until the end."
    ]


def test_drift_is_seen_through_the_working_form() -> None:
    """A curved family is named by the coordinates of the normal that it carries."""
    curved = FAMILY.as_start()
    moved: Any = state(curved)
    closed = _of_one_run(split(curved)[0])
    opened = jax.tree.map(lambda leaf: leaf + 2.0, closed)
    average = TailAverage(closed, opened, np.array([10**9]), np.array([1]))
    steps = moved.steps._replace(average=average)
    drifted = AutomaticState(steps, moved.rest, moved.recorder, moved.gradients, curved)
    _, warning = told(drifted, outcome=Outcome.BUDGET)
    assert warning.startswith("slope still drifted, by 2.0 sd,")


@pytest.mark.parametrize(
    ("drift", "outcome"),
    [
        ((0.99 * MIN_DRIFT, 0.0), Outcome.BUDGET),  # not far
        ((5.0, 0.0), Outcome.CERTIFIED),  # on its way to where it is now
        (None, Outcome.BUDGET),  # not known
    ],
)
def test_drift_that_is_none(drift: tuple[float, float] | None, outcome: Outcome) -> None:
    assert not any("drifted" in warning for warning in told(state(drift=drift), outcome=outcome))


def test_drift_of_a_family_without_moments_is_not_known() -> None:
    class Bare(eqx.Module):
        loc: jax.Array

        def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
            return self.loc + jax.random.normal(key, (*sample_shape, 2))

        def log_prob(self, x: jax.Array) -> jax.Array:
            return -0.5 * ((x - self.loc) ** 2).sum(axis=-1)

    found = told(state(Bare(FAMILY.loc), drift=(5.0, 5.0)), outcome=Outcome.BUDGET)
    assert not any("drifted" in warning for warning in found)


def test_rollbacks() -> None:
    assert told(state(num_rollbacks=3)) == [
        "the ELBO collapsed 3 time(s); the fit went back and took smaller steps."
    ]


def test_all_at_once(certificate: Callable[..., Certificate]) -> None:
    """What the draws say comes first."""
    search = Search((1.0,), Funnel(0, (1,)))
    all_wrong = state(drift=(5.0, 0.0), search=search, num_rollbacks=1)
    seen = certificate(share_bad=0.5, share_failed=0.5)
    found = told(all_wrong, certificate=seen, outcome=Outcome.BUDGET, is_far=True)
    assert [warning.split()[0] for warning in found] == [
        "log_density",
        "50.0%",
        "1",
        "how",
        "the",
        "the",
        "slope",
        "the",
    ]
