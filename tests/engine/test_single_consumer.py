"""Single-consumer mode: one handler for everything, and no handlers by type."""

from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
)
from batchqueue_async.testing import RecordingHandler
from tests.engine.every_loop import every_loop
from tests.engine.until import until
from tests.support.oracle import check_settled

pytestmark = every_loop


async def test_the_consumer_gets_items_of_every_type_in_one_batch() -> None:
    consumer = RecordingHandler[Any]()
    items = [1, "two", None, 4.0, [], object()]
    async with BatchQueue("q", BatchQueueConfig[Any](consumer=consumer)) as queue:
        assert await queue.produce_many(items) == 6
    assert consumer.batches == [items]
    assert check_settled(queue).unhandled == 0


async def test_a_cycle_makes_one_batch_of_all_its_partitions() -> None:
    consumer = RecordingHandler[int]()
    config = BatchQueueConfig[int](
        partitions=PartitionPolicy.fixed(4),
        selector=lambda item, partitions: item % partitions,
        consumer=consumer,
    )
    async with BatchQueue("q", config) as queue:
        assert await queue.produce_many(range(8)) == 8
    (batch,) = consumer.batches
    assert sorted(batch) == list(range(8))


async def test_several_drain_tasks_lose_and_double_nothing() -> None:
    consumer = RecordingHandler[int](delay=0.001)
    config = BatchQueueConfig[int](
        drain_tasks=DrainTaskPolicy.fixed(4),
        partitions=PartitionPolicy.fixed(4),
        selector=lambda item, partitions: item % partitions,
        consumer=consumer,
        buffer_size=10,
        max_batch=7,
    )
    async with BatchQueue("q", config) as queue:
        assert await queue.produce_many(range(1000)) == 1000
    assert sorted(consumer.items) == list(range(1000))
    assert all(len(batch) <= 7 for batch in consumer.batches)


async def test_handlers_by_type_are_refused() -> None:
    consumer, handler = RecordingHandler[Any](), RecordingHandler[Any]()
    async with BatchQueue("q", BatchQueueConfig[Any](consumer=consumer)) as queue:
        with pytest.raises(BatchQueueError, match="consumer"):
            queue.add_handler(int, handler)
        with pytest.raises(BatchQueueError, match="consumer"):
            queue.remove_handler(int)
        assert await queue.produce(1)
    assert consumer.items == [1]
    assert handler.items == []


async def test_handlers_by_type_are_refused_before_the_start_too() -> None:
    queue = BatchQueue("q", BatchQueueConfig[Any](consumer=print))
    with pytest.raises(BatchQueueError, match="consumer"):
        queue.add_handler(int, print)


async def test_the_consumer_hears_of_idling_flushing_and_closing() -> None:
    consumer = RecordingHandler[int]()
    config = BatchQueueConfig[int](consumer=consumer, idle=IdleBackoff(0.001, 0.002))
    async with BatchQueue("q", config) as queue:
        await until(lambda: consumer.idle_calls > 2)
        assert await queue.produce(1)
        await queue.flush()
        assert consumer.items == [1]
        assert consumer.flush_calls == 1
    assert consumer.close_calls == 1
    assert consumer.calls[-1] == "on_close"


async def test_a_consumer_that_fails_loses_one_batch() -> None:
    failed: list[list[int]] = []
    consumer = RecordingHandler[int](
        fail_when=lambda batch: ValueError() if 1 in batch else None
    )
    config = BatchQueueConfig[int](
        consumer=consumer,
        max_batch=2,
        on_error=lambda batch, _: failed.append(batch),
    )
    async with BatchQueue("q", config) as queue:
        assert await queue.produce_many(range(5)) == 5
    assert failed == [[0, 1]]
    assert consumer.handled == [2, 3, 4]
