"""What follows from a certificate: every branch of the decision."""

from typing import Any

import numpy as np
import pytest

from dlrd.fitting.automatic.judge.certificate import MIN_DRAWS, Certificate
from dlrd.fitting.automatic.judge.stopping import (
    CAUTION,
    MIN_OUTSIDE,
    MIN_SETTLED,
    Action,
    Decision,
    Evidence,
    decide,
    is_confirmed,
)
from dlrd.fitting.automatic.plan import Plan
from dlrd.fitting.outcome import Outcome

TOLERANCE = 0.01
SURE: dict[str, Any] = {"gap": 0.001, "gap_error": 0.0005, "gain": 0.0, "gain_error": 0.001}
"""A bound of 0.002 on the gap, below half the tolerance."""
NOISY = SURE | {"gap_error": 0.004}
OUTSIDE = SURE | {"share_bad": 0.1}
FAR: dict[str, Any] = {"gain": 0.5, "gain_error": 0.1}
FALLEN: dict[str, Any] = {"elbo": -14.03}
"""By more than 1 + √9, of nine parameters, and by more than five standard errors."""
NOT_KNOWN: dict[str, Any] = dict.fromkeys(SURE, np.nan)


def evidence(seen: dict[str, Any], **changed: Any) -> Evidence:
    """Of a fit in its middle, with plenty of budget."""
    certificate = Certificate(
        **{
            "num_draws": 1024,
            "elbo": -10.0,
            "elbo_error": 0.01,
            "gap": 1.0,
            "gap_error": 0.01,
            "gain": 0.0,
            "gain_error": 0.001,
            "share_bad": 0.0,
            "share_failed": 0.0,
            "log_ratios": np.zeros(0),
            "gradients": np.zeros((8, 9)),
        }
        | seen
    )
    return Evidence(
        **{
            "certificate": certificate,
            "tolerance": TOLERANCE,
            "step_gradients": 4096,
            "num_left": 50_000,
            "best_bound": -10.02,
        }
        | changed
    )


def decided(seen: dict[str, Any], plan: Plan | None = None, **changed: Any) -> Decision:
    return decide(evidence(seen, **changed), plan or Plan())


def test_a_gap_still_to_be_closed_goes_on() -> None:
    assert decided({}) == Decision(Action.GO_ON)


def test_a_sure_certificate_stops() -> None:
    assert decided(SURE) == Decision(Action.STOP, Outcome.CERTIFIED)
    # Just below half the tolerance, and just above, with draws enough for nothing more to be learned.
    edge = {"gap": 0.0, "gap_error": 0.0025, "num_draws": 4096}
    assert decided(SURE | edge).action is Action.STOP
    assert decided(SURE | edge | {"gap_error": 0.0026}).action is Action.GO_ON


def test_what_another_move_would_gain_must_be_small_too() -> None:
    assert decided(SURE | {"gain": 0.009, "num_draws": 4096}).action is Action.GO_ON


AWAY: dict[str, Any] = {"is_at_mode": False, "tolerance": 0.4}
"""From modes, with a tolerance that is wider than the usual one, as it is in many dimensions."""


def test_a_wide_tolerance_is_strict_at_first_away_from_modes() -> None:
    """A bound of 0.05 on the gap would be a quarter of the half that is asked for."""
    seen = {"gap": 0.04, "gap_error": 0.005}
    assert decided(seen, **AWAY, step_gradients=MIN_SETTLED).outcome is Outcome.CERTIFIED
    assert decided(seen, **AWAY, step_gradients=MIN_SETTLED - 1).action is Action.GO_ON
    assert decided(seen, tolerance=0.4, step_gradients=MIN_SETTLED - 1).outcome is Outcome.CERTIFIED
    surest = SURE | {"gap": 0.0, "gap_error": 0.0, "gain": 0.0, "gain_error": 0.0}
    assert decided(surest, **AWAY, step_gradients=MIN_SETTLED - 1).outcome is Outcome.CERTIFIED


def test_a_narrow_tolerance_is_the_same_at_first() -> None:
    for narrow in (TOLERANCE, 0.001):
        for step_gradients in (MIN_SETTLED - 1, MIN_SETTLED):
            found = evidence(SURE, tolerance=narrow, step_gradients=step_gradients, is_at_mode=False)
            assert found.certain_tolerance == CAUTION * narrow


