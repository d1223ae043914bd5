"""C5: `buffer_bytes` bounds what waits in all partitions together."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    SyncBatchQueue,
    WhenFull,
    WouldDeadlock,
)
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])


def by_first(item: bytes, partitions: int) -> int:
    """An item's first letter says in which partition it waits: a, b, c..."""
    return (item[0] - ord("a")) % partitions


@dataclass
class Held:
    queue: BatchQueue[bytes]
    handler: RecordingHandler[bytes]
    gate: asyncio.Event

    async def waits(self, *items: bytes) -> asyncio.Task[int]:
        """Start a producer that has to wait."""
        task: asyncio.Task[int]
        task = asyncio.create_task(self.queue.produce_many(items))
        await turns(5)
        assert not task.done()
        return task


@asynccontextmanager
async def held_up(
    partitions: int = 3,
    **settings: Any,  # noqa: ANN401  # of BatchQueueConfig
) -> AsyncIterator[Held]:
    """A queue whose only handler holds one byte; leaving it opens the gate."""
    gate = asyncio.Event()
    handler = RecordingHandler[bytes](gate=gate)
    config = BatchQueueConfig[bytes](
        **{
            "consumer": handler,
            "partitions": PartitionPolicy.fixed(partitions),
            "selector": by_first,
            "buffer_bytes": 100,
            **settings,
        }
    )
    async with BatchQueue("q", config) as queue:
        assert await queue.produce(b"a")
        await handler.entered()
        try:
            yield Held(queue, handler, gate)
        finally:
            gate.set()
    stats = check_settled(queue)
    assert queue.stats().waiting_bytes == queue.stats().in_flight_bytes == 0
    assert stats.accepted == len(handler.items) + stats.dropped


async def test_it_is_one_room_for_all_partitions() -> None:
    async with held_up(when_full=WhenFull.DROP_NEWEST) as held:
        assert await held.queue.produce(b"a" * 60)
        assert await held.queue.produce(b"b" * 30)
        assert not await held.queue.produce(b"c" * 11)
        assert not held.queue.produce_nowait(b"b" * 11)
        assert not held.queue.offer(b"a" * 11)
        assert await held.queue.produce_many([b"c" * 6, b"a" * 6, b"b" * 4]) == 2
        assert held.queue.stats().waiting_bytes == 100
        assert held.queue.stats().rejected == 4


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("when_full", [WhenFull.DROP_NEWEST, WhenFull.DROP_OLDEST])
async def test_a_chunk_is_dropped_like_its_items_one_by_one(
    when_full: WhenFull, *, threads: bool
) -> None:
    """One that doesn't fit is no reason to refuse those behind it."""
    sizes = [30, 90, 20, 51, 49, 1, 40, 2, 99, 7, 1, 1, 1]
    seen: list[list[int]] = []
    for is_chunk in (True, False):
        async with held_up(when_full=when_full, buffer_size=6, threads=threads) as held:
            # What it can't displace.
            assert await held.queue.produce(b"c" * 5)
            items = [b"b" * size for size in sizes]
            if is_chunk and threads:
                bridge = SyncBatchQueue(held.queue)
                await asyncio.to_thread(bridge.produce_many, items)
            elif is_chunk:
                await held.queue.produce_many(items)
            else:
                for item in items:
                    held.queue.offer(item)
            stats = held.queue.stats()
        lengths = [len(item) for item in held.handler.items if item[:1] == b"b"]
        seen.append([*lengths, -stats.accepted, -stats.rejected, -stats.dropped])
    assert seen[0] == seen[1]
    assert len(seen[0]) > 5


async def test_slots_are_counted_beside_it() -> None:
    async with held_up(buffer_size=2) as held:
        assert await held.queue.produce_many([b"b", b"b"]) == 2
        waiter = await held.waits(b"b")
        assert held.queue.produce_nowait(b"c" * 98), "a line for slots is no line here"
        held.gate.set()
        assert await waiter == 1


async def test_what_handlers_hold_above_one_batch_takes_up_room() -> None:
    """20 kB each and room for 64 MiB: the process keeps less than 80 MiB of them."""
    item, room = b"x" * 20_000, 64 * 2**20
    gate = asyncio.Event()
    handler = RecordingHandler[bytes](gate=gate)
    config = BatchQueueConfig[bytes](consumer=handler, buffer_bytes=room)
    async with BatchQueue("q", config) as queue:
        producer = asyncio.create_task(queue.produce_many([item] * 5_000))
        await handler.entered()
        await turns(5)
        stats = queue.stats()
        assert stats.waiting_bytes is not None
        assert stats.in_flight_bytes is not None
        assert stats.waiting_bytes == stats.waiting * len(item) <= room
        assert stats.in_flight_bytes == stats.in_flight * len(item)
        held = (stats.waiting + stats.in_flight) * len(item)
        assert room < held < 80 * 2**20
        assert not queue.produce_nowait(item)
        gate.set()
        assert await producer == 5_000


