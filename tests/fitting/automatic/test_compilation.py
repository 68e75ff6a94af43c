"""What a fit compiles, and that it lets go of it."""

import subprocess
import sys

import pytest

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


LET_GO = """
import functools, gc, sys, weakref
import jax.numpy as jnp, dlrd
from dlrd.fitting.program import Program
def made():
    def log_density(z):
        return -0.5 * jnp.sum((z - shift) ** 2)
    shift = jnp.ones(3)
    return log_density
log_density = made()
fit = dlrd.fit(log_density, dlrd.FullRankNormal.standard(3), progress=False)
fit.summary()
alive = weakref.ref(log_density)
del log_density, fit
modules = [module for name, module in sys.modules.items() if name.startswith("dlrd.")]
found = {id(each): each for module in modules for each in vars(module).values()}
caches = [each for each in found.values() if isinstance(each, functools._lru_cache_wrapper)]
programs = [each for each in found.values() if isinstance(each, Program)]
print(max([cache.cache_info().maxsize for cache in caches] + [program._max_size for program in programs]))
for cache in caches:
    cache.cache_clear()
for program in programs:
    program._jitted.clear()
gc.collect()
print(alive())
"""


def test_functions_are_let_go_with_their_programs() -> None:
    """But for a few that the package keeps for the next fit, nothing holds what was fitted."""
    done = subprocess.run([sys.executable, "-c", LET_GO], check=True, capture_output=True, text=True)
    most_kept, alive = done.stdout.split()
    assert int(most_kept) <= 32
    assert alive == "None"


SHARED = (
    COUNTED.split("log_density =")[0]
    + """
import numpy as np
def regression(v, data):
    return -0.5 * v["slope"] ** 2 - 0.5 * jnp.sum((data["y"] - v["slope"] * data["x"]) ** 2)
rng = np.random.default_rng(0)
for number in range(4):
    data = {"x": rng.normal(size=20), "y": rng.normal(size=20) + number}
    model = dlrd.models.function(regression, {"slope": ()}, data=data)
    fit = dlrd.fit(model, progress=False)
    exact = data["x"] @ data["y"] / (1 + data["x"] @ data["x"])
    print(abs(float(fit.family.mean[0]) - exact) < 0.02, len(compiled))
    compiled.clear()
"""
)


BY_NUMPYRO = (
    SHARED.replace("import numpy as np", "import numpy as np, numpyro")
    .replace(
        'dlrd.models.function(regression, {"slope": ()}, data=data)',
        "dlrd.models.numpyro(by_numpyro, **data)",
    )
    .replace(
        "rng =",
        """
def by_numpyro(x, y):
    slope = numpyro.sample("slope", numpyro.distributions.Normal(0.0, 1.0))
    numpyro.sample("y", numpyro.distributions.Normal(slope * x, 1.0), obs=y)
rng =""",
    )
)


BY_PYMC = (
    SHARED.replace("import numpy as np", "import numpy as np, pymc as pm")
    .replace(
        'dlrd.models.function(regression, {"slope": ()}, data=data)', "dlrd.models.pymc(by_pymc(**data))"
    )
    .replace(
        "rng =",
        """
def by_pymc(x, y):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("slope") * x, 1, observed=y)
    return model
rng =""",
    )
)
SET_ANEW = BY_PYMC.replace("by_pymc(**data)", "with_data(**data)").replace(
    "rng =",
    """
with pm.Model() as only:
    pm.Normal("y", pm.Normal("slope") * pm.Data("x", np.zeros(20)), 1, observed=pm.Data("of_y", np.zeros(20)))
def with_data(x, y):
    with only:
        pm.set_data({"x": x, "of_y": y})
    return only
rng =""",
)


@pytest.mark.parametrize(
    "code",
    [SHARED, BY_NUMPYRO, BY_PYMC, SET_ANEW],
    ids=["function", "numpyro", "pymc", "pymc, data set anew"],
)
def test_other_data_are_no_other_program(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [is_right for is_right, _ in rows] == 4 * ["True"]
    assert [int(num) for _, num in rows[1:]] == [0, 0, 0]
