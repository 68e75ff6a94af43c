"""The runner: the right settings, nothing run twice, nothing lost when killed."""

import signal
import subprocess
import sys
from dataclasses import replace

import jax
import numpy as np
import optax
import pytest

import dlrd
from dlrd.paper.experiments.batch import DIRECTIONS, run_batch
from dlrd.paper.experiments.spec import FIGURES, RATES, Batch, Setting, batches_of, static_and_dlrd
from dlrd.paper.experiments.targets import TARGETS

BY_NAME = {batch.name: batch for figure in FIGURES for batch in figure.batches}


def small(name, **changes):
    return replace(BY_NAME[name], **{"steps": 300, "num_seeds": 2, "num_points": 20, **changes})


def ignore(steps):
    pass


@pytest.mark.parametrize(
    ("figure", "optimizers", "num_draws", "steps"),
    [
        ("1d_convergence", {"adam"}, {1}, 1_000),
        ("snr", {"adam"}, {2}, 100_000),
        ("quadnormal", {"adam", "sgd"}, {2}, 100_000),
        ("quadnormal_loglin", {"sgd"}, {2}, 100_000),
        ("quadnormal_sasa", {"sgd"}, {2}, 100_000),
        ("quadnormal_sample_size", {"adam"}, {1, 32, 128}, 100_000),
        ("logistic", {"adam", "rmsprop"}, {8}, 1_000_000),
        ("diffusion", {"adam", "adamax"}, {8}, 100_000),
    ],
)
def test_settings_at_the_papers_scale(figure, optimizers, num_draws, steps):
    (spec,) = [each for each in FIGURES if each.name == figure]
    batches = [batch.at("paper", None) for batch in spec.batches]
    assert {batch.optimizer for batch in batches} == optimizers
    assert {batch.num_draws for batch in batches} == num_draws
    assert {batch.steps for batch in batches} == {steps}
    settings = {setting for batch in batches for setting in batch.settings}
    assert {setting.rate for setting in settings} == set(RATES)
    assert all((setting.factor, setting.min_snr) == (0.1, 1.0) for setting in settings)
    assert min(batch.num_seeds for batch in batches) >= (
        5 if spec.name not in ("logistic", "diffusion") else 1
    )


def test_the_quick_scale_keeps_all_batches_and_runs_less():
    paper, quick = (batches_of(FIGURES, scale, None) for scale in ("paper", "quick"))
    assert [batch.name for batch in quick] == [batch.name for batch in paper]
    assert all(a.steps <= b.steps and a.num_seeds <= b.num_seeds for a, b in zip(quick, paper, strict=True))
    assert all(batch.num_seeds == 3 for batch in batches_of(FIGURES, "quick", 3))


@pytest.mark.slow
def test_settings_in_one_program_are_the_runs_they_stand_for(tmp_path):
    batch = small("synthetic-adam-S2")
    results = run_batch(batch, tmp_path, ignore)
    with jax.enable_x64(True):
        target = TARGETS["synthetic"](tmp_path)
        for rule, link in (
            ("static", optax.scale_by_learning_rate(1e-2)),
            ("dlrd", dlrd.dynamic_decay(1e-2)),
        ):
            fit = dlrd.fit(
                target.log_density,
                target.start,
                key=1,
                optimizer=optax.chain(DIRECTIONS["adam"](), link),
                steps=300,
                num_draws=2,
                progress=False,
                guard=False,
            )
            alone = float(target.monitor(fit.family)["error"])
            assert results.error[results.of(rule=rule, rate=1e-2), 1, -1] == pytest.approx(alone, rel=1e-8)


def test_finished_batches_are_not_run_again(tmp_path):
    batch = small("synthetic-1d-adam-S1", steps=50)
    first = run_batch(batch, tmp_path, ignore)

    def fail(steps):
        raise AssertionError("ran again")

    np.testing.assert_array_equal(run_batch(batch, tmp_path, fail).error, first.error)
    changed = replace(batch, steps=60)
    assert run_batch(changed, tmp_path, ignore).step[-1] == 60


def test_the_accuracy_is_recorded_after_the_chosen_steps(tmp_path):
    batch = small("synthetic-sgd-S2-power")
    results = run_batch(batch, tmp_path, ignore)
    assert results.step[0] == 1
    assert results.step[-1] == 300
    assert results.error.shape == (4, 2, len(results.step))
    rates = results.learning_rate[results.of(exponent=0.5, rate=1e-2), 0]
    np.testing.assert_allclose(rates, 1e-2 / np.sqrt(results.step), rtol=1e-12)


def test_an_interrupted_batch_is_not_taken_for_finished(tmp_path):
    batch = small("synthetic-1d-adam-S1", steps=3_000)

    def interrupt(steps):
        if 100 < steps < batch.steps:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_batch(batch, tmp_path, interrupt)
    assert not list(tmp_path.glob("*.npz"))
    whole = run_batch(batch, tmp_path / "whole", ignore)
    np.testing.assert_array_equal(run_batch(batch, tmp_path, ignore).error, whole.error)


SCRIPT = """
import sys
from pathlib import Path
from dlrd.fitting import checkpoint
from dlrd.paper.experiments.batch import run_batch
from dlrd.paper.experiments.spec import Batch, static_and_dlrd
checkpoint.SECONDS_BETWEEN = 0.0
batch = Batch("killed", "synthetic", "adam", static_and_dlrd(), 2, int(sys.argv[2]), 2, 50)
run_batch(batch, Path(sys.argv[1]), lambda steps: print(steps, flush=True))
"""


@pytest.mark.slow
def test_a_killed_batch_goes_on_and_ends_the_same(tmp_path):
    steps = 5_000
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "killed"), str(steps)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if int(line) > 100)
        process.kill()
    assert not list((tmp_path / "killed").glob("*.npz"))
    assert (tmp_path / "killed" / "unfinished" / "killed" / "checkpoint.npz").exists()
    batch = Batch("killed", "synthetic", "adam", static_and_dlrd(), 2, steps, 2, 50)
    told = []
    resumed = run_batch(batch, tmp_path / "killed", told.append)
    assert told[0] > 1  # not from the start
    whole = run_batch(batch, tmp_path / "whole", ignore)
    np.testing.assert_array_equal(resumed.error, whole.error)
    np.testing.assert_array_equal(resumed.learning_rate, whole.learning_rate)
    assert resumed.decays == whole.decays
    assert any(decays for of_setting in whole.decays for decays in of_setting)


@pytest.mark.slow
def test_the_two_families_beyond_the_paper_can_be_fitted(tmp_path):
    for name in ("mixture-adam-S8", "flow-adam-S8"):
        batch = small(name, settings=(Setting("static", 1e-2), Setting("dlrd", 1e-2)), num_seeds=1)
        results = run_batch(batch, tmp_path, ignore)
        assert np.all(results.error[:, :, -1] < 0.7 * results.error[:, :, 0])
