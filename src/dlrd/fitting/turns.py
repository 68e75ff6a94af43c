"""Fits side by side: compiled programs at once, and all else, one fit at a time, in turns.

So no model is traced by two at once. All else that Python does would not be faster at once, either.
"""

import contextlib
import contextvars
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax


class Crew:
    """Threads that take turns."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.is_over = threading.Event()  # whether all should end with what they have


class _Own(threading.local):
    """What a thread is in the middle of."""

    crew: Crew | None = None
    is_away = False  # in a compiled program, while others have the turn
    is_asking = False  # by itself, now and then, whether it should end
    was_told = False  # that it should


_own = _Own()


@contextlib.contextmanager
def away() -> Iterator[None]:
    """Gives the turn to others meanwhile; then raises `KeyboardInterrupt`, once a job, if all is over."""
    crew = _own.crew
    if crew is None or _own.is_away:
        yield
        return
    crew.turn.release()
    _own.is_away = True
    try:
        yield
    finally:
        crew.turn.acquire()
        _own.is_away = False
    if crew.is_over.is_set() and not _own.is_asking and not _own.was_told:
        _own.was_told = True
        raise KeyboardInterrupt


@contextlib.contextmanager
def back() -> Iterator[None]:
    """Takes the turn where it was given away, as for tracing."""
    crew = _own.crew
    if crew is None or not _own.is_away:
        yield
        return
    with crew.turn:
        _own.is_away = False
        try:
            yield
        finally:
            _own.is_away = True


@contextlib.contextmanager
def asking() -> Iterator[Callable[[], bool]]:
    """Gives a function that tells whether the job should end; nothing is raised meanwhile."""
    crew = _own.crew
    if crew is None:
        yield lambda: False
        return
    _own.is_asking = True

    def is_over() -> bool:
        _own.was_told = _own.was_told or crew.is_over.is_set()
        return _own.was_told

    try:
        yield is_over
    finally:
        _own.is_asking = False


def is_in_turns() -> bool:
    """Whether this thread is one of several that take turns."""
    return _own.crew is not None


def num_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def can_hand_on() -> bool:
    """Whether threads can have all of jax's settings that are those of this one."""
    return _settings_of_this_thread().keys() <= {"jax_enable_x64"}


def in_turns(jobs: Sequence[Callable[[], Any]], num_threads: int) -> list[Any]:
    """Does the jobs side by side.

    Ctrl-C ends those under way with what they have, and a second one raises `KeyboardInterrupt` as usual. An
    error in one job ends all, and is raised.

    Args:
        jobs: each gives a result; one that is told to end may raise `KeyboardInterrupt` in place of that.
        num_threads: jobs at once.

    Returns:
        The results in the order of the jobs; after Ctrl-C only those before the first that has none.
    """
    crew, settings = Crew(), _settings_of_this_thread()
    results: dict[int, Any] = {}
    errors: list[BaseException] = []
    left, ended = iter(enumerate(jobs)), threading.Semaphore(0)

    def work() -> None:
        with crew.turn, _with_settings(settings):
            _own.crew = crew
            for number, job in left:
                if crew.is_over.is_set():
                    break
                _own.was_told = False
                try:
                    results[number] = job()
                except KeyboardInterrupt:
                    crew.is_over.set()
                except BaseException as error:  # raised where the jobs came from
                    errors.append(error)
                    crew.is_over.set()
            _own.crew = None
        ended.release()

    try:
        with crew.turn:
            for _ in range(num_threads):
                # Not to be waited for after a second Ctrl-C.
                threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True).start()
    except BaseException:  # Ctrl-C before any job, or no more threads
        crew.is_over.set()
        raise
    num_working = num_threads
    while num_working:
        try:
            ended.acquire()
            num_working -= 1
        except KeyboardInterrupt:
            if crew.is_over.is_set():
                raise
            crew.is_over.set()
    if errors:
        raise errors[0]
    num_whole = next((number for number in range(len(jobs)) if number not in results), len(jobs))
    if num_whole == 0 and jobs:
        raise KeyboardInterrupt
    return [results[number] for number in range(num_whole)]


def _settings_of_this_thread() -> dict[str, Any]:
    """Settings of jax that hold in this thread alone, as inside of `with jax.enable_x64(…)`."""
    others: dict[str, Any] = {}
    thread = threading.Thread(target=lambda: others.update(jax.config.values))
    thread.start()
    thread.join()
    return {name: value for name, value in jax.config.values.items() if others[name] != value}


def _with_settings(settings: dict[str, Any]) -> contextlib.AbstractContextManager[Any]:
    has_x64 = settings.get("jax_enable_x64")
    return contextlib.nullcontext() if has_x64 is None else jax.enable_x64(has_x64)
