"""A loop that ends in the middle of a call keeps no slot of its handler for ever.

The handler may be shared with queues on other loops, or on the next one.
"""

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Coroutine

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, LoopThread, in_thread
from batchqueue_async._bridge.call_slots import CallSlots
from batchqueue_async._engine.handlers.handler_lock_and_call import SHARED
from tests.bridge.background import wait_until

Run = Callable[[Coroutine[None, None, None]], None]


class Blocking:
    """Blocks its thread with `first` until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()
        self.inside = self.most = 0
        self.handled: list[str] = []

    def consume(self, batch: list[str]) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.entered.set()
        if batch == ["first"]:
            self.release.wait(30)
        self.handled.extend(batch)
        self.inside -= 1


def run_and_close(main: Coroutine[None, None, None]) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main)
    loop.close()


@pytest.fixture(params=["asyncio.run", "close", "close and collect"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return what ends a loop with a queue that nobody shuts down."""

    def run_and_collect(main: Coroutine[None, None, None]) -> None:
        run_and_close(main)
        del main
        gc.collect()

    ways: dict[str, Run] = {
        "asyncio.run": asyncio.run,
        "close": run_and_close,
        "close and collect": run_and_collect,
    }
    return ways[request.param]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_next_loop_gets_the_slot_once_the_thread_has_left(
    run: Run, asyncio_errors: list[logging.LogRecord]
) -> None:
    blocking = Blocking()
    config = BatchQueueConfig[str](consumer=in_thread(blocking))

    async def leave_in_the_middle() -> None:
        queue = BatchQueue("first", config)
        await queue.start()
        await queue.produce("first")
        while not blocking.entered.is_set():  # noqa: ASYNC110 - it is on a thread
            await asyncio.sleep(0.001)

    run(leave_in_the_middle())
    with LoopThread(shutdown_timeout=10) as loop_thread:
        queue = loop_thread.open("second", config)
        assert queue.produce("second")
        wait_until(lambda: queue.stats().in_flight)
        assert blocking.handled == []
        blocking.release.set()
    assert blocking.handled == ["first", "second"]
    assert blocking.most == 1
    # Who closes a loop by hand destroys its tasks, and asyncio says so.
    gc.collect()
    asyncio_errors.clear()


@pytest.mark.parametrize("is_in_line", [False, True])
def test_a_slot_that_no_call_is_left_for_is_free(*, is_in_line: bool) -> None:
    """The thread has left, but the loop was closed before it could say so."""
    slots = CallSlots(1)
    first, second = slots.new_lock(), slots.new_lock()
    loops = [asyncio.new_event_loop() for _ in range(2)]

    async def take() -> None:
        assert first.try_acquire(SHARED)

    async def ask() -> asyncio.Future[None]:
        return second.request(SHARED)

    async def look() -> None:
        slots.tell()

    try:
        loops[0].run_until_complete(take())
        if is_in_line:
            answer = loops[1].run_until_complete(ask())
            assert not answer.done()
        loops[0].close()
        if is_in_line:
            loops[1].run_until_complete(look())
        else:
            answer = loops[1].run_until_complete(ask())
        assert answer.done()
        # What is left of the first call ends now: that frees no second one.
        first.release(SHARED)
        assert not slots.take(first, joins_line=False)
    finally:
        for loop in loops:
            loop.close()


def test_a_call_that_is_thrown_away_lets_nobody_in_on_its_closed_loop() -> None:
    slots = CallSlots(1)
    first, second = slots.new_lock(), slots.new_lock()

    async def take_and_ask() -> None:
        assert first.try_acquire(SHARED)
        answer = first.request(SHARED)
        assert not answer.done()
        # To tell who waits would raise.
        answer.add_done_callback(lambda _: None)

    run_and_close(take_and_ask())
    # As its `finally` does when the coroutine is collected.
    first.release(SHARED)
    assert second.try_acquire(SHARED)


def test_a_queue_that_is_forgotten_with_its_loop_leaves_its_slot() -> None:
    """Nothing releases what a call holds that could not be stopped."""
    slots = CallSlots(1)

    async def take() -> None:
        assert slots.new_lock().try_acquire(SHARED)
        gc.collect()

    run_and_close(take())
    assert slots.new_lock().try_acquire(SHARED)
