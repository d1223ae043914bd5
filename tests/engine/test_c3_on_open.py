"""C3 for `on_open`: one that would wait for itself gets `WouldDeadlock`."""

import asyncio
from typing import Any

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    WouldDeadlock,
)
from tests.engine.until import turns
from tests.support.oracle import check_settled


class OpensByProducing:
    """Produces in its `on_open`, into its own queue."""

    def __init__(self, *produced: int) -> None:
        self.queue: BatchQueue[int]
        self.produced = produced
        self.go = asyncio.Event()
        self.raised: list[BaseException] = []
        self.seen: list[int] = []

    async def on_open(self) -> None:
        await self.go.wait()
        try:
            await self.queue.produce_many(self.produced)
        except WouldDeadlock as error:
            self.raised.append(error)

    async def consume(self, batch: list[int]) -> None:
        self.seen.extend(batch)


def two_drain_tasks(handler: Any) -> BatchQueueConfig[int]:  # noqa: ANN401
    return BatchQueueConfig[int](
        consumer=handler,
        buffer_size=1,
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=lambda item, _: item % 2,
    )


async def test_into_its_own_full_partition() -> None:
    handler = OpensByProducing(2)
    config = BatchQueueConfig[int](consumer=handler, buffer_size=1)
    async with BatchQueue("q", config) as queue:
        handler.queue = queue
        await queue.produce(0)
        await turns()
        await queue.produce(1)
        handler.go.set()
        await queue.flush(5.0)
    assert len(handler.raised) == 1
    assert handler.seen == [0, 1]


async def test_into_the_partition_of_who_waits_for_it() -> None:
    """The other drain task stands before the handler that is being opened."""
    handler = OpensByProducing(5)
    async with BatchQueue("q", two_drain_tasks(handler)) as queue:
        handler.queue = queue
        await queue.produce(0)
        await turns()
        await queue.produce(1)
        await turns()
        await queue.produce(3)
        handler.go.set()
        await queue.flush(5.0)
    assert len(handler.raised) == 1
    assert set(handler.seen) == {0, 1, 3}
    check_settled(queue)


async def test_into_the_partition_of_who_comes_to_wait_for_it() -> None:
    """It waits for room already when the other drain task gets there."""
    handler = OpensByProducing(1, 3, 5)
    handler.go.set()
    async with BatchQueue("q", two_drain_tasks(handler)) as queue:
        handler.queue = queue
        await queue.produce(0)
        await queue.flush(5.0)
    assert len(handler.raised) == 1
    assert {0, 1} <= set(handler.seen)
    check_settled(queue)


async def test_into_a_partition_that_somebody_empties() -> None:
    """A chain without a circle is never refused."""
    stored: list[int] = []
    async with BatchQueue[int](
        "next", BatchQueueConfig(consumer=stored.extend, buffer_size=1)
    ) as after:
        handler = OpensByProducing(7)
        handler.queue = after
        handler.go.set()
        async with BatchQueue("q", two_drain_tasks(handler)) as queue:
            await queue.produce_many(range(10))
    assert handler.raised == []
    assert stored == [7]
    assert sorted(handler.seen) == list(range(10))
