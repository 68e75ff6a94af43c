"""Checkpoints: the same call goes on, and ends bit for bit like one that was never interrupted."""

import pathlib
import random
import signal
import subprocess
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dlrd
from dlrd.fitting import checkpoint as checkpoint_module

OPTIMIZER = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-1))
RUN = pathlib.Path(__file__).with_name("checkpointed_run.py")


def normal(z: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum((z - 3.0) ** 2)


def fit(folder: pathlib.Path | None, **changed: Any) -> dlrd.Fit:
    arguments: dict[str, Any] = {
        "log_density": normal,
        "family": dlrd.FullRankNormal.standard(3),
        "key": 0,
        "optimizer": OPTIMIZER,
        "steps": 400,
        "checkpoint": folder,
        "progress": False,
    }
    return dlrd.fit(**(arguments | changed))


def assert_same(left: dlrd.Fit, right: dlrd.Fit) -> None:
    assert left.num_steps == right.num_steps
    assert left.outcome is right.outcome
    for a, b in zip(jax.tree.leaves(left.family), jax.tree.leaves(right.family), strict=True):
        np.testing.assert_array_equal(a, b)
    for name in type(left.history).__annotations__:
        np.testing.assert_array_equal(getattr(left.history, name), getattr(right.history, name), err_msg=name)


def test_more_steps_go_on_from_the_end(tmp_path: pathlib.Path) -> None:
    fit(tmp_path, steps=150)
    assert_same(fit(tmp_path), fit(None))


def test_finished_fit_is_returned_at_once(tmp_path: pathlib.Path) -> None:
    first = fit(tmp_path)
    written = (tmp_path / checkpoint_module.FILE_NAME).stat().st_mtime_ns
    assert_same(fit(tmp_path), first)
    assert (tmp_path / checkpoint_module.FILE_NAME).stat().st_mtime_ns >= written


def test_many_runs_resume(tmp_path: pathlib.Path) -> None:
    def fits(folder: pathlib.Path | None, steps: int) -> list[dlrd.Fit]:
        return dlrd.fit_many(
            normal,
            dlrd.MeanFieldNormal.standard(3),
            keys=range(2),
            learning_rates=[1e-1, 1e-2],
            optimizer=lambda rate: optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(rate)),
            steps=steps,
            checkpoint=folder,
            progress=False,
        )

    fits(tmp_path, 70)
    for resumed, whole in zip(fits(tmp_path, 200), fits(None, 200), strict=True):
        assert_same(resumed, whole)


@pytest.mark.parametrize(
    "changed",
    [
        {"log_density": lambda z: -0.5 * jnp.sum((z - 2.0) ** 2)},
        {"key": 1},
        {"num_draws": 4},
        {"family": dlrd.FullRankNormal(jnp.ones(3), jnp.eye(3))},
        {"optimizer": optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(2e-1))},
        {"optimizer": optax.adam(1e-1)},
        {"gradient": dlrd.reparameterized},
    ],
    ids=["log density", "key", "num_draws", "start", "rate", "optimizer", "gradient"],
)
def test_checkpoint_of_another_fit_is_refused(tmp_path: pathlib.Path, changed: dict[str, Any]) -> None:
    fit(tmp_path, steps=20)
    with pytest.raises(ValueError, match="belongs to another fit"):
        fit(tmp_path, **changed)


def test_other_data_are_noticed(tmp_path: pathlib.Path) -> None:
    def model(data: jax.Array) -> Any:
        return lambda z: -0.5 * jnp.sum((data - z[0]) ** 2)

    family = dlrd.MeanFieldNormal.standard(1)
    fit(tmp_path, log_density=model(jnp.arange(9.0)), family=family, steps=20)
    fit(tmp_path, log_density=model(jnp.arange(9.0)), family=family, steps=30)
    with pytest.raises(ValueError, match="belongs to another fit"):
        fit(tmp_path, log_density=model(jnp.arange(9.0) + 1), family=family, steps=30)


def test_damaged_file_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / checkpoint_module.FILE_NAME).write_bytes(b"not an archive")
    with pytest.raises(ValueError, match=r"checkpoint\.npz is not a file that dlrd wrote"):
        fit(tmp_path)


def test_file_instead_of_a_folder(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(ValueError, match="checkpoint must name a folder"):
        fit(path)


def test_killed_at_random_moments(tmp_path: pathlib.Path) -> None:
    """A real process, killed with SIGKILL again and again, ends like one that was left alone."""
    whole, killed = tmp_path / "whole.dlrd", tmp_path / "killed.dlrd"
    subprocess.run([sys.executable, RUN, tmp_path / "whole", whole], check=True)
    checkpoint = tmp_path / "run" / checkpoint_module.FILE_NAME
    rng = random.Random(0)
    num_kills = 0
    while not killed.exists():
        process = subprocess.Popen([sys.executable, RUN, tmp_path / "run", killed])
        if num_kills < 4:
            # Wait until this process has made progress of its own, then strike some chunks later.
            seen = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
            while process.poll() is None and (
                not checkpoint.exists() or checkpoint.stat().st_mtime_ns == seen
            ):
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.1))
            process.kill()
            num_kills += process.wait() == -signal.SIGKILL
        else:
            assert process.wait() == 0
    assert num_kills >= 2
    assert_same(dlrd.load(killed), dlrd.load(whole))
