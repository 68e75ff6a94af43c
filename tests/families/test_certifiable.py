"""What each family, and each form that fits work with, can do about its gap."""

import pytest

from dlrd import FullRankNormal, LowRankNormal, MeanFieldNormal, Mixture, SparseNormal
from dlrd.families import BoundsGap, Certifiable, Charted, Correctable, Teachable

MEMBERS = [MeanFieldNormal.standard(2), FullRankNormal.standard(2), LowRankNormal.standard(2, 1)]


@pytest.mark.parametrize(
    ("family", "met"),
    [
        (MEMBERS[0], set()),  # without a curvature it does not know what moves its means together
        (MEMBERS[0].as_start(), {Certifiable, Correctable, Charted}),
        (MEMBERS[1], {Certifiable, Correctable}),
        (MEMBERS[1].as_start(), {Certifiable, Correctable, Teachable}),
        (MEMBERS[2].as_start(), {Certifiable, BoundsGap}),
        (SparseNormal.standard(2), {Certifiable}),
        (Mixture([MEMBERS[0]] * 2), set()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_can_do_what_is_said_of_it(family: object, met: set[type]):
    protocols = BoundsGap, Certifiable, Charted, Correctable, Teachable
    assert {protocol for protocol in protocols if isinstance(family, protocol)} == met
