"""The way to a mode by outputs alone."""

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.fitting.automatic.start.approach import LENGTHS, Runs, approach
from dlrd.fitting.automatic.start.objective import SpentError

sys.path.insert(0, str(Path(__file__).parents[3] / "models"))
from toy_emulable import ToyEmulable

pytestmark = pytest.mark.usefixtures("x64")
START, KEY = dlrd.FullRankNormal.standard(3), jax.random.key(0)


def runs_of(model: ToyEmulable, max_runs: int = 10_000, seconds: float = 1e6) -> Runs:
    return Runs(model, jnp.dtype("float64"), max_runs, time.monotonic() + seconds)


def test_ends_at_the_mode() -> None:
    runs = runs_of(ToyEmulable())
    (found,) = approach(runs, START, KEY, 1)
    mode, slope = found.mode, jax.grad(runs.model.log_density)(jnp.asarray(found.mode.point))
    assert found.is_at_rest
    # Not more to be gained there than it says, half a nat.
    assert 0.5 * np.sum(np.asarray(mode.curvature.whiten(slope)) ** 2) < 0.5
    assert runs.num % (3 + len(LENGTHS)) in (
        1,
        4,
    )  # the first point; differences, and trials after all but the last


def test_every_run_is_counted_and_none_is_made_twice() -> None:
    seen = []

    class Noted(ToyEmulable):
        def outputs_at(self, draw: jax.Array) -> jax.Array:
            jax.debug.callback(lambda each: seen.append(np.asarray(each).tobytes()), draw)
            return super().outputs_at(draw)

    runs = runs_of(Noted())
    approach(runs, START, KEY, 3)
    jax.effects_barrier()
    assert len(seen) == runs.num == len(set(seen))


@pytest.mark.parametrize("max_runs", [1, 2, 4, 9, 25])
def test_a_budget_is_kept_to_the_run(max_runs: int) -> None:
    runs = runs_of(ToyEmulable(), max_runs)
    found = approach(runs, START, KEY, 16)
    assert runs.num <= max_runs
    # Along parameters of which there is no difference, the prior is all that is known.
    unknown = 3 - min(max_runs - 1, 3)
    np.testing.assert_allclose(found[0].mode.point[3 - unknown :], 0.0, atol=1e-6)


def test_without_time_nothing_is_run() -> None:
    runs = runs_of(ToyEmulable(), seconds=-1.0)
    with pytest.raises(SpentError):
        approach(runs, START, KEY, 16)
    assert runs.num == 0


def test_begins_elsewhere_where_runs_fail() -> None:
    model = ToyEmulable(fails=lambda z: jnp.max(jnp.abs(z)) < 0.2)  # the mean of the prior among others
    found = approach(runs_of(model), START, KEY, 1)
    assert len(found) == 1
    assert found[0].is_at_rest


def test_both_modes_are_found_and_the_higher_one_first() -> None:
    def outputs(z: jax.Array) -> jax.Array:
        return jnp.array([z[0] ** 2 + 0.05 * z[0], z[1]])

    model = ToyEmulable(outputs, (1.0, 0.5), noise=0.1)
    found = approach(runs_of(model), dlrd.FullRankNormal.standard(2), KEY, 16)
    assert len(found) == 2
    assert found[0].mode.point[0] > 0.9
    assert found[1].mode.point[0] < -0.9


def test_further_ways_end_where_known_modes_are_found_again() -> None:
    one, several = runs_of(ToyEmulable()), runs_of(ToyEmulable())
    approach(one, START, KEY, 1)
    assert len(approach(several, START, KEY, 1000)) == 1
    assert one.num < several.num <= 6 * one.num
