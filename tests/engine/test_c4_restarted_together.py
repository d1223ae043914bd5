"""C4: a loop lives on after all its tasks were cancelled: each queue starts again."""

import asyncio

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until
from tests.support.recording_handler import RecordingHandler


@every_loop
@pytest.mark.parametrize("needed", ["another queue", "a new queue", "none"])
async def test_also_if_somebody_needs_another_one_before(needed: str) -> None:
    handler = RecordingHandler[int]()
    lingering = BatchQueueConfig[int](consumer=handler, linger=0.01)
    plain = BatchQueueConfig[int](consumer=RecordingHandler[int]())
    async with (
        BatchQueue("lingers", lingering) as queue,
        BatchQueue("other", plain) as other,
    ):
        await queue.produce(1)
        await turns()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await turns()
        if needed == "another queue":
            await other.produce(1)
        if needed == "a new queue":
            new = BatchQueue("new", plain)
            await new.start()
            await new.close()
        await until(lambda: handler.items == [1], patience=5.0)