async def test_an_iterable_is_not_asked_for_much_more_than_fits() -> None:
    asked: list[bytes] = []

    def pages() -> Iterator[bytes]:
        while True:
            asked.append(b"a" * 10)
            yield asked[-1]

    async with held_up() as held:
        producer = asyncio.create_task(held.queue.produce_many(pages()))
        await turns(50)
        assert held.queue.stats().waiting_bytes == 100
        assert len(asked) <= 10 + 16
        producer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await producer


async def test_one_batch_of_a_declared_size_is_beside_the_room() -> None:
    async with held_up(partitions=1, max_batch_bytes=60) as held:
        held.gate.set()
        await until(lambda: held.handler.items)
        held.gate.clear()
        assert await held.queue.produce_many([b"a" * 20] * 5) == 5
        await held.handler.entered()
        assert held.queue.stats().in_flight_bytes == 60
        assert await held.queue.produce_many([b"a" * 20] * 3) == 3
        assert held.queue.stats().waiting_bytes == 100
        assert not held.queue.produce_nowait(b"a")


class TestLine:
    async def test_a_large_waiter_is_not_overtaken(self) -> None:
        async with held_up(max_batch=1) as held:
            assert await held.queue.produce_many([b"a" * 50, b"a" * 40]) == 2
            large = await held.waits(b"a" * 80)
            small = await held.waits(b"a1")
            assert not held.queue.produce_nowait(b"a2")
            assert not held.queue.offer(b"a3")
            held.gate.set()
            assert [await large, await small] == [1, 1]
        assert [len(item) for item in held.handler.items] == [1, 50, 40, 80, 2]

    async def test_nor_by_way_of_another_partition(self) -> None:
        async with held_up() as held:
            assert await held.queue.produce_many([b"a" * 50, b"a" * 40]) == 2
            large = await held.waits(b"b" * 80)
            assert not held.queue.produce_nowait(b"c")
            small = await held.waits(b"c")
            second = await held.waits(b"b")
            order: list[str] = []
            for name, task in (("large", large), ("small", small), ("second", second)):
                task.set_name(name)
                task.add_done_callback(lambda each: order.append(each.get_name()))
            held.gate.set()
            await asyncio.gather(large, small, second)
            assert order == ["large", "small", "second"]

    async def test_who_leaves_lets_those_behind_him_in(self) -> None:
        async with held_up() as held:
            assert await held.queue.produce(b"a" * 90)
            large = await held.waits(b"b" * 80)
            small, same = await held.waits(b"c"), await held.waits(b"b")
            assert large.cancel()
            await turns(5)
            assert [small.done(), same.done()] == [True, True]
            assert held.queue.stats().waiting_bytes == 92

    async def test_a_batch_of_one_item_is_beside_the_room(self) -> None:
        async with held_up(partitions=1) as held:
            assert await held.queue.produce(b"a" * 90)
            held.gate.set()
            await until(lambda: held.queue.stats().handled == 2)
            held.gate.clear()
            assert await held.queue.produce(b"a" * 90)
            await until(lambda: held.queue.stats().in_flight_bytes == 90)
            assert held.queue.produce_nowait(b"a" * 100)

    async def test_a_chunk_gets_in_as_far_as_there_is_room(self) -> None:
        async with held_up(partitions=1) as held:
            chunk = await held.waits(b"a" * 60, b"a" * 30, b"a" * 20, b"a" * 5)
            assert held.queue.stats().waiting_bytes == 90
            chunk.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await chunk
            assert caught.value.accepted == 2  # type: ignore[attr-defined]
            assert held.queue.produce_nowait(b"a" * 10)

    async def test_closing_wakes_who_waits_for_room(self) -> None:
        async with held_up() as held:
            assert await held.queue.produce(b"a" * 99)
            waiter = await held.waits(b"b" * 80)
            closing = asyncio.create_task(held.queue.shutdown())
            await turns(5)
            assert await waiter == 0
            held.gate.set()
            assert await closing == []

    @virtual
    @pytest.mark.parametrize("when_full", [WhenFull.WAIT, WhenFull.DROP_NEWEST])
    async def test_what_lingers_makes_room_for_who_needs_it(
        self, when_full: WhenFull
    ) -> None:
        received = RecordingHandler[Any]()
        config = BatchQueueConfig[Any](
            partitions=PartitionPolicy.fixed(2),
            drain_tasks=DrainTaskPolicy.fixed(2),
            linger=3600.0,
            size_of=len,
            buffer_bytes=100,
            when_full=when_full,
        )
        loop = asyncio.get_running_loop()
        async with BatchQueue("q", config) as queue:
            queue.add_handler(bytes, received)
            queue.add_handler(str, RecordingHandler[str]())
            assert await queue.produce(b"x" * 80)
            await asyncio.sleep(1)
            assert received.batches == []
            is_in = await queue.produce("y" * 80)
            assert is_in == (when_full is WhenFull.WAIT)
            await asyncio.sleep(0.01)
            assert received.batches == [[b"x" * 80]]
            assert loop.time() < 2
            assert await queue.produce("y" * (20 if is_in else 80))

    @virtual
    async def test_so_it_does_for_who_is_refused_on_the_way(self) -> None:
        received = RecordingHandler[bytes]()
        config = BatchQueueConfig[bytes](
            consumer=received, linger=3600.0, buffer_bytes=100
        )
        async with BatchQueue("q", config) as queue:
            assert await queue.produce(b"x" * 80)
            await asyncio.sleep(1)
            assert not queue.offer(b"y" * 80)
            await asyncio.sleep(0.01)
            assert received.batches == [[b"x" * 80]]
            assert queue.offer(b"y" * 80)

    @virtual
    async def test_who_was_let_in_with_a_full_batch_does_not_linger(self) -> None:
        received = RecordingHandler[bytes]()
        config = BatchQueueConfig[bytes](
            consumer=received, linger=3600.0, buffer_bytes=60, max_batch_bytes=50
        )
        async with BatchQueue("q", config) as queue:
            assert await queue.produce_many([b"x" * 40, b"y" * 60]) == 2
            await asyncio.sleep(0.01)
            assert received.batches == [[b"x" * 40], [b"y" * 60]]

    @virtual
    async def test_nor_does_he_where_its_drain_task_naps(self) -> None:
        received = RecordingHandler[bytes]()
        config = BatchQueueConfig[bytes](
            consumer=received,
            partitions=PartitionPolicy.fixed(2),
            drain_tasks=DrainTaskPolicy.fixed(2),
            selector=by_first,
            linger=3600.0,
            buffer_bytes=60,
            max_batch_bytes=50,
        )
        async with BatchQueue("q", config) as queue:
            await asyncio.sleep(1)
            assert await queue.produce_many([b"a" * 40, b"b" * 60]) == 2
            await asyncio.sleep(0.01)
            assert received.batches == [[b"a" * 40], [b"b" * 60]]


