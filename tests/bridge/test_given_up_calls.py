"""What a call on the loop returns when its thread has given up is not lost."""

import asyncio
import threading
from typing import Any

import pytest

from batchqueue_async import BatchQueueConfig, BatchQueueError, LoopThread
from batchqueue_async._bridge.loop_call import call_on_loop
from tests.bridge.background import until, wait_until


class GivesUp:
    """A watchdog for which the loop is dead when `is_time` says so."""

    name = "the loop"

    def __init__(
        self, loop: asyncio.AbstractEventLoop, is_time: threading.Event
    ) -> None:
        self.loop = loop
        self.is_time = is_time
        self.waits = threading.Event()

    def wait(self, *_: object) -> None:
        self.waits.set()
        assert self.is_time.wait(30)
        raise BatchQueueError(self.name)


@pytest.mark.parametrize("is_seen", [False, True])
def test_it_goes_back_once(loop_thread: LoopThread, *, is_seen: bool) -> None:
    """Where the call has ended, and where its thread might just have seen that."""
    returned, gave_up = threading.Event(), threading.Event()
    given_back: list[list[str]] = []

    async def call() -> list[str]:
        await until(watchdog.waits.is_set)
        if is_seen:
            loop.call_soon(loop.call_soon, loop.call_soon, returned.set)
        else:
            # The turn in which the end would be told.
            loop.call_soon(gave_up.wait, 30)
            returned.set()
        return ["left"]

    async def running_loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    loop = loop_thread.portal.call(running_loop)
    watchdog: Any = GivesUp(loop, returned)
    with pytest.raises(BatchQueueError):
        call_on_loop(call, watchdog, given_back.append)
    gave_up.set()
    wait_until(lambda: given_back)
    for _ in range(5):
        loop_thread.portal.call(asyncio.sleep, 0)
    assert given_back == [["left"]]


def test_the_next_shutdown_returns_what_nobody_came_for() -> None:
    """As the log says of it; the loop was blocked at the deadline."""

    async def stuck(_: list[int]) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            asyncio.get_running_loop().call_soon(is_blocked.wait, 30)
            raise

    is_blocked = threading.Event()
    with LoopThread(patience=0.1) as loop_thread:
        queue = loop_thread.open("q", BatchQueueConfig[Any](consumer=stuck))
        queue.produce(1)
        wait_until(lambda: queue.stats().in_flight)
        with pytest.raises(BatchQueueError):
            queue.shutdown(timeout=0.05)
        is_blocked.set()
        wait_until(lambda: queue.stats().returned)
        assert queue.shutdown() == [1]
        assert queue.shutdown() == []
