"""How many partitions and drain tasks there are, and who owns what, in `stats()`.

Under the original's names: `docs/from_skywalking.md` says which test covers which.
"""

import logging
from collections import Counter
from dataclasses import FrozenInstanceError

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueStats,
    DrainTaskPolicy,
    PartitionPolicy,
)
from tests.engine.every_loop import every_loop
from tests.engine.stalled import stalled_queue
from tests.engine.until import turns
from tests.support.own_lines import own_lines
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

fixed_tasks = DrainTaskPolicy.fixed
fixed, adaptive = PartitionPolicy.fixed, PartitionPolicy.adaptive
per_drain_task = PartitionPolicy.per_drain_task


def declared(drain_tasks: int, partitions: PartitionPolicy) -> BatchQueue[object]:
    config = BatchQueueConfig[object](
        drain_tasks=fixed_tasks(drain_tasks), partitions=partitions
    )
    return BatchQueue("counted", config)


def add_handlers(queue: BatchQueue[object], count: int, weight: float = 1.0) -> None:
    for number in range(count):
        queue.add_handler(type(f"Type{number}", (), {}), print, weight)


def check_owners(stats: BatchQueueStats) -> None:
    """Each partition has one owner, by p % drain tasks, and both sides agree."""
    drain_tasks = len(stats.drain_tasks)
    owners = [partition.owner for partition in stats.partitions]
    assert owners == [p % drain_tasks for p in range(len(owners))]
    owned = [p for each in stats.drain_tasks for p in each.partitions]
    assert sorted(owned) == list(range(len(owners)))
    for each in stats.drain_tasks:
        assert each.partitions == tuple(sorted(each.partitions))
        assert all(owners[p] == each.index for p in each.partitions)


@pytest.mark.parametrize(
    "drain_tasks, partitions, expected",
    [
        (1, fixed(1), (1, 1)),
        (2, fixed(8), (2, 8)),
        (3, per_drain_task(2), (3, 6)),
        (3, fixed(9), (3, 9)),
        (8, adaptive(), (8, 8)),
        (1, adaptive(), (1, 1)),
    ],
)
async def test_counts_follow_the_policies(
    drain_tasks: int, partitions: PartitionPolicy, expected: tuple[int, int]
) -> None:
    async with declared(drain_tasks, partitions) as queue:
        stats = queue.stats()
        assert (len(stats.drain_tasks), len(stats.partitions)) == expected
        check_owners(stats)


async def test_the_default_is_one_of_each() -> None:
    async with BatchQueue[object]("q") as queue:
        stats = queue.stats()
        assert (len(stats.drain_tasks), len(stats.partitions)) == (1, 1)
        assert stats.capacity == 10_000


@pytest.mark.parametrize(
    "handlers, weight, partitions",
    [
        (1, 1.0, 8),
        (8, 1.0, 8),
        (9, 1.0, 9),
        (100, 1.0, 100),
        (200, 1.0, 200),
        (201, 1.0, 200),
        (202, 1.0, 201),
        (500, 1.0, 350),
        (1000, 1.0, 600),
        (500, 0.05, 25),
    ],
)
async def test_adaptive_partitions_grow_with_the_handlers(
    handlers: int, weight: float, partitions: int
) -> None:
    async with declared(8, adaptive()) as queue:
        assert len(queue.stats().partitions) == 8
        add_handlers(queue, handlers, weight)
        stats = queue.stats()
        assert len(stats.partitions) == partitions
        assert len(stats.drain_tasks) == 8
        check_owners(stats)


async def test_adaptive_partitions_grow_by_weight() -> None:
    async with declared(8, adaptive()) as queue:
        add_handlers(queue, 642)
        add_handlers(queue, 1247, weight=0.05)
        assert len(queue.stats().partitions) == 452


async def test_fixed_partitions_do_not_grow() -> None:
    async with declared(2, fixed(4)) as queue:
        add_handlers(queue, 100)
        assert len(queue.stats().partitions) == 4


