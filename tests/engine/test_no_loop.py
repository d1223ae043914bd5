"""Where no asyncio loop runs, as under Trio, the error says what there is instead."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueError,
    BatchQueueManager,
    drain_on_signals,
)
from batchqueue_async.ring import Disruptor, SyncRing


async def leave_manager() -> None:
    async with BatchQueueManager() as manager:
        await manager.create("q")


async def enter_ring() -> None:
    disruptor = Disruptor(object, 8)
    disruptor.handle_events_with(lambda *_: None)
    async with disruptor:
        pass


async def install() -> None:
    drain_on_signals(BatchQueue("q"))


async def open_ring_to_threads() -> None:
    SyncRing(Disruptor(object, 8).ring)


@pytest.mark.parametrize(
    "begin, what",
    [
        (lambda: BatchQueue("q").start(), "queue 'q'"),
        (leave_manager, "queue 'q'"),
        (enter_ring, "the ring"),
        (open_ring_to_threads, "a SyncRing"),
        (install, "drain_on_signals"),
    ],
    ids=["start", "manager", "ring", "SyncRing", "drain_on_signals"],
)
def test_what_needs_a_loop_names_who_has_one(
    begin: Callable[[], Coroutine[Any, Any, object]],
    what: str,
) -> None:
    rule = "needs a running asyncio event loop, and here is none: .* a LoopThread$"
    with pytest.raises(RuntimeError, match=f"^{what} {rule}"):
        # Without asyncio's loop, as Trio and others run it.
        begin().send(None)


def test_a_queue_that_found_no_loop_can_still_be_started() -> None:
    queue = BatchQueue[int]("q")
    with pytest.raises(RuntimeError, match="here is none"):
        queue.start().send(None)
    with pytest.raises(BatchQueueError, match="is not started"):
        queue.produce_nowait(1)
