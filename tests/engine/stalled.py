"""A queue whose only partition is full while its handler holds a batch.

The state in which producers wait: the handler has taken item 0 and stands at a closed
gate, items 1 to `buffer_size` fill the partition.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from batchqueue_async import BatchQueue, BatchQueueConfig, WhenFull
from tests.engine.until import turns
from tests.support.oracle import check_accounts, check_settled
from tests.support.recording_handler import RecordingHandler


@dataclass
class Stalled:
    queue: BatchQueue[int]
    handler: RecordingHandler[int]
    gate: asyncio.Event
    waiting: list[asyncio.Task[object]] = field(default_factory=list)

    async def join_the_line(self, *items: int) -> None:
        """Start one producer that waits, whose answer is of no interest."""
        task = await self.wait_to_produce(*items)
        assert not task.done()

    async def wait_to_produce(self, *items: int) -> asyncio.Task[bool]:
        """Start one producer that waits in line, with one item or with several."""
        assert items
        call = self.queue.produce(items[0]) if len(items) == 1 else self._many(items)
        task = asyncio.create_task(call)
        self.waiting.append(task)
        await turns(3)
        return task

    async def _many(self, items: tuple[int, ...]) -> bool:
        return await self.queue.produce_many(items) == len(items)


@asynccontextmanager
async def stalled_queue(
    buffer_size: int = 2,
    *,
    max_batch: int | None = None,
    when_full: WhenFull = WhenFull.WAIT,
) -> AsyncIterator[Stalled]:
    """Leaving it opens the gate, drains the queue and checks its accounts."""
    gate = asyncio.Event()
    handler = RecordingHandler[int](gate=gate)
    config = BatchQueueConfig[int](
        buffer_size=buffer_size, max_batch=max_batch, when_full=when_full
    )
    queue = BatchQueue("stalled", config)
    async with queue:
        queue.add_handler(int, handler)
        assert await queue.produce(0)
        await handler.entered()
        assert await queue.produce_many(list(range(1, buffer_size + 1))) == buffer_size
        stalled = Stalled(queue, handler, gate)
        try:
            yield stalled
        finally:
            gate.set()
        await asyncio.gather(*stalled.waiting, return_exceptions=True)
        check_accounts(queue)
    check_settled(queue)
