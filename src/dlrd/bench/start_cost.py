"""What a cold start costs: the import, the compilation, and that there is only one."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import optax

import dlrd
from dlrd.bench.timing import Row, interleaved

FIRST_RESULT = """
import dlrd, jax.numpy as jnp, optax
optimizer = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-2))
dlrd.fit(lambda z: -0.5 * jnp.sum(z**2), dlrd.MeanFieldNormal.standard(10), key=0,
         optimizer=optimizer, steps=1, progress=False)
"""


def imports(repeats: int = 7) -> list[Row]:
    """`import dlrd` with all its names, and the first result, against importing what dlrd is made of."""

    def process(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], check=True)

    times = interleaved(
        {
            "parts": lambda: process("import jax, optax, equinox"),
            "import": lambda: process("from dlrd import *"),
            "result": lambda: process(FIRST_RESULT),
        },
        repeats,
    )
    return [
        Row(
            "import dlrd, all names",
            "import jax, optax, equinox",
            times["import"],
            times["parts"],
            "s",
            1.5,
            False,
        ),
        Row(
            "cold process to first result",
            "import jax, optax, equinox",
            times["result"],
            times["parts"],
            "s",
            5,
            False,
        ),
    ]


def compilations() -> int:
    """How many programs are compiled after a fit's first chunk: in a fit of many chunks that follows one of a
    single chunk."""
    optimizer = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-2))

    def log_density(z: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum(z**2)

    def run(steps: int) -> None:
        family = dlrd.MeanFieldNormal.standard(10)
        dlrd.fit(log_density, family, key=0, optimizer=optimizer, steps=steps, progress=False)

    num_compiled = 0

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        nonlocal num_compiled
        num_compiled += event.endswith("backend_compile_duration")

    run(1)
    jax.monitoring.register_event_duration_secs_listener(listen)
    run(50_000)
    jax.monitoring.unregister_event_duration_listener(listen)
    return num_compiled
