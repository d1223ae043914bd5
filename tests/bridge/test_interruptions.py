"""Ctrl-C and signal handlers at any point inside of the bridge.

In a notebook or a Spark driver the program goes on after a `KeyboardInterrupt`: then
the queue must, too. An interrupted `produce` has accepted its item or has not; either
way nothing is left in the line, no lock is held and no wake-up is lost.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    LoopThread,
    PartitionPolicy,
    SyncBatchQueue,
    WhenFull,
    round_robin,
)
from tests.bridge.background import in_background, wait_until
from tests.bridge.gated import Gated, partition_of, stall
from tests.bridge.interruptions import Interruption, ctrl_c
from tests.support.oracle import check_accounts, check_settled

Bridge = SyncBatchQueue[Any]
MOST_POINTS = 400


@pytest.fixture
def loop_thread(patience: None) -> Iterator[LoopThread]:
    """One kind of loop: what is tested here runs on other threads."""
    with LoopThread(shutdown_timeout=5.0) as running:
        yield running


def sweep(attempt: Callable[[int], Interruption]) -> list[str]:
    """Try each point in turn; returns where it went wrong."""
    faults: list[str] = []
    for at in range(MOST_POINTS):
        interruption = Interruption(at, ctrl_c)
        try:
            interruption = attempt(at)
        except AssertionError as error:
            faults.append(str(error).partition("\n")[0])
        else:
            if not interruption.has_acted:
                assert at > 5, "there are hardly any points"
                return faults
        if faults:
            return faults
    message = "the sweep does not end"
    raise AssertionError(message)


def interrupted(interruption: Interruption, call: Callable[[], object]) -> bool:
    """Whether the call raised what interrupted it."""
    try:
        with interruption:
            call()
    except KeyboardInterrupt:
        return True
    return False


PUTS: dict[str, Callable[[Bridge], object]] = {
    "produce": lambda queue: queue.produce(1),
    "produce twice": lambda queue: (queue.produce(1), queue.produce(2)),
    "produce in time": lambda queue: queue.produce(1, timeout=5),
    "produce_many": lambda queue: queue.produce_many([1, 2, 3]),
}


@pytest.mark.parametrize(
    "put", [pytest.param(put, id=name) for name, put in PUTS.items()]
)
@pytest.mark.parametrize("by_turns", [False, True])
def test_an_interrupted_put_loses_no_wake_up(
    loop_thread: LoopThread, put: Callable[[Bridge], object], *, by_turns: bool
) -> None:
    """Whatever it left: what others produce next is handled without a flush."""

    def attempt(at: int) -> Interruption:
        handler = Gated()
        config = BatchQueueConfig[Any](buffer_size=50)
        if by_turns:
            config = BatchQueueConfig[Any](
                buffer_size=50,
                partitions=PartitionPolicy.fixed(2),
                selector=round_robin,
            )
        queue: Bridge = loop_thread.open(f"q{at}", config, {int: handler})
        interruption = Interruption(at, ctrl_c)
        interrupted(interruption, lambda: put(queue))
        for item in (10, 11):
            assert in_background(queue.produce, item).result(10)
        where = f"interrupted at {interruption.where}"
        accepted = queue._queue.stats().accepted
        with contextlib.suppress(AssertionError):
            wait_until(lambda: len(handler.handled) == accepted)
        waiting = queue._queue.stats().waiting
        assert waiting == 0, f"{waiting} items wait for ever: {where}"
        assert {10, 11} <= set(handler.handled), where
        assert len(handler.handled) == len(set(handler.handled)), where
        check_settled(queue)
        return interruption

    assert run_sweep(attempt) == []


def run_sweep(attempt: Callable[[int], Interruption]) -> list[str]:
    # A trace function is its thread's own.
    return in_background(sweep, attempt).result(25)


WAITS: dict[str, Callable[[Bridge], object]] = {
    "produce": lambda queue: queue.produce(99, timeout=0.003),
    "no time": lambda queue: queue.produce(99, timeout=0),
    "produce_many": lambda queue: queue.produce_many([98, 99], timeout=0.003),
}


@pytest.mark.parametrize(
    "wait", [pytest.param(wait, id=name) for name, wait in WAITS.items()]
)
def test_an_interrupted_wait_leaves_nothing_behind(
    loop_thread: LoopThread, wait: Callable[[Bridge], object]
) -> None:
    """It was never accepted, for the partition was full all the time."""

    def attempt(at: int) -> Interruption:
        stalled = stall(loop_thread, buffer_size=1, name=f"q{at}")
        interruption = Interruption(at, ctrl_c)
        interrupted(interruption, lambda: wait(stalled.sync_queue))
        where = f"interrupted at {interruption.where}"
        length = stalled.line_length
        after = in_background(stalled.sync_queue.produce, 7, 10)
        stalled.release()
        assert after.result(10), where
        wait_until(lambda: 7 in stalled.handler.handled)
        assert stalled.handler.handled == [0, 1, 7], where
        assert length == 0, where
        assert stalled.sync_queue.shutdown(10) == []
        check_settled(stalled.sync_queue)
        return interruption

    assert run_sweep(attempt) == []


@pytest.mark.parametrize("call", ["flush", "stats", "shutdown"])
def test_an_interrupted_call_can_be_made_again(
    loop_thread: LoopThread, call: str
) -> None:
    def attempt(at: int) -> Interruption:
        handler = Gated()
        queue: Bridge = loop_thread.open(f"q{at}", None, {int: handler})
        assert queue.produce_many([1, 2]) == 2
        interruption = Interruption(at, ctrl_c)
        interrupted(interruption, getattr(queue, call))
        where = f"interrupted at {interruption.where}"
        getattr(queue, call)()
        assert queue.shutdown(10) == [], where
        assert handler.handled == [1, 2], where
        check_settled(queue)
        return interruption

    assert run_sweep(attempt) == []


@pytest.mark.parametrize("when_full", list(WhenFull))
@pytest.mark.parametrize("buffer_size", [1, 3])
def test_a_signal_handler_may_produce_at_any_point(
    loop_thread: LoopThread, when_full: WhenFull, buffer_size: int
) -> None:
    """It finds the bridge in the middle of another `produce` of its own thread."""
    handlers: list[Gated] = []

    def attempt(at: int) -> Interruption:
        handler = Gated(is_open=False)
        handlers.append(handler)
        config = BatchQueueConfig[Any](buffer_size=buffer_size, when_full=when_full)
        queue: Bridge = loop_thread.open(f"q{at}", config, {int: handler})
        partition = partition_of(queue)
        assert queue.produce(0)
        assert handler.entered.wait(10)
        results: list[bool] = []
        fullest: list[int] = []

        def on_signal() -> None:
            results.append(queue.produce(50, timeout=0))
            fullest.append(len(partition.items))

        interruption = Interruption(at, on_signal)
        accepted = 1
        with interruption:
            for item in range(1, buffer_size + 2):
                accepted += queue.produce(item, timeout=0)
                fullest.append(len(partition.items))
            accepted += queue.produce_many([20, 21], timeout=0)
        fullest.append(len(partition.items))
        where = f"a signal at {interruption.where}"
        assert max(fullest) <= buffer_size, f"{max(fullest)} wait: {where}"
        assert queue._queue.stats().accepted == accepted + sum(results), where
        handler.gate.set()
        assert queue.shutdown(10) == [], where
        check_settled(queue)
        return interruption

    def guarded(at: int) -> Interruption:
        try:
            return attempt(at)
        except Exception as error:
            message = str(error).partition("\n")[0] or repr(error)
            raise AssertionError(message) from error
        finally:
            handlers[-1].gate.set()

    assert run_sweep(guarded) == []


@pytest.fixture
def interrupter() -> Iterator[Callable[[float], None]]:
    """Sends SIGINT to the main thread after so many seconds."""
    timers: list[threading.Timer] = []
    main = threading.main_thread().ident
    assert main is not None

    def interrupt(seconds: float) -> None:
        timer = threading.Timer(seconds, signal.pthread_kill, (main, signal.SIGINT))
        timers.append(timer)
        timer.start()

    yield interrupt
    for each in timers:
        each.join(10)


BLOCKED: dict[str, Callable[[Bridge], object]] = {
    "produce": lambda queue: queue.produce(99),
    "produce twice": lambda queue: (queue.produce(1), queue.produce(2)),
    "produce in time": lambda queue: queue.produce(99, timeout=30),
    "produce_many": lambda queue: queue.produce_many([98, 99]),
    "flush": lambda queue: queue.flush(),
    "flush in time": lambda queue: queue.flush(30),
    "shutdown": lambda queue: queue.shutdown(),
}


@pytest.mark.parametrize(
    "call", [pytest.param(call, id=name) for name, call in BLOCKED.items()]
)
def test_ctrl_c_ends_a_blocked_call_of_the_main_thread(
    loop_thread: LoopThread,
    interrupter: Callable[[float], None],
    call: Callable[[Bridge], object],
) -> None:
    stalled = stall(loop_thread)

    def call_and_interrupt() -> None:
        interrupter(0.05)
        call(stalled.sync_queue)

    with pytest.raises(KeyboardInterrupt):
        call_and_interrupt()
    assert stalled.line_length == 0
    stalled.release()
    assert stalled.sync_queue.shutdown(10) == []
    assert stalled.handler.handled == stalled.first_items
    check_settled(stalled.sync_queue)


def test_ctrl_c_again_and_again_does_no_harm(
    loop_thread: LoopThread, interrupter: Callable[[float], None]
) -> None:
    """Real signals, at moments that nobody has chosen."""
    handler = Gated()
    config = BatchQueueConfig[Any](buffer_size=3)
    queue: Bridge = loop_thread.open("q", config, {int: handler})
    sure: list[int] = []
    number = 0
    for _ in range(30):
        try:
            interrupter(0.003)
            while True:
                number += 1
                if queue.produce(number):
                    sure.append(number)
        except KeyboardInterrupt:
            pass
    wait_until(lambda: check_accounts(queue).waiting == 0)
    in_background(queue.produce, 0).result(10)
    wait_until(lambda: handler.handled[-1:] == [0])
    handled = handler.handled[:-1]
    assert handled == sorted(set(handled))
    # One may have been interrupted after its acceptance, but before it was noted.
    assert set(sure) <= set(handled)
    assert len(set(handled) - set(sure)) <= 30
    assert queue.shutdown(10) == []
    check_settled(queue)
