"""Each partition is a bounded `asyncio.Queue` for producers; only its owner takes."""

import asyncio
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, BatchQueueError
from batchqueue_async._engine.partitions.partition import Partition
from tests.engine.until import turns, until
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler


def of(queue: BatchQueue[Any]) -> Partition[Any]:
    return queue._parts.partitions[0]


async def test_it_looks_like_one() -> None:
    handler = RecordingHandler[int]()
    config = BatchQueueConfig[int](consumer=handler, buffer_size=2)
    async with BatchQueue("q", config) as queue:
        partition: asyncio.Queue[int] = of(queue)
        assert isinstance(partition, asyncio.Queue)
        assert (partition.maxsize, partition.qsize()) == (2, 0)
        assert partition.empty()
        assert not partition.full()
        assert await queue.produce_many([1, 2]) == 2
        assert (partition.qsize(), partition.empty(), partition.full()) == (
            2,
            False,
            True,
        )


async def test_what_is_put_in_directly_is_handled_and_counted() -> None:
    handler = RecordingHandler[int]()
    config = BatchQueueConfig[int](consumer=handler, buffer_size=2)
    async with BatchQueue("q", config) as queue:
        await turns()
        partition: asyncio.Queue[int] = of(queue)
        partition.put_nowait(1)
        await partition.put(2)
        with pytest.raises(asyncio.QueueFull):
            partition.put_nowait(3)
        await asyncio.wait_for(partition.put(3), 1.0)
        await until(lambda: len(handler.items) == 3)
    assert handler.items == [1, 2, 3]
    assert check_settled(queue).handled == 3


async def test_closed_it_lets_nothing_in() -> None:
    queue = BatchQueue("q", BatchQueueConfig[int](consumer=RecordingHandler[int]()))
    async with queue:
        pass
    partition: asyncio.Queue[int] = of(queue)
    with pytest.raises(asyncio.QueueFull):
        partition.put_nowait(1)
    with pytest.raises(BatchQueueError, match="closed"):
        await partition.put(1)
    assert partition.full()


@pytest.mark.parametrize("verb", ["get", "get_nowait", "join", "task_done", "shutdown"])
async def test_its_ways_out_say_why_they_are_none(verb: str) -> None:
    async with BatchQueue[int]("q") as queue:
        with pytest.raises(BatchQueueError, match="only its drain task takes"):
            getattr(of(queue), verb)()