class TestDropOldest:
    async def test_its_own_oldest_make_room(self) -> None:
        async with held_up(when_full=WhenFull.DROP_OLDEST) as held:
            assert await held.queue.produce_many([b"b" * 30, b"b" * 31, b"b" * 32]) == 3
            assert await held.queue.produce(b"b" * 33)
            assert held.queue.stats().dropped == 1
            assert await held.queue.produce(b"b" * 90)
            assert held.queue.stats().dropped == 4
            assert held.queue.stats().waiting_bytes == 90
        assert [len(item) for item in held.handler.items] == [1, 90]

    async def test_where_they_would_not_do_nothing_is_displaced(self) -> None:
        async with held_up(when_full=WhenFull.DROP_OLDEST) as held:
            assert await held.queue.produce_many([b"b" * 80, b"c" * 10]) == 2
            assert not await held.queue.produce(b"c" * 30)
            assert held.queue.stats().dropped == 0
            assert held.queue.stats().rejected == 1
            assert await held.queue.produce(b"c" * 20)
        assert [len(item) for item in held.handler.items] == [1, 80, 20]

    async def test_a_chunk_displaces_its_own_first_items(self) -> None:
        async with held_up(when_full=WhenFull.DROP_OLDEST) as held:
            chunk = [b"b" * size for size in (10, 20, 30, 40, 50)]
            assert await held.queue.produce_many(chunk) == 5
            assert held.queue.stats().waiting_bytes == 90
        assert [len(item) for item in held.handler.items] == [1, 40, 50]


