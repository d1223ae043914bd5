"""What `stats()` shows: a frozen picture of one moment."""

import asyncio
import dataclasses

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
)
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until
from tests.support.oracle import check_accounts
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop


def four_partitions(handler: RecordingHandler[int]) -> BatchQueueConfig[int]:
    return BatchQueueConfig[int](
        buffer_size=10,
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(4),
        selector=lambda item, partitions: item % partitions,
        consumer=handler,
    )


async def test_before_start_all_is_zero() -> None:
    stats = check_accounts(BatchQueue("q", four_partitions(RecordingHandler[int]())))
    assert stats.accepted == 0
    assert len(stats.partitions) == 4


async def test_capacity_and_use() -> None:
    handler = RecordingHandler[int](gate=asyncio.Event())
    async with BatchQueue("q", four_partitions(handler)) as queue:
        await queue.produce_many([0, 1])
        await until(lambda: queue.stats().in_flight == 2)
        await queue.produce_many([1, 2, 2, 3, 3, 3])
        stats = queue.stats()
        assert stats.capacity == 40
        assert [each.capacity for each in stats.partitions] == [10] * 4
        assert (stats.total_used, stats.used_fraction) == (6, 0.15)
        assert [each.waiting for each in stats.partitions] == [0, 1, 2, 3]
        assert [each.used_fraction for each in stats.partitions] == [0, 0.1, 0.2, 0.3]
        assert [each.in_flight for each in stats.partitions] == [1, 1, 0, 0]
        assert handler.gate is not None
        handler.gate.set()


async def test_the_fullest_first_ties_by_index() -> None:
    handler = RecordingHandler[int](gate=asyncio.Event())
    async with BatchQueue("q", four_partitions(handler)) as queue:
        await queue.produce_many([0, 1])
        await until(lambda: queue.stats().in_flight == 2)
        await queue.produce_many([1, 2, 2, 3, 3])
        stats = queue.stats()
        assert [each.index for each in stats.top(3)] == [2, 3, 1]
        assert [each.index for each in stats.top(10)] == [2, 3, 1, 0]
        assert list(stats.top(0)) == []
        with pytest.raises(ValueError, match="n must"):
            stats.top(-1)
        assert handler.gate is not None
        handler.gate.set()


async def test_a_snapshot_does_not_change() -> None:
    async with BatchQueue("q", four_partitions(RecordingHandler[int]())) as queue:
        before = queue.stats()
        copy = dataclasses.asdict(before)
        await queue.produce_many(range(20))
        await queue.flush()
        assert dataclasses.asdict(before) == copy
        assert queue.stats().handled == 20
        with pytest.raises(dataclasses.FrozenInstanceError):
            before.accepted = 7  # type: ignore[misc]
        with pytest.raises(dataclasses.FrozenInstanceError):
            before.partitions[0].accepted = 7  # type: ignore[misc]
        with pytest.raises(dataclasses.FrozenInstanceError):
            before.drain_tasks[0].cycles = 7  # type: ignore[misc]
        assert isinstance(before.partitions, tuple)


async def test_owners_and_drain_tasks_tell_the_same() -> None:
    async with BatchQueue("q", four_partitions(RecordingHandler[int]())) as queue:
        stats = queue.stats()
        assert [each.owner for each in stats.partitions] == [0, 1, 0, 1]
        assert [each.partitions for each in stats.drain_tasks] == [(0, 2), (1, 3)]
        assert [each.index for each in stats.drain_tasks] == [0, 1]


async def test_what_drain_tasks_have_done() -> None:
    handler = RecordingHandler[int](delay=0.005)
    async with BatchQueue("q", four_partitions(handler)) as queue:
        await queue.produce_many([0, 2, 2])
        await queue.flush()
        await turns()  # A cycle counts when it ends: after what it delivered.
        one, other = queue.stats().drain_tasks
        assert one.cycles >= 1
        assert other.cycles == 0
        assert one.load == 3
        assert other.load == 0
        await asyncio.sleep(0.01)
        assert queue.stats().drain_tasks[0].busy >= 0.004


async def test_after_shutdown_they_stay() -> None:
    async with BatchQueue("q", four_partitions(RecordingHandler[int]())) as queue:
        await queue.produce_many(range(20))
    assert not await queue.produce(1)
    stats = check_accounts(queue)
    assert (stats.accepted, stats.handled, stats.rejected) == (20, 20, 1)


async def test_growth_shows() -> None:
    config = BatchQueueConfig[object](partitions=PartitionPolicy.adaptive())
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, lambda _: None)
        before = queue.stats()
        queue.add_handler(str, lambda _: None)
        assert len(before.partitions) == 1
        assert len(queue.stats().partitions) == 2
        assert queue.stats().capacity == 20_000
