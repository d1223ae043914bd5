"""C1: a partition never holds more than `buffer_size` waiting items."""

import asyncio
import threading
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    SyncBatchQueue,
    WhenFull,
)
from tests.engine.every_loop import every_loop
from tests.engine.stalled import stalled_queue
from tests.engine.until import turns, until
from tests.support.oracle import check_accounts, check_settled
from tests.support.recording_handler import RecordingHandler


class Watch:
    """Remembers the fullest that any partition ever was, where it was looked at."""

    def __init__(self, queue: BatchQueue[Any]) -> None:
        self.queue = queue
        self.most = 0

    def look(self) -> None:
        stats = check_accounts(self.queue)
        fullest = max(partition.waiting for partition in stats.partitions)
        self.most = max(self.most, fullest)


@every_loop
@pytest.mark.parametrize("when_full", list(WhenFull))
@pytest.mark.parametrize("buffer_size", [1, 3])
async def test_the_bound_holds_with_many_producers(
    when_full: WhenFull, buffer_size: int
) -> None:
    handler = RecordingHandler[int](delay=0.001)
    config = BatchQueueConfig[int](
        partitions=PartitionPolicy.fixed(2),
        buffer_size=buffer_size,
        when_full=when_full,
        selector=lambda item, partitions: item % partitions,
        max_batch=2,
    )
    answers: list[int] = []

    async def producer(number: int) -> None:
        for step in range(8):
            item = number * 100 + step
            if step % 3 == 0:
                answers.append(queue.produce_nowait(item))
            elif step % 3 == 1:
                answers.append(await queue.produce_many([item] * 3))
            else:
                answers.append(await queue.produce(item))
            watch.look()
            await turns(step % 2)

    async with BatchQueue("q", config) as queue:
        watch = Watch(queue)
        queue.add_handler(int, handler)
        await asyncio.gather(*map(producer, range(30)))
        watch.look()
    assert watch.most == buffer_size
    stats = check_settled(queue)
    assert stats.accepted == sum(answers)
    assert stats.accepted + stats.rejected == 30 * (3 + 3 * 3 + 2)
    assert stats.handled == len(handler.items) == stats.accepted - stats.dropped
    if when_full is not WhenFull.DROP_OLDEST:
        assert stats.dropped == 0


@every_loop
async def test_wait_refuses_nothing_that_can_wait() -> None:
    async with stalled_queue(buffer_size=2) as stalled:
        waiters = [await stalled.wait_to_produce(item) for item in range(3, 10)]
        assert not any(waiter.done() for waiter in waiters)
        assert stalled.queue.stats().waiting == 2
        stalled.gate.set()
        assert all([await waiter for waiter in waiters])
    stats = check_settled(stalled.queue)
    assert (stats.accepted, stats.rejected, stats.dropped) == (10, 0, 0)


@every_loop
async def test_drop_newest_refuses_at_once_and_keeps_what_waits() -> None:
    async with stalled_queue(buffer_size=2, when_full=WhenFull.DROP_NEWEST) as stalled:
        assert not await stalled.queue.produce(3)
        assert not stalled.queue.produce_nowait(4)
        assert await stalled.queue.produce_many([5, 6]) == 0
        assert stalled.queue.stats().rejected == 4
    stats = check_settled(stalled.queue)
    assert (stats.accepted, stats.rejected, stats.dropped) == (3, 4, 0)
    assert stalled.handler.items == [0, 1, 2]


@every_loop
async def test_drop_newest_takes_the_part_of_a_chunk_that_fits() -> None:
    config = BatchQueueConfig[int](buffer_size=3, when_full=WhenFull.DROP_NEWEST)
    handler = RecordingHandler[int]()
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        assert queue.produce_nowait(0)
        assert await queue.produce_many([1, 2, 3, 4]) == 2
        assert queue.stats().rejected == 2
    assert handler.items == [0, 1, 2]


@every_loop
async def test_drop_oldest_displaces_what_has_waited_longest() -> None:
    async with stalled_queue(buffer_size=2, when_full=WhenFull.DROP_OLDEST) as stalled:
        assert await stalled.queue.produce(3)
        assert stalled.queue.produce_nowait(4)
        assert stalled.queue.stats().waiting == 2
        assert await stalled.queue.produce_many([5]) == 1
    stats = check_settled(stalled.queue)
    assert (stats.accepted, stats.rejected, stats.dropped) == (6, 0, 3)
    assert stalled.handler.items == [0, 4, 5]


