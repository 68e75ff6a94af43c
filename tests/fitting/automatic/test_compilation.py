"""What a fit compiles, and that it lets go of it."""

import functools
import gc
import subprocess
import sys
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import dlrd

MAX_PROGRAMS = 8
COUNTED = """
import jax, jax.numpy as jnp, dlrd
from jax import monitoring
compiled = []
monitoring.register_event_duration_secs_listener(
    lambda name, seconds, **_: compiled.append(name) if name.endswith("backend_compile_duration") else None
)
log_density = lambda z: -0.5 * jnp.sum(z**2) - jnp.sum(jnp.exp(z - 1.0))
for key in range(2):
    fit = dlrd.fit(log_density, dlrd.{family}.standard(4), key=key, progress=False)
    print(fit.outcome.name, len(compiled))
    compiled.clear()
"""


@pytest.mark.parametrize("family", ["MeanFieldNormal", "FullRankNormal"])
def test_few_programs_are_compiled_and_once(family: str) -> None:
    code = COUNTED.format(family=family)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    first, second = (line.split() for line in done.stdout.splitlines())
    assert first[0] == second[0] == "CERTIFIED"
    assert 3 <= int(first[1]) <= MAX_PROGRAMS
    assert int(second[1]) == 0


def caches() -> list[Any]:
    """Those of the package that may hold models."""
    modules = [module for name, module in sys.modules.items() if name.startswith("dlrd.")]
    found = {id(each): each for module in modules for each in vars(module).values()}
    return [each for each in found.values() if isinstance(each, functools._lru_cache_wrapper)]


def test_functions_are_let_go_with_their_programs() -> None:
    """But for a few that the package keeps for the next fit, nothing holds what was fitted."""
    shift = jnp.ones(3)

    def log_density(z: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum((z - shift) ** 2)

    fit = dlrd.fit(log_density, dlrd.FullRankNormal.standard(3), progress=False)
    fit.summary()
    alive = weakref.ref(log_density)
    assert all((cache.cache_info().maxsize or 999) <= 16 for cache in caches())
    del log_density, fit
    for cache in caches():
        cache.cache_clear()
    gc.collect()
    assert alive() is None
