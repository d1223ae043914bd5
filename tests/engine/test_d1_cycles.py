"""D1 and D5: what one cycle takes, and what the next one sees."""

import asyncio
from itertools import pairwise

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    round_robin,
)
from batchqueue_async._engine.draining.linger_and_nap import PARTITIONS_AT_ONCE
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until
from tests.support.oracle import check_accounts
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop


class TestD1:
    async def test_a_take_is_at_most_the_buffer(self) -> None:
        """Producers that wait refill the partition at once, but for the next cycle."""
        gate = asyncio.Event()
        handler = RecordingHandler[int](gate=gate)
        async with BatchQueue("q", BatchQueueConfig[int](buffer_size=3)) as queue:
            queue.add_handler(int, handler)
            await queue.produce(-1)
            await handler.entered()
            producing = asyncio.create_task(queue.produce_many(range(20)))
            await turns()
            gate.set()
            assert await producing == 20
        assert handler.items == [-1, *range(20)]
        assert max(map(len, handler.batches)) <= 3

    async def test_the_loop_gets_its_turn_between_cycles(self) -> None:
        """Also when handlers never wait, and items never end."""
        calls = 0

        def consume(batch: list[int]) -> None:
            nonlocal calls
            calls += 1
            # As a producer on another thread would, it keeps the partition filled.
            if calls < 1000:
                assert queue.produce_nowait(calls)

        seen: list[int] = []
        async with BatchQueue("q", BatchQueueConfig[int](max_batch=1)) as queue:
            queue.add_handler(int, consume)
            await queue.produce(0)
            while calls < 100:
                seen.append(calls)
                await asyncio.sleep(0)
        assert max(b - a for a, b in pairwise(seen)) <= 1

    async def test_it_yields_after_failed_and_unhandled_batches(self) -> None:
        def fail(batch: list[int]) -> None:
            raise ValueError

        config = BatchQueueConfig[object](
            max_batch=1, on_error=lambda _batch, _error: None
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, fail)
            await queue.produce_many([1, "a"] * 50)
            seen: list[int] = []
            while (left := queue.stats().waiting) > 0:
                seen.append(left)
                await asyncio.sleep(0)
            check_accounts(queue)
        assert max(a - b for a, b in pairwise(seen)) <= 1

    async def test_a_cycle_over_hundreds_of_partitions_takes_from_each_once(
        self,
    ) -> None:
        """It takes part by part; what comes meanwhile is for the next cycle."""
        types = [type(f"T{n}", (), {}) for n in range(3 * PARTITIONS_AT_ONCE)]
        calls: list[type] = []
        cycles: set[int] = set()

        def consume(batch: list[object]) -> None:
            calls.append(type(batch[0]))
            cycles.add(queue.stats().drain_tasks[0].cycles)
            if len(calls) == 1:
                # All of them wait, or are on their way, when these come.
                for item_type in types:
                    assert queue.produce_nowait(item_type())

        config = BatchQueueConfig[object](
            partitions=PartitionPolicy.fixed(len(types)), buffer_size=2
        )
        async with BatchQueue("q", config) as queue:
            for item_type in types:
                queue.add_handler(item_type, consume)
            await queue.produce_many([item_type() for item_type in types])
            await queue.flush()
            check_accounts(queue)
        # The first part was taken when the second items came, the rest was not.
        assert calls[: len(types)] == types
        assert sorted(map(types.index, calls[len(types) :])) == list(
            range(PARTITIONS_AT_ONCE)
        )
        assert len(cycles) == 2


class TestD5:
    """The original's busy tasks were blind to what was new (its defect D4)."""

    async def test_a_busy_drain_task_sees_a_new_handler_and_its_partition(self) -> None:
        """In its next cycle, however many calls of others that one has."""
        busy = True

        def cycles() -> int:
            return queue.stats().drain_tasks[0].cycles

        async def consume(batch: list[int]) -> None:
            if busy:
                assert queue.produce_nowait(1)
            await asyncio.sleep(0)

        async def consume_late(batch: list[str]) -> None:
            seen.append(cycles())

        seen: list[int] = []
        config = BatchQueueConfig[object](partitions=PartitionPolicy.adaptive())
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, consume)
            await queue.produce(1)
            await until(lambda: cycles() > 10)
            queue.add_handler(str, consume_late)
            assert len(queue.stats().partitions) == 2
            before = cycles()
            await queue.produce("late")
            await until(lambda: seen)
            busy = False
        # A cycle counts when it ends: the one that ran, and then the one that calls.
        assert seen[0] - before <= 1

    async def test_a_busy_drain_task_gives_waiting_items_to_the_new_handler(
        self,
    ) -> None:
        gate = asyncio.Event()
        first, second = RecordingHandler[int](gate=gate), RecordingHandler[int]()
        async with BatchQueue[int]("q") as queue:
            queue.add_handler(int, first)
            await queue.produce(1)
            await first.entered()
            await queue.produce(2)
            queue.add_handler(int, second)
            gate.set()
            await queue.flush()
        assert first.handled == [1]
        assert second.handled == [2]

    async def test_a_removed_handler_gets_no_further_batch(self) -> None:
        gate = asyncio.Event()
        handler = RecordingHandler[int](gate=gate)
        async with BatchQueue[int]("q") as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await handler.entered()
            await queue.produce(2)
            assert queue.remove_handler(int)
            gate.set()
        assert handler.handled == [1]
        assert check_accounts(queue).unhandled == 1

    async def test_growth_while_all_drain_tasks_nap(self) -> None:
        handlers = [RecordingHandler[object]() for _ in range(5)]
        types: list[type] = [int, str, float, bytes, tuple]
        config = BatchQueueConfig[object](
            drain_tasks=DrainTaskPolicy.fixed(2),
            partitions=PartitionPolicy.adaptive(),
            idle=IdleBackoff(1000.0, 1000.0),
        )
        async with BatchQueue("q", config) as queue:
            await turns()
            for item_type, handler in zip(types, handlers, strict=True):
                queue.add_handler(item_type, handler)
            await turns()
            await queue.produce_many([1, "a", 1.0, b"a", (1,)])
            await queue.flush(timeout=5.0)
            assert [handler.items for handler in handlers] == [
                [1],
                ["a"],
                [1.0],
                [b"a"],
                [(1,)],
            ]


async def test_each_partition_is_served_by_exactly_one_drain_task() -> None:
    config = BatchQueueConfig[int](
        drain_tasks=DrainTaskPolicy.fixed(3),
        partitions=PartitionPolicy.fixed(9),
        selector=round_robin,
        consumer=lambda _: None,
    )
    async with BatchQueue("q", config) as queue:
        stats = queue.stats()
        owned = [p for each in stats.drain_tasks for p in each.partitions]
        assert sorted(owned) == list(range(9))
        assert [each.owner for each in stats.partitions] == [0, 1, 2] * 3
