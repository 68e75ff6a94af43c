"""What all tests share: two devices, both widths of floating-point numbers, and a browser."""

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import jax
import jax.numpy as jnp
import pytest

QUICKLY = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    " --xla_cpu_parallel_codegen_split_count=1"
)
"""Most programs of the tests run once, for milliseconds: compiling them well takes most of the time."""
# Before jax compiles anything. `make test-slow` runs all tests with the compiler as users have it.
if "XLA_FLAGS" not in os.environ:
    # A process ends at a flag that XLA does not know: another version may have dropped one of these.
    trial = [sys.executable, "-c", "import jax; jax.devices()"]
    ended = subprocess.run(trial, env={**os.environ, "XLA_FLAGS": QUICKLY}, check=False, capture_output=True)
    os.environ["XLA_FLAGS"] = "" if ended.returncode else QUICKLY
# Before jax first looks for devices: the sharding tests need more than one.
jax.config.update("jax_num_cpu_devices", 2)
# The first example of a property compiles, which takes longer than any deadline.
hypothesis.settings.register_profile("compiled", deadline=None)
hypothesis.settings.load_profile("compiled")
# Tracing makes many objects and few cycles of them: looking for cycles every 700 objects finds next to none.
gc.set_threshold(100_000, 50, 100)


def pytest_collection_finish() -> None:
    """What has been imported stays: no later search for cycles looks at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def programs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compiles a program once, though tests trace it again and again; each process has its own folder."""
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("programs")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


@pytest.fixture(params=["float32", "float64"])
def precision(request: pytest.FixtureRequest) -> Iterator[jnp.dtype]:
    """Runs the test with each default float type, which is handed to it."""
    with jax.enable_x64(request.param == "float64"):
        yield jnp.dtype(request.param)


@pytest.fixture
def x64() -> Iterator[None]:
    """Runs the test in double precision."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def chromium(tmp_path: Path) -> Callable[..., str]:
    """A function of an address, the width of the window and further options; it gives the page's elements."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "these tests need Chromium: apt-get install chromium"

    def dom(address: str, width: int, *options: str) -> str:
        command = [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={width},4000",
            "--dump-dom",
            *options,
            address,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

    return dom
