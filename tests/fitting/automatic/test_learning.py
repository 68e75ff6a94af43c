"""Rounds of learning."""

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.fitting.automatic.fit import fit_with_form
from dlrd.fitting.automatic.learning import MAX_DRAWS, MIN_DRAWS, Answer, Rounds, first_audit
from dlrd.fitting.automatic.start.approach import Runs, approach
from dlrd.fitting.request import Request, Sampling, Stepping, Watching

sys.path.insert(0, str(Path(__file__).parents[2] / "models"))
from toy_emulable import ToyEmulable

pytestmark = pytest.mark.usefixtures("x64")
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def answers() -> list[Answer]:
    """With a tolerance that is beyond reach, until the budget of 200 runs ends."""
    with jax.enable_x64(True):
        family = dlrd.FullRankNormal.standard(3)
        runs = Runs(ToyEmulable(), jnp.dtype("float64"), 200, time.monotonic() + 1e6)
        (landing,) = approach(runs, family, KEY, 1)
        request = Request(None, Stepping(), Sampling(), Watching(None, progress=False))
        rounds = Rounds(runs, KEY, request, 1e-4, fit_with_form, MIN_DRAWS)
        start = family.at_mode(landing.mode.point, landing.mode.curvature)
        found = list(rounds.answers(landing.tangent, start))
        assert runs.num <= 200
        assert runs.num_left < MIN_DRAWS
        return found


def test_each_round_knows_more(answers: list[Answer]) -> None:
    """What is missed makes the error of the gap, which falls faster than more draws alone could make it."""
    seen = [each.certificate for each in answers if each.certificate is not None]
    assert len(seen) > 2
    assert seen[-1].gap_error < 0.5 * seen[0].gap_error * seen[0].num_draws / seen[-1].num_draws


def test_nothing_is_sure_that_was_not_shown_twice(answers: list[Answer]) -> None:
    sizes = [each.certificate.num_draws for each in answers if each.certificate is not None]
    assert all(size % MIN_DRAWS == 0 for size in sizes)
    assert all(size >= 2 * MIN_DRAWS for size, each in zip(sizes, answers, strict=False) if each.is_sure)


def test_later_answers_move_less(answers: list[Answer]) -> None:
    means = np.array([each.fit.family.mean for each in answers])
    steps = np.linalg.norm(np.diff(means, axis=0) / np.asarray(answers[0].fit.family.std), axis=1)
    assert steps[-1] < 0.5 * steps[0]


@pytest.mark.parametrize(
    ("budget", "num"), [(30, MIN_DRAWS), (300, MIN_DRAWS), (600, MAX_DRAWS), (10**5, MAX_DRAWS)]
)
def test_audits_begin_small(budget: int, num: int) -> None:
    assert first_audit(budget) == num
