"""Compiled programs, whose compilation may begin before they are needed."""

import contextlib
import functools
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from dlrd.fitting.turns import away, back, is_in_turns

MAX_SIZE = 16
"""Structures of arguments, for each function, whose compiled programs are kept."""
QUICKLY = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
"""With these, XLA compiles for processors in three quarters of the time; programs take a quarter longer."""
KNOWN_UNTIL = (0, 10)
"""The jax whose XLA is sure to know these options; a later one is tried, which takes one program more."""
_WORKERS = ThreadPoolExecutor(2, thread_name_prefix="dlrd")
in_background: Callable[..., Future[Any]] = _WORKERS.submit
"""Begins to call a function with arguments, and does not wait for it."""


class Program:
    """A function compiled by jax, for each structure of its arguments once.

    Arrays of the arguments are traced, all else is part of their structure, as with `equinox.filter_jit`:
    models among them, but not the data that a model is a tree of. But jax is told of the arrays alone: it
    would keep what else it sees, and with that the model, for good. Here, what was not called for longest is
    let go.

    Args:
        fn: of arrays and trees of them.
        max_size: for how many structures compiled programs are kept.
        is_quick: whether to compile in less time a program that takes a little more: most run for less than
            they compile.
    """

    def __init__(self, fn: Callable[..., Any], max_size: int = MAX_SIZE, is_quick: bool = True):
        self._fn = fn
        self._max_size = max_size
        self._is_quick = is_quick
        # By the structure of the arguments, the latest last; with the shapes that it is compiled for.
        self._jitted: dict[Hashable, tuple[Any, set[Any]]] = {}
        # Compilations under way, by the structure and the shapes.
        self._pending: dict[tuple[Hashable, Any], Future[Any]] = {}

    def prepare(self, *args: Any) -> None:
        """Begins to compile the program for arguments like these, unless it was called or prepared for such.

        It is traced before this returns: models are not made for being run in two threads at once.
        """
        arrays, structure = _parts(args)
        jitted, known = self._jitted_for(structure)
        shapes = _shapes(arrays)
        if shapes not in known:
            lowered = jitted.lower(*arrays)
            known.add(shapes)
            self._pending[structure, shapes] = in_background(lowered.compile)

    def __call__(self, *args: Any) -> Any:
        arrays, structure = _parts(args)
        shapes = _shapes(arrays)
        if (structure, shapes) in self._pending:
            with contextlib.suppress(Exception):  # of the compiler, which the call below will raise again
                self._pending.pop((structure, shapes)).result()
        jitted, known = self._jitted_for(structure)
        if shapes not in known or not is_in_turns():  # others have to wait: they would compile it, too
            found = jitted(*arrays)
            known.add(shapes)
            return found
        with away():
            return jax.block_until_ready(jitted(*arrays))

    def _jitted_for(self, structure: Any) -> tuple[Any, set[Any]]:
        if structure in self._jitted:
            self._jitted[structure] = self._jitted.pop(structure)
        else:
            form, others = structure

            def flat(*arrays: Any) -> Any:
                traced = iter(arrays)
                rest = [next(traced) if each is _ARRAY else each for each in others]
                with back():
                    return self._fn(*form.unflatten(rest))

            self._jitted[structure] = (
                jax.jit(flat, compiler_options=_options() if self._is_quick else None),
                set(),
            )
            for oldest in list(self._jitted)[: -self._max_size]:
                del self._jitted[oldest]
                self._pending = {each: done for each, done in self._pending.items() if each[0] != oldest}
        return self._jitted[structure]


@functools.lru_cache(maxsize=1)
def _options() -> dict[str, Any] | None:
    """To compile quickly; none where XLA knows no such options."""
    if jax.default_backend() != "cpu":
        return None
    if jax.__version_info__[:2] > KNOWN_UNTIL:
        try:
            jax.jit(lambda: 0, compiler_options=QUICKLY).lower().compile()
        except jax.errors.JaxRuntimeError:
            return None
    return QUICKLY


_ARRAY = object()
"""Stands for an array in the structure of arguments."""


def _parts(args: tuple[Any, ...]) -> tuple[list[Any], Any]:
    """The arrays among the arguments, and all else of them, hashable."""
    leaves, form = jax.tree.flatten(args)
    is_array = [isinstance(leaf, (jax.Array, np.ndarray, np.generic)) for leaf in leaves]
    arrays = [leaf for leaf, own in zip(leaves, is_array, strict=True) if own]
    others = tuple(_ARRAY if own else leaf for leaf, own in zip(leaves, is_array, strict=True))
    return arrays, (form, others)


def _shapes(arrays: list[Any]) -> tuple[Any, ...]:
    return tuple((each.shape, each.dtype) for each in arrays)