class TestHandlersThatWait:
    """As with slots, who would wait for himself is told; but anybody may make room."""

    async def test_for_themselves(self) -> None:
        raised: list[Exception] = []

        async def consume(batch: list[bytes]) -> None:
            if batch == [b"a"]:
                try:
                    assert queue.produce_nowait(b"b" * 95)
                    await queue.produce(b"c" * 6)
                except WouldDeadlock as error:
                    raised.append(error)

        config = BatchQueueConfig[bytes](
            consumer=consume,
            partitions=PartitionPolicy.fixed(3),
            selector=by_first,
            buffer_bytes=100,
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce(b"a")
            await queue.flush()
            assert len(raised) == 1

    async def test_for_another_drain_task(self) -> None:
        """It may, and may not any more once that one has made what room it can."""
        gate = asyncio.Event()
        answers: list[object] = []

        async def consume(batch: list[bytes]) -> None:
            if batch[0] == b"bb":
                await gate.wait()
            elif batch[0] == b"a":
                assert queue.produce_nowait(b"a" * 40)
                for size in (90, 41):
                    try:
                        answers.append(await queue.produce(b"c" * size))
                    except WouldDeadlock as error:
                        answers.append(type(error))

        config = BatchQueueConfig[bytes](
            consumer=consume,
            partitions=PartitionPolicy.fixed(2),
            drain_tasks=DrainTaskPolicy.fixed(2),
            selector=by_first,
            buffer_bytes=100,
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce(b"bb")
            await turns(5)
            await queue.produce(b"b" * 60)
            await queue.produce(b"a")
            await turns(10)
            assert answers == []
            gate.set()
            await queue.flush()
            assert answers == [WouldDeadlock, True]

    async def test_for_each_other(self) -> None:
        """Each could be served by the other: the second one that waits is told."""
        inside = asyncio.Barrier(2)
        answers: list[object] = []

        async def consume(batch: list[bytes]) -> None:
            if len(batch[0]) > 1:
                return
            await inside.wait()
            try:
                answers.append(await queue.produce(batch[0] * 52))
            except WouldDeadlock as error:
                answers.append(type(error))

        config = BatchQueueConfig[bytes](
            partitions=PartitionPolicy.fixed(2),
            drain_tasks=DrainTaskPolicy.fixed(2),
            selector=by_first,
            buffer_bytes=100,
            max_batch=1,
            consumer=consume,
        )
        async with BatchQueue("q", config) as queue:
            assert await queue.produce_many([b"a", b"b", b"a" * 48, b"b" * 48]) == 4
            await queue.flush()
        assert answers == [WouldDeadlock, True]

    async def test_meanwhile_it_gets_no_partition_of_others(self) -> None:
        """A handoff could make it the only one who could make room for itself."""
        is_waiting, gate = asyncio.Event(), asyncio.Event()

        async def consume(batch: list[bytes]) -> None:
            if batch[0] == b"a":
                is_waiting.set()
                assert await queue.produce(b"a" * 60)
            elif batch[0] == b"b":
                await gate.wait()

        config = BatchQueueConfig[bytes](
            consumer=consume,
            partitions=PartitionPolicy.fixed(2),
            drain_tasks=DrainTaskPolicy.fixed(2),
            selector=by_first,
            buffer_bytes=100,
            max_batch=1,
        )
        async with BatchQueue("q", config) as queue:
            assert await queue.produce_many([b"a", b"b", b"b" * 50]) == 3
            await is_waiting.wait()
            await turns(5)
            parts = queue._parts
            assert not parts.detector.may_own(0, parts.partitions[1])
            gate.set()
            await queue.flush()
            assert parts.detector.may_own(0, parts.partitions[1])

    async def test_a_flush_leaves_out_who_waits_for_the_one_that_flushes(self) -> None:
        answers: list[object] = []

        async def consume(batch: list[bytes]) -> None:
            if batch[0] == b"a":
                try:
                    answers.append(await queue.produce(b"a" * 60))
                except WouldDeadlock as error:
                    answers.append(type(error))
            elif batch[0] == b"b":
                await turns(5)
                assert answers == []
                await queue.flush()
                answers.append("flushed")

        config = BatchQueueConfig[bytes](
            consumer=consume,
            partitions=PartitionPolicy.fixed(2),
            drain_tasks=DrainTaskPolicy.fixed(2),
            selector=by_first,
            buffer_bytes=100,
            max_batch=1,
        )
        async with BatchQueue("q", config) as queue:
            assert await queue.produce_many([b"a", b"b", b"b" * 50]) == 3
            await turns(20)
        assert answers == ["flushed", True]
