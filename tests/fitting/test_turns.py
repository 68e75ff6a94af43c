"""Jobs side by side: one at a time on the host, compiled programs at once."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from dlrd.fitting.program import Program
from dlrd.fitting.turns import asking, away, back, can_hand_on, in_turns, is_in_turns, num_cores

SECONDS, ENDLESS = 30, 30_000
"""More than any thread here waits for another; the same in milliseconds."""


@pytest.fixture
def usual_handler() -> Iterator[None]:
    """What a program in the foreground has; in the background, shells have SIGINT ignored."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def test_results_come_in_the_order_of_the_jobs() -> None:
    later = threading.Event()

    def first() -> str:
        with away():
            assert later.wait(SECONDS)
        return "first"

    def second() -> str:
        later.set()
        return "second"

    assert in_turns([first, second], 2) == ["first", "second"]


def test_one_at_a_time_but_when_away() -> None:
    meeting = threading.Barrier(3, timeout=SECONDS)
    num_here, most = 0, 0

    def job() -> bool:
        nonlocal num_here, most
        for _ in range(20):
            num_here += 1
            most = max(most, num_here)
            num_here -= 1
            with away():
                meeting.wait()  # for all three at once
        return is_in_turns()

    assert in_turns([job] * 3, 3) == [True] * 3
    assert most == 1
    assert not is_in_turns()


def test_tracing_takes_the_turn_back() -> None:
    """A program that must be traced anew, though it was called before: no two do so at once."""
    tracing, most = 0, 0

    def fn(x: Any) -> Any:
        nonlocal tracing, most
        tracing += 1
        most = max(most, tracing)
        tracing -= 1
        return 2 * x

    def job(size: int) -> Callable[[], float]:
        def call() -> float:
            with away(), back():
                return float(jnp.sum(Program(fn)(jnp.ones(size))))

        return call

    assert in_turns([job(size) for size in (1, 2, 3, 4)], 4) == [2.0, 4.0, 6.0, 8.0]
    assert most == 1


def test_programs_are_compiled_once_for_all() -> None:
    num_traced = 0

    def fn(x: Any) -> Any:
        nonlocal num_traced
        num_traced += 1
        return jnp.sin(x)

    program = Program(fn)

    def job() -> list[float]:
        return [float(program(jnp.float32(each))) for each in range(3)]

    first, *others = in_turns([job] * 4, 4)
    assert others == [first] * 3
    assert num_traced == 1


def test_an_error_ends_all_and_is_raised() -> None:
    begun = []

    def failing() -> None:
        raise ZeroDivisionError("of the job")

    def endless() -> None:
        begun.append(True)
        for _ in range(ENDLESS):
            with away():
                time.sleep(1e-3)

    with pytest.raises(ZeroDivisionError, match="of the job"):
        in_turns([endless, failing, endless], 2)
    assert len(begun) <= 2


def test_ctrl_c_ends_all_with_what_they_have(usual_handler: None) -> None:
    def patient(number: int) -> Callable[[], tuple[int, str]]:
        def job() -> tuple[int, str]:
            try:
                for _ in range(ENDLESS):
                    with away():
                        time.sleep(1e-3)
                    if number == 1 and is_first.acquire(blocking=False):
                        os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                with away():  # raised once: what is left to do is done
                    return number, "told"
            return number, "done"

        return job

    is_first = threading.Semaphore(1)
    assert in_turns([patient(number) for number in range(4)], 2) == [(0, "told"), (1, "told")]


def test_those_who_ask_are_not_interrupted(usual_handler: None) -> None:
    def job() -> int:
        count = 0
        with asking() as is_over:
            os.kill(os.getpid(), signal.SIGINT)
            while not is_over():
                with away():
                    time.sleep(1e-3)
                count += 1
        return count

    assert len(in_turns([job], 2)) == 1


def test_without_any_result_the_interrupt_is_raised(usual_handler: None) -> None:
    def job() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_turns([job, job], 2)


@pytest.mark.parametrize("has_x64", [False, True])
def test_precision_is_handed_on(has_x64: bool) -> None:
    with jax.enable_x64(has_x64):
        assert can_hand_on()
        found = in_turns([lambda: jnp.zeros(()).dtype] * 2, 2)
    assert found == [jnp.float64 if has_x64 else jnp.float32] * 2


def test_what_cannot_be_handed_on_is_known() -> None:
    with jax.default_matmul_precision("float32"):
        assert not can_hand_on()
    assert can_hand_on()
    assert num_cores() >= 1