async def test_fewer_partitions_reduce_the_drain_tasks_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with declared(4, fixed(2)) as queue:
        add_handlers(queue, 5)
        stats = queue.stats()
        assert (len(stats.drain_tasks), len(stats.partitions)) == (2, 2)
        check_owners(stats)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.name == "batchqueue_async"
    for word in ("counted", "4", "2"):
        assert word in record.getMessage()


@pytest.mark.parametrize("partitions", [fixed(4), fixed(5), per_drain_task(1)])
async def test_enough_partitions_give_no_warning(
    partitions: PartitionPolicy, caplog: pytest.LogCaptureFixture
) -> None:
    async with declared(4, partitions):
        pass
    assert not own_lines(caplog.records)


async def test_policies_are_resolved_when_the_queue_is_built() -> None:
    """Before it starts, and once: what `stats` says then is what starts."""
    queue = declared(3, per_drain_task(2))
    assert len(queue.stats().partitions) == 6
    add_handlers(queue, 3)
    async with queue:
        assert len(queue.stats().partitions) == 6


async def test_what_a_snapshot_says_does_not_change() -> None:
    async with stalled_queue(buffer_size=3) as stalled:
        before = stalled.queue.stats()
        stalled.gate.set()
        await stalled.queue.flush()
        assert (before.waiting, before.in_flight, before.handled) == (3, 1, 0)
        assert stalled.queue.stats().handled == 4
        with pytest.raises(FrozenInstanceError):
            before.waiting = 0  # type: ignore[misc]


async def test_usage_is_told_by_partition() -> None:
    """With `top(n)`: the fullest first, ties by index, any n from 0 up."""
    config = BatchQueueConfig[int](
        partitions=fixed(4),
        selector=lambda item, _: item,
        buffer_size=10,
        linger=100.0,
        consumer=RecordingHandler[int](),
    )
    async with BatchQueue("q", config) as queue:
        for partition, count in enumerate((2, 8, 0, 2)):
            assert await queue.produce_many([partition] * count) == count
        stats = queue.stats()
        assert [each.waiting for each in stats.partitions] == [2, 8, 0, 2]
        assert (stats.total_used, stats.capacity, stats.used_fraction) == (12, 40, 0.3)
        assert [each.used_fraction for each in stats.partitions] == [0.2, 0.8, 0, 0.2]
        assert [each.index for each in stats.top(3)] == [1, 0, 3]
        assert [each.index for each in stats.top(10)] == [1, 0, 3, 2]
        assert stats.top(0) == ()
        with pytest.raises(ValueError, match="n must be"):
            stats.top(-1)


async def test_stats_work_after_shutdown() -> None:
    async with declared(2, fixed(3)) as queue:
        queue.add_handler(int, print)
        queue.remove_handler(int)
    stats = queue.stats()
    assert stats.name == "counted"
    assert len(stats.partitions) == 3


@pytest.mark.asyncio(loop_factories=["virtual"])  # Where time is what handlers take.
async def test_cycles_and_busy_time_are_told_by_drain_task() -> None:
    handler = RecordingHandler[int](delay=0.01)
    config = BatchQueueConfig[int](
        drain_tasks=fixed_tasks(2),
        partitions=fixed(2),
        selector=lambda item, _: item,
        consumer=handler,
    )
    async with BatchQueue("q", config) as queue:
        for _ in range(3):
            assert await queue.produce(1)
            await queue.flush()
        await turns()  # A cycle counts when it ends: after what it delivered.
        idle, busy = queue.stats().drain_tasks
    assert (idle.cycles, busy.cycles) == (0, 3)
    assert idle.busy == 0
    assert busy.busy == pytest.approx(0.03)


async def test_growth_spreads_new_partitions_over_the_drain_tasks() -> None:
    async with declared(4, adaptive()) as queue:
        add_handlers(queue, 42)
        counts = Counter(each.owner for each in queue.stats().partitions)
    assert sorted(counts.values()) == [10, 10, 11, 11]
