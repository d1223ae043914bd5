"""D2: an arrival is handled within max(linger, idle.shortest), however long the nap."""

import asyncio
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    WhenFull,
)
from batchqueue_async.testing import RecordingHandler
from tests.engine.until import turns, until
from tests.support.settle import settle

NAPS = IdleBackoff(shortest=1.0, longest=1000.0)


def now() -> float:
    return asyncio.get_running_loop().time()


class Plain(RecordingHandler[int]):
    """Without hooks: its queue parks without a timer."""

    on_idle = None  # type: ignore[assignment]


@pytest.fixture(params=[RecordingHandler[int], Plain], ids=["on_idle", "no hooks"])
def handler(request: pytest.FixtureRequest) -> RecordingHandler[int]:
    made = request.param()
    assert isinstance(made, RecordingHandler)
    return made


class TestNap:
    @pytest.mark.parametrize("asleep", [0.0, 0.5, 1.0, 3.5, 100.0, 5000.25])
    async def test_an_item_waits_for_the_shortest_nap_at_most(
        self, handler: RecordingHandler[int], asleep: float
    ) -> None:
        async with BatchQueue("q", BatchQueueConfig[int](idle=NAPS)) as queue:
            queue.add_handler(int, handler)
            await asyncio.sleep(asleep)
            began = now()
            await queue.produce(1)
            await until(lambda: handler.handled, patience=60.0)
            assert handler.times[0] - began <= 1.0

    async def test_so_does_every_item_of_a_trickle(
        self, handler: RecordingHandler[int]
    ) -> None:
        produced: list[float] = []
        async with BatchQueue("q", BatchQueueConfig[int](idle=NAPS)) as queue:
            queue.add_handler(int, handler)
            for item in range(200):
                await asyncio.sleep(0.07 + item % 7 * 0.3)
                produced.append(now())
                await queue.produce(item)
            await queue.flush()
        handled = [
            time
            for batch, time in zip(handler.batches, handler.times, strict=True)
            for _ in batch
        ]
        waited = [b - a for a, b in zip(produced, handled, strict=True)]
        assert max(waited) <= 1.0 + 1e-9

    @pytest.mark.parametrize("shortest", [0.001, 0.000_4])
    @pytest.mark.parametrize("asleep", [0.1, 0.4, 0.6, 0.9])
    async def test_no_item_waits_for_a_rest_that_a_timer_would_double(
        self, handler: RecordingHandler[int], shortest: float, asleep: float
    ) -> None:
        """Real timers count whole milliseconds: half of one and less would be two."""
        config = BatchQueueConfig[int](idle=IdleBackoff(shortest, 1000.0))
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await asyncio.sleep(100.0)
            # Several, so that it is worthwhile to let more gather.
            await queue.produce_many([0, 0])
            await turns()
            assert handler.times == [now()]
            await asyncio.sleep(asleep * shortest)
            began = now()
            await queue.produce(1)
            await asyncio.sleep(1.0)
            rest = (1 - asleep) * shortest if asleep < 0.5 else 0.0
            assert handler.times[1] - began == pytest.approx(rest, abs=1e-5)

    async def test_produce_nowait_and_produce_many_end_it_too(
        self, handler: RecordingHandler[int]
    ) -> None:
        async with BatchQueue("q", BatchQueueConfig[int](idle=NAPS)) as queue:
            queue.add_handler(int, handler)
            await asyncio.sleep(1000.0)
            began = now()
            assert queue.produce_nowait(1)
            await until(lambda: handler.handled == [1], patience=60.0)
            await asyncio.sleep(1000.0)
            await queue.produce_many([2, 3])
            await until(lambda: handler.handled == [1, 2, 3], patience=60.0)
            assert handler.times[0] - began <= 1.0
            assert handler.times[1] - began - 1000.0 <= 2.0

    async def test_of_every_drain_task(self) -> None:
        handler = RecordingHandler[int]()
        config = BatchQueueConfig[int](
            idle=NAPS,
            drain_tasks=DrainTaskPolicy.fixed(4),
            partitions=PartitionPolicy.fixed(4),
            selector=lambda item, partitions: item % partitions,
            consumer=handler,
        )
        async with BatchQueue("q", config) as queue:
            for item in range(4):
                await asyncio.sleep(777.0)
                began = now()
                await queue.produce(item)
                await until(lambda: item in handler.handled, patience=60.0)  # noqa: B023
                assert handler.times[-1] - began <= 1.0

    async def test_a_full_partition_ends_it_at_once(
        self, handler: RecordingHandler[int]
    ) -> None:
        config = BatchQueueConfig[int](idle=NAPS, buffer_size=3)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await asyncio.sleep(0.25)
            await queue.produce_many([1, 2, 3])
            await settle()
            assert handler.handled == [1, 2, 3]

    async def test_a_full_batch_ends_it_at_once(
        self, handler: RecordingHandler[int]
    ) -> None:
        config = BatchQueueConfig[int](idle=NAPS, max_batch=3)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await asyncio.sleep(0.25)
            for item in (1, 2, 3):
                await queue.produce(item)
            await settle()
            assert handler.handled == [1, 2, 3]

    async def test_an_arrival_while_a_hook_runs_is_not_slept_over(self) -> None:
        class Slow(RecordingHandler[int]):
            async def on_idle(self) -> None:
                await super().on_idle()
                await asyncio.sleep(5.0)

        handler = Slow()
        async with BatchQueue("q", BatchQueueConfig[int](idle=NAPS)) as queue:
            queue.add_handler(int, handler)
            await until(lambda: handler.idle_calls)
            await asyncio.sleep(2.0)
            began = now()
            await queue.produce(1)
            await asyncio.sleep(20.0)
            assert handler.handled == [1]
            assert handler.times[0] - began <= 3.1


