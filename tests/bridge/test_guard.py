"""The lock between the loop and other threads: exclusive, reentrant, never leaked."""

import threading
from collections.abc import Iterator

import pytest

from batchqueue_async import LoopThread
from batchqueue_async._threads.guard import Guard
from tests.bridge.background import in_background
from tests.bridge.gated import Gated
from tests.bridge.interruptions import Interruption, ctrl_c


@pytest.fixture
def loop_thread(patience: None) -> Iterator[LoopThread]:
    with LoopThread(shutdown_timeout=5.0) as running:
        yield running


def test_one_thread_at_a_time() -> None:
    guard = Guard()
    inside: list[int] = []
    most: list[int] = []

    def enter(me: int) -> None:
        for _ in range(2_000):
            with guard:
                inside.append(me)
                most.append(len(inside))
                inside.remove(me)

    calls = [in_background(enter, me) for me in range(4)]
    for call in calls:
        call.result(20)
    assert len(most) == 8_000
    assert max(most) == 1


def test_it_is_reentrant_and_counts() -> None:
    guard = Guard()
    levels = [guard.levels]
    with guard:
        levels.append(guard.levels)
        with guard:
            levels.append(guard.levels)
        assert guard.is_mine
    levels.append(guard.levels)
    assert levels == [0, 1, 2, 0]
    assert not guard.is_mine


def test_who_waits_for_it_gets_it() -> None:
    guard = Guard()
    entered = threading.Event()

    def enter() -> int:
        entered.set()
        with guard:
            return guard.levels

    with guard:
        call = in_background(enter)
        assert entered.wait(10)
        assert not call.done()
    assert call.result(10) == 1


def test_ctrl_c_never_leaks_it() -> None:
    def sweep() -> int:
        for at in range(100):
            guard = Guard()
            interruption = Interruption(at, ctrl_c)
            try:
                with interruption, guard, guard:
                    pass
            except KeyboardInterrupt:
                assert guard.levels == 0, interruption.where
            if not interruption.has_acted:
                return at
        message = "the sweep does not end"
        raise AssertionError(message)

    # A trace function is its thread's own. Each of the two entries makes a call.
    assert in_background(sweep).result(20) >= 2


def test_the_loop_is_woken_without_it(loop_thread: LoopThread) -> None:
    """The system call lets other threads run, which would run into the guard."""
    queue = loop_thread.open("q", None, {int: Gated()})
    inbox, held = queue._ingress, []
    wake = inbox._wake_loop

    def wake_loop() -> None:
        held.append(inbox.guard.is_mine)
        wake()

    inbox._wake_loop = wake_loop
    assert queue.produce(1)
    assert queue.produce_many([2, 3]) == 2
    queue.flush()
    assert held
    assert not any(held)
