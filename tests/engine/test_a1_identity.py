"""A1: at every moment each accepted item is counted in exactly one class."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    Retry,
    WhenFull,
    by_type,
    round_robin,
)
from batchqueue_async.testing import RecordingHandler
from tests.engine.every_loop import every_loop
from tests.engine.stalled import stalled_queue
from tests.engine.until import turns, until
from tests.support.oracle import check_accounts, check_settled

pytestmark = every_loop


async def test_from_inside_of_every_call_it_holds() -> None:
    seen: list[str] = []

    def look(where: str) -> None:
        check_accounts(queue)
        seen.append(where)

    class Looking(RecordingHandler[int]):
        async def consume(self, batch: list[int]) -> None:
            look("consume")
            assert queue.stats().in_flight >= len(batch)
            await asyncio.sleep(0)
            look("consume")
            if batch[0] == 3:
                raise ValueError

        async def on_idle(self) -> None:
            look("on_idle")

        async def on_flush(self) -> None:
            look("on_flush")

        async def on_close(self) -> None:
            look("on_close")
            assert queue.stats().in_flight == 0

    async def on_error(batch: list[int], error: BaseException) -> None:
        look("on_error")
        await asyncio.sleep(0)
        look("on_error")

    config = BatchQueueConfig[int](max_batch=1, on_error=on_error)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, Looking())
        await queue.produce_many([1, 2, 3, 4])
        await asyncio.gather(queue.flush(), return_exceptions=True)
        await asyncio.sleep(0.01)
    assert set(seen) == {"consume", "on_error", "on_idle", "on_flush", "on_close"}
    stats = check_settled(queue)
    assert (stats.accepted, stats.handled, stats.failed) == (4, 3, 1)


async def test_taken_is_in_flight_until_the_handler_returns() -> None:
    async with stalled_queue(buffer_size=2) as stalled:
        stats = check_accounts(stalled.queue)
        assert (stats.accepted, stats.waiting, stats.in_flight) == (3, 2, 1)
        assert stats.handled == 0


async def test_a_refusal_is_rejected_and_not_accepted() -> None:
    async with stalled_queue(when_full=WhenFull.DROP_NEWEST) as stalled:
        assert not await stalled.queue.produce(9)
        assert not stalled.queue.produce_nowait(9)
        assert await stalled.queue.produce_many([9, 9, 9]) == 0
        stats = check_accounts(stalled.queue)
        assert (stats.accepted, stats.rejected) == (3, 5)


async def test_acceptance_is_in_the_producers_own_step() -> None:
    """Before anything else runs, the item is waiting."""
    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, RecordingHandler[int]())
        await turns()
        produce = queue.produce(1)
        with pytest.raises(StopIteration) as accepted:
            produce.send(None)
        assert accepted.value.value is True
        assert queue.stats().waiting == 1


class TestProduceMany:
    async def test_cancelled_midway_what_was_placed_stays_accepted(self) -> None:
        async with stalled_queue(buffer_size=2) as stalled:
            producing = await stalled.wait_to_produce(*range(10, 20))
            stalled.handler.gate = asyncio.Event()
            stalled.gate.set()
            await turns()
            producing.cancel()
            await asyncio.wait({producing})
            stats = check_accounts(stalled.queue)
            placed = stats.accepted - 3
            assert 0 < placed < 10
            assert stats.rejected == 0
            stalled.handler.gate.set()
        assert stalled.handler.handled == [0, 1, 2, *range(10, 10 + placed)]

    async def test_with_an_iterable_that_raises_what_came_before_is_accepted(
        self,
    ) -> None:
        def items() -> Iterator[int]:
            yield from range(7)
            message = "no more"
            raise OSError(message)

        handler = RecordingHandler[int]()
        async with BatchQueue[int]("q") as queue:
            queue.add_handler(int, handler)
            with pytest.raises(OSError, match="no more"):
                await queue.produce_many(items())
            assert check_accounts(queue).accepted == 7
        assert handler.handled == list(range(7))

    async def test_with_a_selector_that_raises_nothing_is_counted_twice(self) -> None:
        def selector(item: int, partitions: int) -> int:
            if item == 5:
                message = "no place"
                raise LookupError(message)
            return item % partitions

        handler = RecordingHandler[int]()
        config = BatchQueueConfig[int](
            selector=selector, partitions=PartitionPolicy.fixed(3), consumer=handler
        )
        async with BatchQueue("q", config) as queue:
            with pytest.raises(LookupError):
                await queue.produce_many(range(10))
            accepted = check_accounts(queue).accepted
            assert accepted <= 5
        assert len(handler.handled) == accepted
        check_settled(queue)

    async def test_longer_than_one_chunk(self) -> None:
        handler = RecordingHandler[int]()
        async with BatchQueue("q", BatchQueueConfig[int](buffer_size=700)) as queue:
            queue.add_handler(int, handler)
            assert await queue.produce_many(iter(range(25_000))) == 25_000
        assert handler.handled == list(range(25_000))
        assert check_settled(queue).rejected == 0


class TestDropOldest:
    async def test_displaced_items_are_dropped(self) -> None:
        async with stalled_queue(when_full=WhenFull.DROP_OLDEST) as stalled:
            for item in (3, 4, 5):
                assert await stalled.queue.produce(item)
            stats = check_accounts(stalled.queue)
            assert (stats.accepted, stats.dropped, stats.rejected) == (6, 3, 0)
            assert (stats.waiting, stats.in_flight) == (2, 1)
        assert stalled.handler.handled == [0, 4, 5]

    async def test_more_than_the_whole_partition_at_once(self) -> None:
        async with stalled_queue(when_full=WhenFull.DROP_OLDEST) as stalled:
            assert await stalled.queue.produce_many(list(range(10, 20))) == 10
            stats = check_accounts(stalled.queue)
            assert (stats.accepted, stats.dropped) == (13, 10)
        assert stalled.handler.handled == [0, 18, 19]


async def test_a_handler_that_removes_itself_keeps_its_account() -> None:
    async def consume(batch: list[int]) -> None:
        queue.remove_handler(int)
        await asyncio.sleep(0)

    async with BatchQueue("q", BatchQueueConfig[int](max_batch=1)) as queue:
        queue.add_handler(int, consume)
        await queue.produce_many([1, 2, 3])
        await until(lambda: queue.stats().unhandled == 2)
    assert check_settled(queue).handled == 1


class Storm:
    """Everything at once, by the dice: producers, failures, registrations."""

    TYPES: tuple[type, ...] = (int, str, float)

    def __init__(self, seed: int, when_full: WhenFull) -> None:
        self.chance = random.Random(seed)
        self.accepted = self.rejected = 0
        config = BatchQueueConfig[object](
            drain_tasks=DrainTaskPolicy.fixed(2),
            partitions=PartitionPolicy.fixed(3),
            selector=self.chance.choice([by_type, round_robin]),
            buffer_size=5,
            max_batch=self.chance.choice([None, 1, 3]),
            when_full=when_full,
            retry=Retry(attempts=2, wait_initial=0.001, split=seed % 2 == 0),
            on_error=lambda _batch, _error: None,
        )
        self.queue = BatchQueue("q", config)

    async def consume(self, batch: list[Any]) -> None:
        check_accounts(self.queue)
        await asyncio.sleep(self.chance.random() * 0.002)
        check_accounts(self.queue)
        if self.chance.random() < 0.2:
            raise ValueError

    async def produce(self, number: int) -> None:
        for i in range(40):
            item = self.TYPES[(number + i) % 3](i)
            if self.chance.random() < 0.3:
                chunk = [item] * self.chance.randrange(8)
                self.count(await self.queue.produce_many(chunk), len(chunk))
            else:
                self.count(await self.queue.produce(item), 1)
            check_accounts(self.queue)
            if self.chance.random() < 0.3:
                await asyncio.sleep(0)

    def count(self, accepted: int, offered: int) -> None:
        self.accepted += accepted
        self.rejected += offered - accepted

    async def meddle(self) -> None:
        for _ in range(30):
            item_type = self.chance.choice(self.TYPES)
            if self.chance.random() < 0.5:
                self.queue.add_handler(item_type, self.consume)
            else:
                self.queue.remove_handler(item_type)
            check_accounts(self.queue)
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("when_full", WhenFull)
@pytest.mark.parametrize("seed", range(3))
async def test_under_everything_at_once(when_full: WhenFull, seed: int) -> None:
    """One producer is cancelled, and the deadline comes while others still wait."""
    storm = Storm(seed, when_full)
    await storm.queue.start()
    storm.queue.add_handler(int, storm.consume)
    producers = [asyncio.create_task(storm.produce(i)) for i in range(6)]
    meddling = asyncio.create_task(storm.meddle())
    await asyncio.sleep(0.02)
    victim = producers.pop()
    victim.cancel()
    await asyncio.wait({victim})
    await meddling
    left = await storm.queue.shutdown(timeout=0.01)
    await asyncio.gather(*producers)
    stats = check_settled(storm.queue)
    assert stats.returned == len(left)
    assert stats.rejected == storm.rejected
    # A cancelled `produce_many` does not say how many it had placed.
    assert 0 <= stats.accepted - storm.accepted <= (7 if victim.cancelled() else 0)
