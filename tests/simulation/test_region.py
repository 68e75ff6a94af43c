"""Where runs fail."""

import numpy as np

from dlrd.simulation.region import failing_region

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(300, 3))
NAMES = ["a", "b", "c"]


def test_an_end_of_a_parameter_is_found() -> None:
    is_failed = POINTS[:, 1] < -1.2
    sentence = failing_region(POINTS, is_failed, NAMES)
    assert sentence is not None
    edge, num = POINTS[is_failed, 1].max(), is_failed.sum()
    assert sentence == f"runs fail where b ≤ {edge:.4g} ({num} of {num}), and elsewhere in 0 of {300 - num}"


def test_also_among_failures_by_chance() -> None:
    is_failed = (POINTS[:, 2] > 1) | (RNG.random(300) < 0.05)
    sentence = failing_region(POINTS, is_failed, NAMES)
    assert sentence is not None
    assert sentence.startswith("runs fail where c ≥ ")


def test_failures_by_chance_alone_have_no_region() -> None:
    assert failing_region(POINTS, RNG.random(300) < 0.2, NAMES) is None
    assert failing_region(POINTS, np.zeros(300, bool), NAMES) is None
    assert failing_region(POINTS, np.ones(300, bool), NAMES) is None
    assert failing_region(POINTS, np.arange(300) < 4, NAMES) is None
