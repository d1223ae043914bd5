"""C3: from a handler, `flush` of its own queue leaves out what waits for that handler.

Also what comes to wait for it when it waits already.
"""

import asyncio
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    SyncBatchQueue,
    WouldDeadlock,
    in_thread,
)
from tests.engine.until import until
from tests.support.oracle import check_settled

LIMIT = 30.0


def two_drain_tasks(handler: Any, **settings: Any) -> BatchQueueConfig[int]:  # noqa: ANN401
    return BatchQueueConfig[int](
        consumer=handler,
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=lambda item, _: item % 2,
        **settings,
    )


class Flushes:
    """Flushes its own queue in one of its hooks."""

    tick_every = 0.1

    def __init__(self, hook: str) -> None:
        self.queue: BatchQueue[int]
        self.outcomes: list[str] = []
        self.seen: list[int] = []
        setattr(self, hook, self.flush)

    async def flush(self) -> None:
        if self.outcomes:
            return
        self.outcomes.append("flushes")
        await self.queue.produce_many([2, 3])
        try:
            await self.queue.flush()
        except WouldDeadlock:
            self.outcomes.append("refused")
        else:
            self.outcomes.append("flushed")

    async def consume(self, batch: list[int]) -> None:
        self.seen.extend(batch)


@pytest.mark.parametrize("hook", ["on_open", "on_tick", "on_idle"])
async def test_a_hook_whose_handler_another_drain_task_comes_to(hook: str) -> None:
    """It comes with a batch, and waits until the hook has left the handler."""
    handler = Flushes(hook)
    async with asyncio.timeout(LIMIT):
        async with BatchQueue("q", two_drain_tasks(handler)) as queue:
            handler.queue = queue
            await queue.produce_many([0, 1])
            await until(lambda: len(handler.outcomes) == 2)
    assert handler.outcomes == ["flushes", "flushed"]
    assert sorted(handler.seen) == [0, 1, 2, 3]
    check_settled(queue)


async def test_what_does_not_wait_for_the_handler_is_flushed() -> None:
    """Another drain task is left out, and the others are not."""
    is_slow = asyncio.Event()
    settled: list[object] = []

    class Ticks:
        tick_every = 0.1

        async def on_tick(self) -> None:
            if is_slow.is_set():
                return
            is_slow.set()
            await queue.produce_many([1, "slow"])
            await queue.flush()
            settled.append(list(seen))

        async def consume(self, batch: list[int]) -> None:
            seen.extend(batch)

    async def slow(batch: list[str]) -> None:
        await asyncio.sleep(1.0)
        seen.extend(batch)

    seen: list[Any] = []
    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(3),
        partitions=PartitionPolicy.fixed(3),
        selector=lambda item, _: item if isinstance(item, int) else 2,
    )
    async with asyncio.timeout(LIMIT):
        async with BatchQueue[Any]("q", config) as queue:
            queue.add_handler(int, Ticks())
            queue.add_handler(str, slow)
            await until(lambda: settled)
    # Of the handler's own items some wait for its hook: those are left out.
    assert settled == [["slow"]]
    check_settled(queue)


@pytest.mark.real_time
async def test_a_hook_that_flushes_from_a_thread() -> None:
    class Handler:
        tick_every = 0.01

        def on_tick(self) -> None:
            if not outcomes:
                outcomes.append("flushes")
                sync_queue.produce_many([2, 3])
                sync_queue.flush(LIMIT)
                outcomes.append("flushed")

        def consume(self, batch: list[int]) -> None:
            """Takes whatever comes."""

    outcomes: list[str] = []
    async with asyncio.timeout(LIMIT):
        async with BatchQueue("q", two_drain_tasks(in_thread(Handler()))) as queue:
            sync_queue = SyncBatchQueue(queue, patience=LIMIT)
            await until(lambda: len(outcomes) == 2)
    assert outcomes == ["flushes", "flushed"]
    check_settled(queue)


async def test_a_flush_of_another_queue_is_refused() -> None:
    """Leaving something out there would be a receipt for what is not settled."""
    outcomes: list[str] = []

    class Ticks:
        tick_every = 0.1

        async def on_tick(self) -> None:
            if not outcomes:
                outcomes.append("flushes")
                await other.produce(1)
                await other.flush()
                outcomes.append("flushed")

        async def consume(self, batch: list[int]) -> None:
            """Takes whatever comes."""

    async def flushes_back(_: list[int]) -> None:
        await own.produce(1)
        try:
            await own.flush()
        except WouldDeadlock:
            outcomes.append("refused")

    async with asyncio.timeout(LIMIT):
        async with (
            BatchQueue("own", two_drain_tasks(Ticks())) as own,
            BatchQueue[int]("other", BatchQueueConfig(consumer=flushes_back)) as other,
        ):
            await until(lambda: "flushed" in outcomes)
    assert outcomes == ["flushes", "refused", "flushed"]
    check_settled(own)
