"""The processes of one machine, by the program that they run: those that are free are asked again."""

import threading
from collections.abc import Callable

from dlrd.simulation.run import Answer, Question
from dlrd.simulation.slot import Slot

_PAYLOADS: dict[str, bytes] = {}
"""Programs that this process knows, by their tokens."""
Keep = Callable[[Question, Answer], None]
"""Is told of each attempt, once, from any thread."""
_KEEPERS: dict[str, Keep] = {}
"""Of programs that are asked from this very process."""
_SLOTS: dict[str, list[Slot]] = {}
"""Of each program, those that are busy, too."""
_IDLE: dict[str, list[Slot]] = {}
_LOCK = threading.Lock()


def learn(token: str, payload: bytes) -> None:
    """Makes a program known: a simulation, by cloudpickle."""
    _PAYLOADS[token] = payload


def start(token: str, num: int) -> None:
    """Starts so many processes of a program that is known, and does not wait for them."""
    slots = [Slot(_PAYLOADS[token]) for _ in range(num)]
    with _LOCK:
        for each in (_SLOTS, _IDLE):
            each.setdefault(token, []).extend(slots)


def listen(token: str, keep: Keep) -> None:
    """Has each answer told at once, before it goes its way through Dask."""
    _KEEPERS[token] = keep


def forget(token: str) -> None:
    """Ends all processes of a program."""
    with _LOCK:
        slots = _SLOTS.pop(token, [])
        for known in (_IDLE, _PAYLOADS, _KEEPERS):
            known.pop(token, None)
    for slot in slots:
        slot.close()


def carry_out(token: str, question: Question, time_limit: float | None) -> Answer:
    """Hands a question to a process that is free, or to a new one."""
    with _LOCK:
        idle = _IDLE.setdefault(token, [])
        slot = idle.pop() if idle else None
    if slot is None:
        slot = Slot(_PAYLOADS[token])
        with _LOCK:
            _SLOTS.setdefault(token, []).append(slot)
    answer = slot.ask(question, time_limit)
    if token in _KEEPERS:
        _KEEPERS[token](question, answer)
    with _LOCK:
        if slot.is_open:
            _IDLE.setdefault(token, []).append(slot)
        elif slot in _SLOTS.get(token, []):
            _SLOTS[token].remove(slot)
    return answer
