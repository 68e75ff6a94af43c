"""Ctrl-C as a request, so that nothing is lost between two chunks."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from dlrd.fitting.turns import asking


@contextlib.contextmanager
def catch_interrupt() -> Iterator[Callable[[], bool]]:
    """Notes the first Ctrl-C instead of raising it; a second one raises `KeyboardInterrupt` as usual.

    Outside the main thread, which alone receives signals, nothing is changed; of fits side by side, it asks
    those who did receive it.

    Yields:
        A function that tells whether Ctrl-C was pressed.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        with asking() as is_over:
            yield is_over
        return

    def note(number: int, frame: FrameType | None) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, previous)
