"""Double precision for the whole process."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import jax


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """For all threads: jax's callbacks, which solve the field problem, run in threads of their own."""
    with ThreadPoolExecutor(1) as pool:  # a new thread sees the setting of the process
        before = pool.submit(jax.config.read, "jax_enable_x64").result()
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)
