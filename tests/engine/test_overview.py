"""An overview has the sums of the statistics, and the largest of the parts."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    PartitionPolicy,
    SyncBatchQueue,
    WhenFull,
)
from batchqueue_async._engine.partitions.ownership import Ownership
from batchqueue_async._engine.stats import Totals, overview


@pytest.mark.parametrize("audit", [False, True])
@pytest.mark.parametrize("bridge", [False, True])
async def test_its_sums_are_those_of_stats(*, audit: bool, bridge: bool) -> None:
    async def consume(batch: list[int]) -> None:
        await asyncio.sleep(0.5)
        if 3 in batch:
            message = "no"
            raise ValueError(message)

    config = BatchQueueConfig[int](
        audit=audit,
        consumer=consume,
        buffer_size=4,
        partitions=PartitionPolicy.fixed(5),
        selector=lambda item, count: item % count,
        when_full=WhenFull.DROP_OLDEST,
        on_error=lambda *_: None,
    )
    async with BatchQueue("q", config) as queue:
        if bridge:
            SyncBatchQueue(queue)
        await queue.produce_many([3, 4])
        await asyncio.sleep(0.7)
        await queue.produce_many([1] * 3 + [2] * 6 + [0] * 4)
        await asyncio.sleep(0.1)
        await queue.produce_many([1] * 3 + [2] * 6)
        exact = queue.stats()
        seen = overview(queue._parts, partitions=2)
        for field in Totals.__dataclass_fields__:
            assert getattr(seen.stats, field) == getattr(exact, field), field
        assert seen.stats.dropped > 0
        assert seen.stats.failed > 0
        assert seen.stats.partitions == exact.top(2)
        fractions = [each.used_fraction for each in exact.partitions]
        assert seen.used_fractions == fractions
        assert seen.stats.drain_tasks == exact.drain_tasks


async def test_the_busiest_handlers_come_first() -> None:
    types = [type(f"T{number}", (), {}) for number in range(6)]
    async with BatchQueue[object]("q") as queue:
        for item_type in types:
            queue.add_handler(item_type, lambda _: None)
        for number, item_type in enumerate(types):
            await queue.produce_many([item_type() for _ in range(number)])
        await queue.flush()
        seen = overview(queue._parts, partitions=1, handlers=2)
        assert [each.items for each in seen.stats.handlers] == [5, 4]
        assert seen.handler_count == 6
        assert len(overview(queue._parts, partitions=1).stats.handlers) == 6


async def test_partitions_may_grow_while_another_thread_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = BatchQueueConfig[Any](partitions=PartitionPolicy.adaptive())
    async with BatchQueue("q", config) as queue:
        owners, types = Ownership.owners, [type(f"T{n}", (), {}) for n in range(50)]

        def grown(ownership: Ownership) -> Sequence[int | None]:
            # As the loop does it, in the middle of the look.
            for item_type in types:
                queue.add_handler(item_type, lambda _: None)
            return owners(ownership)

        monkeypatch.setattr(Ownership, "owners", grown)
        before = len(queue._parts.partitions)
        seen = overview(queue._parts, partitions=3)
        assert len(queue._parts.partitions) > before
        assert len(seen.used_fractions) == before