class TestLinger:
    async def test_a_batch_is_due_when_its_oldest_item_is_this_old(
        self, handler: RecordingHandler[int]
    ) -> None:
        async with BatchQueue("q", BatchQueueConfig[int](linger=5.0)) as queue:
            queue.add_handler(int, handler)
            await asyncio.sleep(100.0)
            began = now()
            for item in range(4):
                await queue.produce(item)
                await asyncio.sleep(1.0)
            await asyncio.sleep(0.5)
            assert handler.batches == []
            await asyncio.sleep(0.6)
            assert handler.batches == [[0, 1, 2, 3]]
            assert handler.times[0] - began == pytest.approx(5.0)

    async def test_a_full_batch_does_not_linger(
        self, handler: RecordingHandler[int]
    ) -> None:
        config = BatchQueueConfig[int](linger=1000.0, max_batch=3)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await settle()
            await queue.produce_many([1, 2])
            await settle()
            assert handler.batches == []
            await queue.produce(3)
            await settle()
            assert handler.batches == [[1, 2, 3]]

    async def test_a_full_partition_does_not_linger(
        self, handler: RecordingHandler[int]
    ) -> None:
        config = BatchQueueConfig[int](linger=1000.0, max_batch=100, buffer_size=2)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await settle()
            assert queue.produce_nowait(1)
            assert queue.produce_nowait(2)
            await settle()
            assert handler.batches == [[1, 2]]

    async def test_a_full_partition_that_displaces_does_not_linger(self) -> None:
        handler = RecordingHandler[int]()
        config = BatchQueueConfig[int](
            linger=1000.0, buffer_size=2, when_full=WhenFull.DROP_OLDEST
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await settle()
            await queue.produce_many([1, 2, 3])
            await settle()
            assert handler.batches == [[2, 3]]

    async def test_a_waiting_producer_ends_it(self) -> None:
        """It waits for room for two, while one item lingers."""
        handler = RecordingHandler[int]()
        config = BatchQueueConfig[int](linger=1000.0, buffer_size=2)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await settle()
            await queue.produce(1)
            producing = asyncio.create_task(queue.produce_many([2, 3, 4, 5]))
            await settle()
            assert producing.done()
            assert await producing == 4

    async def test_the_rest_after_a_partial_take_lingers_on(
        self, handler: RecordingHandler[int]
    ) -> None:
        """Four items came together: three fill a batch, one is as old as they are."""
        config = BatchQueueConfig[int](linger=5.0, max_batch=3)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await settle()
            began = now()
            await queue.produce_many([1, 2, 3, 4])
            await settle()
            assert handler.batches == [[1, 2, 3]]
            await asyncio.sleep(20.0)
            assert len(handler.batches) == 2
            assert handler.times[1] - began == pytest.approx(5.0, abs=0.01)

    async def test_no_item_lingers_longer_for_being_the_rest(
        self, handler: RecordingHandler[int]
    ) -> None:
        produced: dict[int, float] = {}
        config = BatchQueueConfig[int](linger=5.0, max_batch=3)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            item = 0
            for count in (1, 2, 4, 1, 3, 5, 2, 7, 1, 1, 4):
                await asyncio.sleep(1.7)
                for _ in range(count):
                    produced[item] = now()
                    await queue.produce(item)
                    item += 1
            await asyncio.sleep(10.0)
            assert handler.handled == list(range(item))
        for batch, time in zip(handler.batches, handler.times, strict=True):
            assert all(time - produced[each] <= 5.001 for each in batch)

    async def test_the_age_is_that_of_the_oldest_waiting_item(
        self, handler: RecordingHandler[int]
    ) -> None:
        """The batch before took the older ones along: 4 starts anew."""
        config = BatchQueueConfig[int](linger=5.0, max_batch=3)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await settle()
            await queue.produce(1)
            await asyncio.sleep(4.0)
            began = now()
            await queue.produce_many([2, 3, 4])
            await asyncio.sleep(20.0)
            assert len(handler.batches) == 2
            assert handler.batches == [[1, 2, 3], [4]]
            assert handler.times[1] - began == pytest.approx(5.0, abs=0.01)

    async def test_while_the_handler_works_items_age(self) -> None:
        handler = RecordingHandler[int](delay=4.0)
        async with BatchQueue("q", BatchQueueConfig[int](linger=5.0)) as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await handler.entered()
            began = now()
            await asyncio.sleep(1.0)
            await queue.produce(2)
            await asyncio.sleep(20.0)
            assert len(handler.batches) == 2
            assert handler.times[1] - began == pytest.approx(6.0, abs=0.01)

    async def test_types_in_their_own_partitions_linger_each_on_its_own(self) -> None:
        ints, strings = RecordingHandler[int](), RecordingHandler[str]()
        config = BatchQueueConfig[object](
            linger=5.0, partitions=PartitionPolicy.adaptive()
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, ints)
            queue.add_handler(str, strings)
            await asyncio.sleep(1.0)
            await queue.produce(1)
            await asyncio.sleep(3.0)
            await queue.produce("a")
            await asyncio.sleep(10.0)
            assert ints.times == [pytest.approx(6.0, abs=0.01)]
            assert strings.times == [pytest.approx(9.0, abs=0.01)]

    async def test_a_consumer_of_several_partitions_gets_all_when_one_is_due(
        self,
    ) -> None:
        handler = RecordingHandler[int]()
        config = BatchQueueConfig[int](
            linger=5.0,
            partitions=PartitionPolicy.fixed(3),
            selector=lambda item, partitions: item % partitions,
            consumer=handler,
        )
        async with BatchQueue("q", config) as queue:
            for item in range(3):
                await queue.produce(item)
                await asyncio.sleep(1.0)
            await asyncio.sleep(5.0)
            assert handler.batches == [[0, 1, 2]]
            assert handler.times == [pytest.approx(5.0, abs=0.01)]

    async def test_no_timer_per_item(self) -> None:
        config = BatchQueueConfig[int](linger=5.0)
        handler = Plain()
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await settle()
            loop = asyncio.get_running_loop()
            before = len(loop._scheduled)  # type: ignore[attr-defined]
            for item in range(1000):
                await queue.produce(item)
            await turns()
            assert len(loop._scheduled) - before <= 1  # type: ignore[attr-defined]
            await asyncio.sleep(5.0)
            await turns()
            assert handler.batches == [list(range(1000))]

    async def test_zero_with_a_batch_limit_waits_for_no_batch_to_fill(
        self, handler: RecordingHandler[int]
    ) -> None:
        config = BatchQueueConfig[int](max_batch=100)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await asyncio.sleep(1.0)
            await queue.produce(1)
            await asyncio.sleep(0.001)
            await settle()
            assert handler.batches == [[1]]

    @pytest.mark.parametrize("is_removed", [False, True])
    async def test_of_one_type_it_takes_nothing_from_the_batches_of_another(
        self, *, is_removed: bool
    ) -> None:
        """What has no linger still gathers for a shortest nap between two cycles."""
        handler, other = RecordingHandler[str](), RecordingHandler[int]()
        config = BatchQueueConfig[Any](
            idle=IdleBackoff(shortest=1.0, longest=1.0),
            partitions=PartitionPolicy.fixed(2),
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(str, handler)
            queue.add_handler(int, other, linger=100.0)
            await queue.produce(1)
            if is_removed:
                queue.remove_handler(int)
            for _ in range(100):
                queue.produce_nowait("item")
                queue.produce_nowait("item")
                await asyncio.sleep(0.1)
        batches = [call for call in handler.calls if call == "consume"]
        assert len(batches) < 30, len(batches)
