"""G3, A2: a signal handler raises in a call that waits for the loop, at any point."""

import asyncio
from typing import Any

import pytest

from batchqueue_async import BatchQueueConfig, LoopThread, SyncBatchQueue
from tests.bridge.background import PATIENCE, wait_until
from tests.bridge.interruptions import Interruption
from tests.support.oracle import check_settled

MOST_POINTS = 500


class Struck(Exception): ...


def strike() -> None:
    raise Struck


async def hang(_: list[str]) -> None:
    await asyncio.sleep(3600)


def test_the_next_shutdown_returns_what_a_struck_one_has_left(
    loop_thread: LoopThread,
) -> None:
    config = BatchQueueConfig[str](consumer=hang)
    for point in range(MOST_POINTS):
        queue = loop_thread.open(f"q{point}", config)
        queue.produce("an item")
        left: list[str] = []
        interruption = Interruption(point, strike, at_entries=True)
        try:
            with interruption:
                left += queue.shutdown(timeout=0.005)
        except Struck:
            left += queue.shutdown(timeout=0.005)
        check_settled(queue)
        assert left == ["an item"], f"struck at {interruption.where}"
        if not interruption.has_acted:
            assert point > 20
            return
    pytest.fail("it never came to an end")


def test_a_struck_call_goes_on_nowhere(loop_thread: LoopThread) -> None:
    queue: SyncBatchQueue[Any] = loop_thread.open("q", BatchQueueConfig(consumer=hang))
    began = ended = 0

    async def wait() -> None:
        nonlocal began, ended
        began += 1
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            ended += 1

    for point in range(MOST_POINTS):
        interruption = Interruption(point, strike, at_entries=True)
        try:
            with interruption:
                queue.call(wait, timeout=0.1)
        except Struck:
            # A turn of the loop later than a cancellation.
            queue.call(asyncio.sleep, 0)
            queue.call(asyncio.sleep, 0)
            assert began == ended, f"struck at {interruption.where}"
        except TimeoutError:
            break
    else:
        pytest.fail("it never came to an end")
    wait_until(lambda: began == ended)
