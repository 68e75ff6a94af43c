"""What all tests share: two devices, and both widths of floating-point numbers."""

from collections.abc import Iterator

import hypothesis
import jax
import jax.numpy as jnp
import pytest

# Before jax first looks for devices: the sharding tests need more than one.
jax.config.update("jax_num_cpu_devices", 2)
# The first example of a property compiles, which takes longer than any deadline.
hypothesis.settings.register_profile("compiled", deadline=None)
hypothesis.settings.load_profile("compiled")


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
