"""D2: what becomes due is handled at once, also where that began in a cycle.

A drain task that is awake is not told what becomes due: it looks before it sleeps. What
it has seen there, and what was not due yet, has to be told when it becomes so.
"""

import asyncio

from batchqueue_async import BatchQueue, BatchQueueConfig, IdleBackoff
from batchqueue_async._engine.queue import parts_of
from tests.engine.until import until

NAPS = IdleBackoff(shortest=1.0, longest=1000.0)
LINGERING = BatchQueueConfig[int](buffer_size=20, max_batch=5, linger=100.0, idle=NAPS)


def now() -> float:
    return asyncio.get_running_loop().time()


class Filling:
    """While its first batch is handled, more items come: some, but not a batch."""

    def __init__(self, queue: BatchQueue[int], coming: int) -> None:
        self._queue = queue
        self._coming = coming
        self.batches: list[list[int]] = []
        self.times: list[float] = []

    async def consume(self, batch: list[int]) -> None:
        self.batches.append(batch)
        self.times.append(now())
        for item in range(self._coming):
            await self._queue.produce(item)
        self._coming = 0


async def test_a_batch_that_a_cycle_began_and_a_nap_completed_is_due_at_once() -> None:
    async with BatchQueue("q", LINGERING) as queue:
        filling = Filling(queue, coming=3)
        queue.add_handler(int, filling.consume)
        await queue.produce_many(range(5))
        await until(lambda: len(filling.batches) == 1)
        await asyncio.sleep(1.0)
        began = now()
        for item in range(3, 5):
            await queue.produce(item)
        await until(lambda: len(filling.batches) == 2, patience=200.0)
        assert filling.batches[1] == [0, 1, 2, 3, 4]
        assert filling.times[1] == began


async def test_a_batch_that_a_cycle_completed_is_due_at_once() -> None:
    async with BatchQueue("q", LINGERING) as queue:
        filling = Filling(queue, coming=5)
        queue.add_handler(int, filling.consume)
        began = now()
        await queue.produce_many(range(5))
        await until(lambda: len(filling.batches) == 2, patience=200.0)
        assert filling.times == [began, began]


async def test_no_item_before_a_full_buffer_meets_an_edge_in_a_cycle() -> None:
    async with BatchQueue("q", BatchQueueConfig[int](buffer_size=10)) as queue:
        partition = parts_of(queue).partitions[0]
        limits: list[int] = []

        async def consume(batch: list[int]) -> None:
            if batch == [0]:
                await queue.produce(1)
                limits.append(partition.limit)

        queue.add_handler(int, consume)
        await queue.produce(0)
        await queue.flush()
        assert limits == [10]
