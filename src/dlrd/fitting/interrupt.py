"""Ctrl-C as a request, so that nothing is lost between two chunks."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def catch_interrupt() -> Iterator[Callable[[], bool]]:
    """Notes the first Ctrl-C instead of raising it; a second one raises `KeyboardInterrupt` as usual.

    Outside the main thread, which alone receives signals, nothing is changed.

    Yields:
        A function that tells whether Ctrl-C was pressed.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return

    def note(number: int, frame: FrameType | None) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, previous)
