"""`SyncBatchQueue.call`: other coroutines on the queue's loop, with its guarantees."""

import asyncio

import pytest

from batchqueue_async import BatchQueueError, LoopThread, SyncBatchQueue
from tests.bridge.background import wait_until


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def test_it_returns_what_the_function_returns(loop_thread: LoopThread) -> None:
    queue: SyncBatchQueue[int] = loop_thread.open("q")
    assert queue.call(double, 21) == 42


def test_it_raises_what_the_function_raises(loop_thread: LoopThread) -> None:
    async def fail() -> None:
        message = "no such table"
        raise LookupError(message)

    queue: SyncBatchQueue[int] = loop_thread.open("q")
    with pytest.raises(LookupError, match="no such table"):
        queue.call(fail)


def test_what_takes_too_long_is_cancelled_on_the_loop(loop_thread: LoopThread) -> None:
    ended: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    queue: SyncBatchQueue[int] = loop_thread.open("q")
    late = r"test_what_.*\.hang gave no answer within 0\.01 s"
    with pytest.raises(TimeoutError, match=late):
        queue.call(hang, timeout=0.01)
    wait_until(lambda: ended == ["cancelled"])


@pytest.mark.parametrize("timeout", ["1", float("nan"), -1])
def test_a_time_limit_that_is_none_is_refused_before_anything_runs(
    loop_thread: LoopThread, timeout: float
) -> None:
    queue: SyncBatchQueue[int] = loop_thread.open("q")
    with pytest.raises((TypeError, ValueError), match="timeout"):
        queue.call(double, 1, timeout=timeout)


def test_on_the_loops_own_thread_it_would_never_end(loop_thread: LoopThread) -> None:
    queue: SyncBatchQueue[int] = loop_thread.open("q")

    async def call_from_the_loop() -> None:
        queue.call(double, 1)

    with pytest.raises(BatchQueueError, match="loop's own thread"):
        queue.call(call_from_the_loop)


def test_after_the_end_of_the_loop_it_says_so() -> None:
    with LoopThread("ended") as loop_thread:
        queue: SyncBatchQueue[int] = loop_thread.open("q")
    with pytest.raises(BatchQueueError, match="is closed"):
        queue.call(double, 1)