def test_strict_at_first_draws_are_not_wasted_on_what_is_not_near() -> None:
    """What noise keeps from a wide tolerance is looked at longer only where that counts already."""
    seen = {"gap": 0.04, "gap_error": 0.1}
    assert decided(seen, **AWAY, step_gradients=MIN_SETTLED - 1).action is Action.GO_ON
    again = decided(seen | {"num_draws": 512}, **AWAY, step_gradients=MIN_SETTLED)
    assert again == Decision(Action.LOOK_LONGER, num=1024)


CORRECTABLE: dict[str, Any] = {"gap": 0.008, "gap_error": 0.001, "noise": 0.004, "corrected_error": 0.001}
"""A gap of a third of the noise, 0.0027, would be left, and a bound of 0.0047."""


def test_a_correction_that_makes_sure_is_taken() -> None:
    assert decided(CORRECTABLE) == Decision(Action.CORRECT)
    assert decided(CORRECTABLE | {"share_bad": 0.0005}).action is Action.GO_ON
    assert decided(CORRECTABLE | {"gain": 0.02}).action is not Action.CORRECT
    assert decided(CORRECTABLE | {"corrected_error": 0.0012}).action is not Action.CORRECT
    assert decided({"gap": 0.008, "gap_error": 0.001}).action is Action.GO_ON  # none is possible
    # However little noise there is: from far away, the gradient does not lead to the optimum.
    assert decided(CORRECTABLE | {"gap": 0.0101}).action is not Action.CORRECT
    assert decided(CORRECTABLE, done=frozenset({Action.CORRECT})).action is Action.GO_ON
    # What it takes to confirm it is the budget's.
    assert decided(CORRECTABLE, num_left=512, confirming_cost=512).action is Action.CORRECT
    assert decided(CORRECTABLE, num_left=511, confirming_cost=512).action is not Action.CORRECT


def test_a_correction_counts_once_the_elbo_does_not_contradict_it() -> None:
    """To the tolerance itself: that half of it would be left was the condition for trying."""
    for is_at_mode, allowed in ((True, TOLERANCE), (False, CAUTION * TOLERANCE)):
        before = evidence(CORRECTABLE, is_at_mode=is_at_mode)
        for gap, is_right in ((allowed - 0.0021, True), (allowed - 0.0019, False)):
            corrected = before.certificate._replace(gap=gap, gap_error=0.001)
            assert is_confirmed(corrected, before) == is_right
            assert not is_confirmed(corrected._replace(share_bad=0.0005), before)


def test_looks_longer_where_that_makes_a_correction_good_enough() -> None:
    """Half the noise would leave a gap of 0.004, and half the error a bound of 0.005, the largest allowed."""
    seen = CORRECTABLE | {"noise": 0.0160, "num_draws": 1024}
    assert decided(seen | {"corrected_error": 0.0009}) == Decision(Action.LOOK_LONGER, num=2048)
    assert decided(seen | {"corrected_error": 0.0011}).action is Action.GO_ON
    assert decided(seen | {"noise": 0.0172, "corrected_error": 0.0009}).action is Action.GO_ON
    assert decided(seen | {"corrected_error": 0.0009}, step_gradients=2000).action is Action.GO_ON


@pytest.mark.parametrize("seen", [SURE, NOT_KNOWN])
def test_draws_without_a_density_are_no_answer(seen: dict[str, Any]) -> None:
    few_bad = {"share_bad": 0.0005}
    done = frozenset({Action.COMPARE})
    assert decided(seen | few_bad, num_agreed=2, done=done).action is Action.GO_ON


def test_failed_draws_say_nothing() -> None:
    assert decided(SURE | {"share_failed": 0.2}) == Decision(Action.STOP, Outcome.CERTIFIED)


def test_looks_longer_where_noise_alone_keeps_it_from_being_sure() -> None:
    assert decided(NOISY) == Decision(Action.LOOK_LONGER, num=2048)


def test_looks_longer_also_again() -> None:
    again = decided(NOISY | {"num_draws": 2000}, done=frozenset({Action.LOOK_LONGER}))
    assert again == Decision(Action.LOOK_LONGER, num=4000)


@pytest.mark.parametrize(
    ("seen", "changed"),
    [
        ({"gap": 0.0026}, {}),
        ({"gain": 0.0051}, {}),
        ({"num_draws": 2048}, {}),
        ({}, {"num_left": 1023}),
    ],
    ids=["the gap is large", "the gain is large", "half the steps' gradients", "the budget"],
)
def test_looks_longer_not_where_that_would_not_help(seen: dict[str, Any], changed: dict[str, Any]) -> None:
    assert decided(NOISY | seen, **changed).action is not Action.LOOK_LONGER


