"""Compiled programs, whose compilation may begin before they are needed."""

import contextlib
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from dlrd.fitting.turns import away, back, is_in_turns

MAX_SIZE = 16
"""Structures of arguments, for each function, whose compiled programs are kept."""
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
    """

    def __init__(self, fn: Callable[..., Any], max_size: int = MAX_SIZE):
        self._fn = fn
        self._max_size = max_size
        # By the structure of the arguments, the latest last; with the shapes that were called in turns.
        self._jitted: dict[Hashable, tuple[Any, set[Any]]] = {}
        self._pending: dict[Hashable, Future[Any]] = {}  # compilations under way

    def prepare(self, *args: Any) -> None:
        """Begins to compile the program for arguments like these, unless it is known for their structure.

        It is traced before this returns: models are not made for being run in two threads at once.
        """
        arrays, structure = _parts(args)
        if structure not in self._jitted:
            lowered = self._jitted_for(structure)[0].lower(*arrays)
            self._pending[structure] = in_background(lowered.compile)

    def __call__(self, *args: Any) -> Any:
        arrays, structure = _parts(args)
        if structure in self._pending:
            with contextlib.suppress(Exception):  # of the compiler, which the call below will raise again
                self._pending.pop(structure).result()
        jitted, known = self._jitted_for(structure)
        if not is_in_turns():
            return jitted(*arrays)
        shapes = tuple((each.shape, each.dtype) for each in arrays)
        if shapes not in known:  # others have to wait: they would compile it, too
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

            self._jitted[structure] = jax.jit(flat), set()
            for oldest in list(self._jitted)[: -self._max_size]:
                del self._jitted[oldest]
                self._pending.pop(oldest, None)
        return self._jitted[structure]


_ARRAY = object()
"""Stands for an array in the structure of arguments."""


def _parts(args: tuple[Any, ...]) -> tuple[list[Any], Any]:
    """The arrays among the arguments, and all else of them, hashable."""
    leaves, form = jax.tree.flatten(args)
    is_array = [isinstance(leaf, (jax.Array, np.ndarray, np.generic)) for leaf in leaves]
    arrays = [leaf for leaf, own in zip(leaves, is_array, strict=True) if own]
    others = tuple(_ARRAY if own else leaf for leaf, own in zip(leaves, is_array, strict=True))
    return arrays, (form, others)
