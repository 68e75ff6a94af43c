"""Compiled programs, whose compilation may begin before they are needed."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import equinox as eqx

_WORKERS = ThreadPoolExecutor(2, thread_name_prefix="dlrd")
in_background: Callable[..., Future[Any]] = _WORKERS.submit
"""Begins to call a function with arguments, and does not wait for it."""


class Program:
    """A function compiled by jax.

    Args:
        fn: of arrays and trees of them.
    """

    def __init__(self, fn: Callable[..., Any]):
        self._jitted: Any = eqx.filter_jit(fn)
        self._pending: Future[Any] | None = None
        self._is_compiled = False

    def prepare(self, *args: Any) -> None:
        """Begins to compile the program for arguments like these, unless it has been compiled before.

        It is traced before this returns: models are not made for being run in two threads at once.
        """
        if not self._is_compiled:
            self._is_compiled = True
            self._pending = in_background(self._jitted.lower(*args).compile)

    def __call__(self, *args: Any) -> Any:
        if self._pending is not None:
            with contextlib.suppress(Exception):  # of the compiler, which the call below will raise again
                self._pending.result()
            self._pending = None
        return self._jitted(*args)