def test_outside_ends_the_fit() -> None:
    assert decided(OUTSIDE, step_gradients=MIN_OUTSIDE) == Decision(Action.STOP, Outcome.DIVERGED)


def test_outside_but_not_at_first() -> None:
    assert decided(OUTSIDE, step_gradients=MIN_OUTSIDE - 1).action is not Action.STOP


def test_rolls_back_where_the_elbo_has_fallen() -> None:
    assert decided(FALLEN) == Decision(Action.ROLL_BACK)


def test_rolls_back_not_where_it_has_fallen_less() -> None:
    assert decided({"elbo": -14.01}).action is Action.GO_ON
    assert decided(FALLEN | {"elbo_error": 0.81}).action is Action.GO_ON
    assert decided(FALLEN, best_bound=-np.inf).action is Action.GO_ON


def test_rolls_back_ends_where_there_is_nothing_to_go_back_to() -> None:
    assert decided(FALLEN, can_roll_back=False) == Decision(Action.STOP, Outcome.DIVERGED)


def test_rolls_back_without_a_gradient_a_nat_is_enough() -> None:
    seen = NOT_KNOWN | {"gradients": None, "elbo": -11.03}
    assert decided(seen).action is Action.ROLL_BACK


def test_strides_where_moving_on_surely_gains() -> None:
    assert decided(FAR) == Decision(Action.STRIDE)
    assert decided({"gain": 0.02, "gain_error": 0.0051}).action is Action.GO_ON


def test_strides_away_from_modes_where_that_alone_keeps_it_from_being_certain() -> None:
    """Else it would wait for steps to gain what a stride might."""
    seen = SURE | {"gain": 0.007, "gain_error": 0.0005}
    assert decided(seen, **AWAY, step_gradients=MIN_SETTLED).action is not Action.STRIDE
    seen = SURE | {"gain": CAUTION * 0.4 + 0.02, "gain_error": 0.005}
    assert decided(seen, **AWAY, step_gradients=MIN_SETTLED).action is Action.STRIDE
    assert decided(seen, tolerance=0.4).outcome is Outcome.CERTIFIED


def test_strides_once() -> None:
    assert decided(FAR, done=frozenset({Action.STRIDE})).action is Action.GO_ON


def test_strides_not_if_switched_off() -> None:
    assert decided(FAR, Plan(has_strides=False)).action is Action.GO_ON


def test_refines_with_half_the_gradients_of_the_steps() -> None:
    assert decided({}, refining_cost=100) == Decision(Action.REFINE, num=20)
    assert decided({}, refining_cost=1).num == 32  # at the most


def test_refines_within_the_budget() -> None:
    assert decided({}, refining_cost=100, num_left=700).num == 7


def test_refines_not_for_fewer_than_four() -> None:
    assert decided({}, refining_cost=512).num == 4
    assert decided({}, refining_cost=513).action is Action.GO_ON


def test_refines_once_and_behind_a_stride() -> None:
    assert decided(FAR, refining_cost=100).action is Action.STRIDE
    assert decided(FAR, refining_cost=100, done=frozenset({Action.STRIDE})).action is Action.REFINE
    both = frozenset({Action.STRIDE, Action.REFINE})
    assert decided(FAR, refining_cost=100, done=both).action is Action.GO_ON


def test_refines_not_if_switched_off() -> None:
    assert decided({}, Plan(is_updating=False), refining_cost=100).action is Action.GO_ON


def test_without_a_gap_compares_with_the_family_before() -> None:
    assert decided(NOT_KNOWN) == Decision(Action.COMPARE, num=256)  # a quarter of the draws
    assert decided(NOT_KNOWN | {"num_draws": 256}).num == MIN_DRAWS // 2


def test_without_a_gap_within_the_budget() -> None:
    assert decided(NOT_KNOWN, num_left=135) == Decision(Action.COMPARE, num=64)
    assert decided(NOT_KNOWN, num_left=63) == Decision(Action.GO_ON)


def test_without_a_gap_there_is_nothing_before_the_first() -> None:
    assert decided(NOT_KNOWN, is_first=True) == Decision(Action.GO_ON)


