"""Drain tasks that are shared: who fails without a turn is told of it all the same."""

import asyncio

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    SharedDrainTasks,
)


async def test_on_error_is_told_at_a_deadline_without_a_turn() -> None:
    """The handler lent its turn as it waited, timed out, and the turn is another's."""
    told: list[int] = []
    shared = SharedDrainTasks("one", DrainTaskPolicy.fixed(1))

    async def stuck(_: list[int]) -> None:
        await asyncio.sleep(100.0)

    async with BatchQueueManager(shutdown_timeout=0.0) as manager:
        config = BatchQueueConfig[int](
            consumer=stuck, drain_tasks=shared, buffer_size=1, max_batch=1
        )
        last = await manager.create("last", config)

        async def pass_on(batch: list[int]) -> None:
            await last.produce_many([*batch, 0, 0, 0])

        config = BatchQueueConfig[int](
            consumer=pass_on,
            drain_tasks=shared,
            handler_timeout=1.0,
            on_error=lambda batch, _: told.extend(batch),
        )
        first = await manager.create("first", config)
        await first.produce(7)
        await asyncio.sleep(5.0)
        assert told == []
        assert await manager.shutdown("first", 1.0) == []
        assert told == [7]
        assert first.stats().failed == 1