@every_loop
async def test_drop_oldest_accepts_a_chunk_longer_than_the_partition() -> None:
    """All of it is accepted; its own first items are displaced by its last."""
    async with stalled_queue(buffer_size=3, when_full=WhenFull.DROP_OLDEST) as stalled:
        assert await stalled.queue.produce_many(range(100, 110)) == 10
        stats = check_accounts(stalled.queue)
        assert (stats.waiting, stats.dropped) == (3, 10)
    assert stalled.handler.items == [0, 107, 108, 109]


@every_loop
@pytest.mark.parametrize("when_full", list(WhenFull))
async def test_an_empty_chunk_changes_nothing(when_full: WhenFull) -> None:
    async with stalled_queue(when_full=when_full) as stalled:
        before = stalled.queue.stats()
        assert await stalled.queue.produce_many([]) == 0
        assert await stalled.queue.produce_many(iter(())) == 0
        after = stalled.queue.stats()
        assert (after.accepted, after.rejected) == (before.accepted, before.rejected)


@every_loop
async def test_a_take_removes_at_most_max_batch_per_partition() -> None:
    seen: list[tuple[list[int], int]] = []

    def consume(batch: list[int]) -> None:
        seen.append((batch, queue.stats().waiting))

    config = BatchQueueConfig[int](max_batch=4)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, consume)
        assert await queue.produce_many(range(10)) == 10
        await queue.flush()
    assert seen == [([0, 1, 2, 3], 6), ([4, 5, 6, 7], 2), ([8, 9], 0)]


@every_loop
async def test_max_batch_holds_for_each_partition_by_itself() -> None:
    seen: list[tuple[int, int]] = []

    def consume(batch: list[int]) -> None:
        seen.append((len(batch), queue.stats().waiting))

    config = BatchQueueConfig[int](
        partitions=PartitionPolicy.fixed(3),
        selector=lambda item, partitions: item % partitions,
        max_batch=4,
        consumer=consume,
    )
    async with BatchQueue("q", config) as queue:
        assert await queue.produce_many(range(18)) == 18
        await queue.flush()
    # Each cycle takes 4 from each partition and hands them over 4 at a time.
    assert seen[:3] == [(4, 6), (4, 6), (4, 6)]
    assert [size for size, _ in seen] == [4, 4, 4, 4, 2]


@every_loop
async def test_in_flight_items_are_no_longer_waiting() -> None:
    async with stalled_queue(buffer_size=2) as stalled:
        stats = check_accounts(stalled.queue)
        assert (stats.accepted, stats.waiting, stats.in_flight) == (3, 2, 1)
        assert stalled.queue.stats().used_fraction == 1.0


@every_loop
async def test_one_full_partition_leaves_the_others_open() -> None:
    gate = asyncio.Event()
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(2),
        drain_tasks=DrainTaskPolicy.fixed(2),
        buffer_size=1,
    )
    slow, quick = RecordingHandler[Any](gate=gate), RecordingHandler[Any]()
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, slow)
        queue.add_handler(str, quick)
        assert await queue.produce(0)
        await slow.entered()
        assert await queue.produce(1)
        waiter = asyncio.create_task(queue.produce(2))
        await turns()
        for number in range(5):
            assert await queue.produce(str(number))
            await until(lambda: queue.stats().partitions[1].waiting == 0)
        assert not waiter.done()
        gate.set()
        assert await waiter
    assert quick.items == list("01234")


@pytest.mark.real_time
async def test_the_bound_holds_with_producers_on_threads_and_on_the_loop() -> None:
    most = 0
    received: list[int] = []

    async def consume(batch: list[int]) -> None:
        nonlocal most
        most = max(most, queue.stats().waiting)
        received.extend(batch)
        await asyncio.sleep(0)
        most = max(most, queue.stats().waiting)

    def on_thread(first: int) -> None:
        for item in range(first, first + 300):
            if item % 7:
                assert bridge.produce(item)
            else:
                assert bridge.produce_many([item, -item]) == 2

    async def on_loop(first: int) -> None:
        for item in range(first, first + 300):
            assert await queue.produce(item)

    async with BatchQueue("q", BatchQueueConfig[int](buffer_size=4)) as queue:
        queue.add_handler(int, consume)
        bridge = SyncBatchQueue(queue)
        threads = [
            threading.Thread(target=on_thread, args=(number * 1000,))
            for number in range(1, 5)
        ]
        for thread in threads:
            thread.start()
        await asyncio.gather(*(on_loop(number * 1000) for number in range(5, 8)))
        for thread in threads:
            await asyncio.to_thread(thread.join)
    assert 0 < most <= 4
    assert sum(1 for item in received if item > 0) == 7 * 300
    for number in range(1, 8):
        mine = [item for item in received if item // 1000 == number]
        assert mine == sorted(mine), "one producer's items are in its order"
    check_settled(queue)
