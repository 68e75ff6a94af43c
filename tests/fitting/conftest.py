"""What the tests of fits share: fits as if run, the same fit twice, a model that can all, killed programs."""

import pathlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import dlrd
from dlrd.families import Family
from dlrd.fitting import History
from dlrd.fitting.checkpoint import FILE_NAME
from dlrd.fitting.verdict import Rung, Verdict
from dlrd.models import FunctionModel

NUM_KILLS = 2
Ended = Callable[..., dlrd.Fit]


@pytest.fixture(scope="session")
def verdict() -> Verdict:
    return Verdict(
        tolerance=1e-2,
        gap=float("nan"),
        gap_error=float("nan"),
        elbo=-2.5,
        elbo_error=0.125,
        tail_shape=0.3,
        tail_shape_error=0.1,
        is_certain=False,
        gradients={"start": 5, "steps": 40},
        warnings=["beware."],
        rungs=[Rung("MeanFieldNormal", -3.0, 0.5, 20, 0.5), Rung("FullRankNormal", -2.5, 0.3, 25, 0.5)],
    )


@pytest.fixture(scope="session")
def ended() -> Ended:
    """Makes fits with a given course, as if they had been run."""

    def made(
        family: Family, elbo: Any = (1.0, 2.0), elbo_error: Any = (0.5, 0.5), **changed: Any
    ) -> dlrd.Fit:
        num = len(elbo)
        history = History(
            step=np.arange(1, num + 1),
            elbo=np.asarray(elbo, float),
            elbo_error=np.asarray(elbo_error, float),
            learning_rate=np.full(num, 0.1),
            snr=np.full(num, np.nan),
            failed=np.zeros(num, int),
            decays=np.array([2]),
        )
        fields = {
            "family": family,
            "history": history,
            "outcome": dlrd.Outcome.BUDGET,
            "num_steps": num,
            "num_draws": 8,
            "seconds": 0.25,
            "names": ("z[0]", "z[1]"),
        }
        return dlrd.Fit(**fields | changed)

    return made


class Counties(FunctionModel):
    """A model with all capabilities: the levels of two counties, with noise of an unknown scale.

    The posterior is conjugate but for the scale, and the answers are known for any draws.
    """

    dims: ClassVar = {"level": ("county",), "y": ("county", "house"), "floor": ("house",)}
    coords: ClassVar = {"county": np.array(["AITKIN", "ANOKA"])}
    observed_data: ClassVar = {"y": np.array([[1.0, 1.5, 0.5], [2.0, 2.5, 1.5]])}
    constant_data: ClassVar = {"floor": np.array([0, 1, 0])}

    def __init__(self) -> None:
        super().__init__(self.log_joint, (3,), ("log sigma", "level[0]", "level[1]"))

    def log_joint(self, z: jax.Array) -> jax.Array:
        log_likelihood = norm.logpdf(self.observed_data["y"], z[1:, None], jnp.exp(z[0]))
        return jnp.sum(log_likelihood) + jnp.sum(norm.logpdf(z))

    def constrained(self, draws: jax.Array) -> dict[str, jax.Array]:
        return {"sigma": jnp.exp(draws[:, 0]), "level": draws[:, 1:]}

    def predictions(self, draws: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
        noise = jax.random.normal(key, (len(draws), 2, 3))
        return {"y": draws[:, 1:, None] + jnp.exp(draws[:, 0])[:, None, None] * noise}

    def log_likelihood(self, draws: jax.Array) -> dict[str, jax.Array]:
        scale = jnp.exp(draws[:, 0])[:, None, None]
        return {"y": norm.logpdf(self.observed_data["y"], draws[:, 1:, None], scale)}

    def chain_starts(self, draws: jax.Array) -> list[dict[str, jax.Array]]:
        return [{"log_sigma": draw[0], "level": draw[1:]} for draw in draws]


@pytest.fixture(scope="session")
def counties() -> Counties:
    return Counties()


@pytest.fixture(scope="session")
def counties_fit(ended: Ended, counties: Counties) -> dlrd.Fit:
    """As near to the posterior as hardly matters."""
    family = dlrd.FullRankNormal([-0.5, 0.9, 1.8], 0.3 * jnp.eye(3))
    return ended(family, model=counties, names=counties.names)


@pytest.fixture(scope="session")
def assert_same_fit() -> Callable[[dlrd.Fit, dlrd.Fit], None]:
    """Asserts that two fits are equal, bit for bit."""

    def check(left: dlrd.Fit, right: dlrd.Fit) -> None:
        assert left.num_steps == right.num_steps
        assert left.outcome is right.outcome
        assert repr(left.verdict) == repr(right.verdict)
        for a, b in zip(jax.tree.leaves(left.family), jax.tree.leaves(right.family), strict=True):
            np.testing.assert_array_equal(a, b)
        for name in type(left.history).__annotations__:
            values = getattr(left.history, name), getattr(right.history, name)
            np.testing.assert_array_equal(*values, err_msg=name)

    return check


@pytest.fixture
def killed_and_whole(tmp_path: pathlib.Path) -> Callable[[pathlib.Path], tuple[dlrd.Fit, dlrd.Fit]]:
    """Runs a program (its arguments: a folder of checkpoints, the file of its fit) twice: once killed with
    SIGKILL again and again, at random moments, and once left alone."""

    def run(program: pathlib.Path) -> tuple[dlrd.Fit, dlrd.Fit]:
        whole, killed = tmp_path / "whole.dlrd", tmp_path / "killed.dlrd"

        def started(folder: str, file: pathlib.Path) -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, program, tmp_path / folder, file])

        left_alone = started("whole", whole)
        checkpoint = tmp_path / "run" / FILE_NAME
        rng = random.Random(0)
        for _ in range(NUM_KILLS):
            process = started("run", killed)
            # Wait until this process has made progress of its own, then strike some chunks later.
            seen = _written_at(checkpoint)
            while process.poll() is None and _written_at(checkpoint) == seen:
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.1))
            process.kill()
            assert process.wait() == -signal.SIGKILL
            assert not killed.exists()  # it was under way
        assert started("run", killed).wait() == 0
        assert left_alone.wait() == 0
        return dlrd.load(killed), dlrd.load(whole)

    return run


def _written_at(path: pathlib.Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0