def test_without_a_gap_two_in_a_row_agree() -> None:
    done = frozenset({Action.COMPARE})
    assert decided(NOT_KNOWN, done=done, num_agreed=1) == Decision(Action.GO_ON)
    assert decided(NOT_KNOWN, done=done, num_agreed=2) == Decision(Action.STOP, Outcome.AGREED)


def test_a_decision_depends_on_nothing_else() -> None:
    for seen in (SURE, NOT_KNOWN, FAR, FALLEN):
        assert decided(seen) == decided(seen)


def test_away_from_modes_a_gap_must_be_smaller() -> None:
    """There, gradients tell of less than there is."""
    near = evidence(SURE, tolerance=1.0, step_gradients=MIN_SETTLED)
    far = near._replace(is_at_mode=False)
    assert near.certain_tolerance == 1.0
    assert far.certain_tolerance == CAUTION
    doubtful = {"gap": 0.4, "gap_error": 0.0, "gain": 0.0, "gain_error": 0.0, "num_draws": 10**6}
    assert decided(doubtful, tolerance=1.0, step_gradients=MIN_SETTLED).outcome is Outcome.CERTIFIED
    cautious = decided(doubtful, tolerance=1.0, step_gradients=MIN_SETTLED, is_at_mode=False)
    assert cautious.outcome is not Outcome.CERTIFIED


PROBED: dict[str, Any] = {"flat_ways": np.ones((1, 9))}
CAN_PROBE: dict[str, Any] = {"is_at_mode": False, "probing_cost": 768}


def test_looks_for_flat_ways_before_anything_is_believed() -> None:
    """And before a stride, for these may be where to go."""
    for seen in (SURE, CORRECTABLE, FAR):
        assert decided(seen, **CAN_PROBE) == Decision(Action.PROBE)
        assert decided(seen, **CAN_PROBE, num_left=767).action is not Action.PROBE
        assert decided(seen, **CAN_PROBE | {"is_at_mode": True}).action is not Action.PROBE
        assert decided(seen, is_at_mode=False).action is not Action.PROBE
        assert decided(seen, **CAN_PROBE, done=frozenset({Action.PROBE})).action is not Action.PROBE
    assert decided({}, **CAN_PROBE).action is Action.GO_ON
    assert decided(SURE | PROBED, **CAN_PROBE) == Decision(Action.STOP, Outcome.CERTIFIED)
    assert decided(CORRECTABLE | PROBED, **CAN_PROBE) == Decision(Action.CORRECT)
    assert decided(FAR | PROBED, **CAN_PROBE) == Decision(Action.STRIDE)


def test_the_tolerance_is_strict_where_flat_ways_are_not_known() -> None:
    assert evidence(SURE, is_at_mode=False).certain_tolerance == CAUTION * TOLERANCE
    assert evidence(SURE, **CAN_PROBE, num_left=0).certain_tolerance == CAUTION * TOLERANCE
    assert evidence(SURE, **CAN_PROBE).certain_tolerance == TOLERANCE
    assert evidence(SURE | PROBED, is_at_mode=False).certain_tolerance == TOLERANCE


def test_what_is_left_on_flat_ways_must_surely_be_small() -> None:
    seen = SURE | PROBED | {"num_draws": 4096}
    assert decided(seen | {"flat_bound": 0.01}, **CAN_PROBE).outcome is Outcome.CERTIFIED
    assert decided(seen | {"flat_bound": 0.011}, **CAN_PROBE).action is Action.GO_ON
    # A correction moves all the way, and leaves the noise: twice its standard error is four times that.
    seen = CORRECTABLE | PROBED | {"num_draws": 4096, "flat_bound": 0.02}
    assert decided(seen | {"flat_noise": 0.0001}, **CAN_PROBE).action is Action.CORRECT
    few = seen | {"corrected_error": 0.0, "noise": 0.0, "flat_noise": 0.0026}
    assert decided(few, **CAN_PROBE).action is Action.GO_ON


def test_strides_along_flat_ways_where_more_is_left_than_noise() -> None:
    seen = PROBED | {"flat_gap": 0.0051, "flat_noise": 0.005}
    assert decided(seen, **CAN_PROBE) == Decision(Action.STRIDE)
    assert decided(seen | {"flat_noise": 0.0052}, **CAN_PROBE).action is Action.GO_ON
    assert decided(seen | {"flat_gap": 0.0049, "flat_noise": 0.0}, **CAN_PROBE).action is Action.GO_ON
