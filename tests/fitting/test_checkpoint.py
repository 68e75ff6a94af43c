"""Checkpoints: the same call goes on, and ends bit for bit like one that was never interrupted."""

import pathlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import dlrd
from dlrd.fitting import checkpoint as checkpoint_module

AssertSame = Callable[[dlrd.Fit, dlrd.Fit], None]
KilledAndWhole = Callable[[pathlib.Path], tuple[dlrd.Fit, dlrd.Fit]]

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


def test_more_steps_go_on_from_the_end(tmp_path: pathlib.Path, assert_same_fit: AssertSame) -> None:
    fit(tmp_path, steps=150)
    assert_same_fit(fit(tmp_path), fit(None))


def test_finished_fit_is_returned_at_once(tmp_path: pathlib.Path, assert_same_fit: AssertSame) -> None:
    first = fit(tmp_path)
    written = (tmp_path / checkpoint_module.FILE_NAME).stat().st_mtime_ns
    assert_same_fit(fit(tmp_path), first)
    assert (tmp_path / checkpoint_module.FILE_NAME).stat().st_mtime_ns >= written


@pytest.mark.slow
def test_many_runs_resume(tmp_path: pathlib.Path, assert_same_fit: AssertSame) -> None:
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
        assert_same_fit(resumed, whole)


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


@pytest.mark.slow
def test_killed_at_random_moments(killed_and_whole: KilledAndWhole, assert_same_fit: AssertSame) -> None:
    """A real process, killed with SIGKILL again and again, ends like one that was left alone."""
    assert_same_fit(*killed_and_whole(RUN))
