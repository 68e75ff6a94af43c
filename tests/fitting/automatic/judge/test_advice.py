"""What a user is told about a fit: each warning where it is due, and none where it is not."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import dlrd
from dlrd.families import Family, split
from dlrd.fitting.automatic.judge.advice import MIN_DRIFT, warnings
from dlrd.fitting.automatic.judge.certificate import Certificate
from dlrd.fitting.automatic.state import AutomaticState, Search
from dlrd.fitting.average import TailAverage
from dlrd.fitting.history import Recorder
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.step import State

FAMILY = dlrd.MeanFieldNormal([0.0, 1.0], np.log([1.0, 2.0]))
NAMES = ("slope", "offset")
GOOD_TAIL, HEAVY_TAIL = 0.5, 0.9


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
    tail_shape: float = GOOD_TAIL,
) -> list[str]:
    return warnings(state, family, certificate, outcome, tail_shape, NAMES)


def test_nothing_to_say_of_a_good_fit(certificate: Callable[..., Certificate]) -> None:
    assert told(state(), certificate=certificate()) == []
    assert told(state(), tail_shape=float("nan")) == []


def test_draws_without_a_density(certificate: Callable[..., Certificate]) -> None:
    (warning,) = told(state(), certificate=certificate(share_bad=0.125))
    assert warning.startswith("log_density is not finite at 12.5% of the draws, which were left out;")
    assert "Transform bounded parameters" in warning


def test_draws_that_failed(certificate: Callable[..., Certificate]) -> None:
    (warning,) = told(state(), certificate=certificate(share_failed=0.25))
    assert warning.startswith("25.0% of the draws failed and were left out;")


def test_other_modes() -> None:
    (warning,) = told(state(search=Search(True, (2.944, 13.0))))
    assert warning.startswith("2 other mode(s) were found, with an ELBO lower by 2.9, 13;")


def test_no_mode() -> None:
    (warning,) = told(state(search=Search(has_mode=False)))
    assert warning.startswith("no mode was found:")
    assert "non-centred" in warning


@pytest.mark.parametrize(
    ("family", "way_out"),
    [
        (FAMILY, "try dlrd.FullRankNormal, or a flow."),
        (dlrd.FullRankNormal.standard(2), "try a flow, a mixture, or another parameterisation."),
        (dlrd.Mixture([FAMILY, FAMILY]), "try a richer family, or another parameterisation."),
    ],
    ids=["mean-field", "full-rank", "mixture"],
)
def test_heavy_tails_need_another_family(family: Any, way_out: str) -> None:
    (warning,) = told(state(), family, tail_shape=HEAVY_TAIL)
    assert warning.startswith("the posterior has heavier tails or another shape than the family (k̂ > 0.7)")
    assert warning.endswith(way_out)


def test_drift_is_that_of_a_named_coordinate() -> None:
    """The second coordinate has moved further, and less in units of its standard deviation, 2."""
    drifted = state(drift=(-1.0, 1.5))
    assert told(drifted, outcome=Outcome.BUDGET) == [
        "slope still drifted, by 1.0 sd, until the end: raise max_gradients."
    ]
    assert told(state(drift=(0.5, 3.0)), outcome=Outcome.BUDGET) == [
        "offset still drifted, by 1.5 sd, until the end: raise max_gradients."
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
    (warning,) = told(drifted, outcome=Outcome.BUDGET)
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
    assert told(state(drift=drift), outcome=outcome) == []


def test_drift_of_a_family_without_moments_is_not_known() -> None:
    class Bare(eqx.Module):
        loc: jax.Array

        def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
            return self.loc + jax.random.normal(key, (*sample_shape, 2))

        def log_prob(self, x: jax.Array) -> jax.Array:
            return -0.5 * ((x - self.loc) ** 2).sum(axis=-1)

    assert told(state(Bare(FAMILY.loc), drift=(5.0, 5.0)), outcome=Outcome.BUDGET) == []


def test_rollbacks() -> None:
    assert told(state(num_rollbacks=3)) == [
        "the ELBO collapsed 3 time(s); the fit went back and took smaller steps."
    ]


def test_all_at_once(certificate: Callable[..., Certificate]) -> None:
    """What the draws say comes first."""
    all_wrong = state(drift=(5.0, 0.0), search=Search(False, (1.0,)), num_rollbacks=1)
    seen = certificate(share_bad=0.5, share_failed=0.5)
    found = told(all_wrong, certificate=seen, outcome=Outcome.BUDGET, tail_shape=HEAVY_TAIL)
    assert [warning.split()[0] for warning in found] == [
        "log_density",
        "50.0%",
        "1",
        "no",
        "the",
        "slope",
        "the",
    ]
