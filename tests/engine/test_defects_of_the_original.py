"""What the original gets wrong in its core; each of these fails on a naive port.

D5 (growth splits a type), D6 (`on_idle` beside `consume`), D10 (drifting weights) and
D11 (unchecked selections) are also shown where their promises are: in
`test_b2_placement`, `test_b3_exclusion` and `test_c4_faults`.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    Rebalancing,
)
from batchqueue_async.testing import RecordingHandler
from tests.engine.every_loop import every_loop
from tests.engine.until import until, until_soon
from tests.support.oracle import check_settled

pytestmark = every_loop

QUICK = IdleBackoff(0.001, 0.002)


class MoveAllTo:
    """A balancer that gives every partition to one drain task."""

    def __init__(self, owner: int) -> None:
        self.owner = owner
        self.calls = 0

    def assign(
        self, loads: Sequence[float], owners: Sequence[int], drain_tasks: int
    ) -> list[int]:
        self.calls += 1
        return [self.owner] * len(owners)


async def test_d1_growth_after_a_move_orphans_no_partition() -> None:
    """It rebuilt the lists round-robin and kept the owners: nobody drained some."""
    balancer = MoveAllTo(1)
    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.adaptive(),
        rebalancing=Rebalancing(balancer=balancer, interval=0.02),
        idle=QUICK,
    )
    handlers: dict[type, RecordingHandler[Any]] = {}
    async with BatchQueue("q", config) as queue:

        def add(item_type: type) -> None:
            handlers[item_type] = RecordingHandler()
            queue.add_handler(item_type, handlers[item_type])

        add(int)
        add(str)
        assert await queue.produce_many([1, "1"]) == 2
        await until(lambda: [each.owner for each in queue.stats().partitions] == [1, 1])
        for later in (float, bytes, list, dict, set):
            add(later)
        stats = queue.stats()
        assert len(stats.partitions) == 7
        assert [each.owner for each in stats.partitions[:2]] == [1, 1], "owners stay"
        owned = [p for each in stats.drain_tasks for p in each.partitions]
        assert sorted(owned) == list(range(7)), "each is in exactly one list"
        for item_type in handlers:
            assert await queue.produce(item_type())
        await queue.flush(timeout=2)
    assert [len(handler.items) for handler in handlers.values()] == [2, 2] + [1] * 5


@asynccontextmanager
async def saturated(queue: BatchQueue[Any]) -> AsyncIterator[None]:
    """Producers that never pause: the drain task finds something in every cycle."""
    running = True

    async def saturate() -> None:
        while running:
            queue.produce_nowait(0)
            await asyncio.sleep(0)

    load = [asyncio.create_task(saturate()) for _ in range(3)]
    try:
        yield
    finally:
        running = False
        await asyncio.gather(*load)


async def test_d4_a_saturated_drain_task_serves_new_partitions() -> None:
    """It read its partitions once per idle-to-idle run, which load never ended."""
    busy = RecordingHandler[int]()
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.adaptive(), buffer_size=2, idle=QUICK
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, busy)
        async with saturated(queue):
            await until_soon(lambda: len(busy.batches) > 10)
            for number in range(6):
                item_type, handler = (
                    type(f"Type{number}", (), {}),
                    RecordingHandler[Any](),
                )
                queue.add_handler(item_type, handler)
                assert await queue.produce(item_type())
                batches = len(busy.batches)
                await until_soon(lambda: handler.items)  # noqa: B023
                assert len(busy.batches) - batches < 5, "within a few cycles"
            assert len(queue.stats().partitions) == 7
    check_settled(queue)


async def test_d4_a_saturated_drain_task_serves_new_handlers() -> None:
    first, second = RecordingHandler[Any](), RecordingHandler[Any]()
    config = BatchQueueConfig[Any](buffer_size=2, idle=QUICK)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, first)
        async with saturated(queue):
            await until_soon(lambda: first.items)
            queue.add_handler(int, second)
            await until_soon(lambda: second.items)


async def test_d5_growth_splits_no_type() -> None:
    """Items from before and after the growth were handled side by side."""
    handler = RecordingHandler[int](delay=0.003)
    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(4),
        partitions=PartitionPolicy.adaptive(),
        idle=QUICK,
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        for item in range(40):
            assert await queue.produce(item)
            queue.add_handler(type(f"Type{item}", (), {}), print)
            await asyncio.sleep(0.001)
        assert sum(1 for each in queue.stats().partitions if each.accepted) == 1
    assert handler.items == list(range(40))
    assert handler.max_concurrency == 1


async def test_d6_on_idle_follows_the_partition_and_not_the_type() -> None:
    handler = RecordingHandler[int](delay=0.005)
    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(4),
        partitions=PartitionPolicy.fixed(4),
        selector=lambda _, partitions: partitions - 1,
        idle=QUICK,
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        for item in range(10):
            assert await queue.produce(item)
            await asyncio.sleep(0.003)
        await until(lambda: handler.idle_calls)
    assert handler.max_concurrency == 1


async def test_d10_twenty_handlers_of_a_twentieth_count_as_one() -> None:
    config = BatchQueueConfig[Any](partitions=PartitionPolicy.adaptive())
    async with BatchQueue("q", config) as queue:
        for number in range(20):
            queue.add_handler(type(f"Type{number}", (), {}), print, weight=0.05)
        assert len(queue.stats().partitions) == 1


@pytest.mark.parametrize("index", [-1, 2, 99])
async def test_d11_a_wrong_index_reaches_no_partition(index: int) -> None:
    """A negative one would be a partition counted from the end."""
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(2),
        selector=lambda _, __: index,
        consumer=RecordingHandler[Any](),
    )
    async with BatchQueue("q", config) as queue:
        with pytest.raises(ValueError, match=str(index)):
            queue.produce_nowait(1)
    assert check_settled(queue).accepted == 0
