"""A task whose handler has used up the memory that its worker may have.

`spark.executor.pyspark.memory` bounds it; the stack of a thread takes 8 MiB.
"""

import asyncio
import threading
from typing import Any

import pytest

from batchqueue_async import DeliveryError, LoopThread, SyncBatchQueue
from batchqueue_async.spark._emitting import Emit
from tests.spark.emitting.test_task import Handler, Opening, ids, in_batches, task

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(60)]


def test_without_memory_for_a_thread_a_task_tells_what_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(_: threading.Thread) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    def exhausting(_: Emit) -> Handler:
        async def consume(_: list[tuple[int]]) -> None:
            monkeypatch.setattr(threading.Thread, "start", start)
            raise MemoryError

        return consume

    with pytest.raises(DeliveryError, match="MemoryError"):
        ids(task(Opening(exhausting))(in_batches(100, 100)))


def test_a_loop_that_cannot_end_does_not_hold_the_task_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without memory it waits for ever for the thread that is to end its executor.

    All rows are there; the task waited for ten minutes for each queue's counts.
    """
    released, start = threading.Event(), threading.Thread.start

    def start_later(thread: threading.Thread) -> None:
        released.wait()
        start(thread)

    def leaving(emit: Emit) -> Handler:
        async def consume(items: list[tuple[int]]) -> None:
            await asyncio.to_thread(emit.many, items)
            monkeypatch.setattr(threading.Thread, "start", start_later)

        return consume

    def open_queue(loop_thread: LoopThread, emit: Emit) -> SyncBatchQueue[Any]:
        loop_thread._shutdown_timeout = 0.5  # half a minute otherwise
        return Opening(leaving)(loop_thread, emit)

    try:
        assert ids(task(open_queue)(in_batches(10, 10))) == [*range(10)]
    finally:
        released.set()
