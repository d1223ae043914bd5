"""C5 across threads: one room for producers on the loop and on threads."""

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    ItemTooLarge,
    Offer,
    PartitionPolicy,
    SyncBatchQueue,
    WhenFull,
)
from batchqueue_async._engine.partitions.byte_budget import ByteBudget
from batchqueue_async._engine.partitions.sized_partition import SizedPartition
from tests.bridge.background import in_background
from tests.engine.until import until
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = pytest.mark.real_time


def size_of(item: int) -> int:
    return item * 7 % 11


class Producers:
    """Those of one queue, and what they were told."""

    def __init__(self, queue: BatchQueue[int]) -> None:
        self.queue = queue
        self.bridge = SyncBatchQueue(queue)
        self.answers: list[int] = []

    def on_thread(self, first: int) -> None:
        bridge, told = self.bridge, self.answers.append
        for item in range(first, first + 200, 4):
            told(bridge.produce(item))
            told(bridge.produce_many([item + 1, item + 2]))
            told(bool(bridge.offer(item + 3)))

    async def on_loop(self, first: int) -> None:
        for item in range(first, first + 200, 2):
            self.answers.append(await self.queue.produce(item))
            self.answers.append(self.queue.produce_nowait(item + 1))

    async def cut_short(self, first: int) -> None:
        for item in range(first, first + 100, 5):
            try:
                async with asyncio.timeout(0.0001):
                    many = self.queue.produce_many(range(item, item + 5))
                    self.answers.append(await many)
            except TimeoutError as error:
                self.answers.append(error.__context__.accepted)  # type: ignore[union-attr]

    async def all(self) -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(4) as pool:
            await asyncio.gather(
                *(loop.run_in_executor(pool, self.on_thread, n * 1000) for n in (1, 2)),
                *map(self.on_loop, (3000, 4000)),
                self.cut_short(5000),
            )


@pytest.mark.parametrize("when_full", list(WhenFull))
async def test_account_order_and_bounds_hold_at_every_moment(
    when_full: WhenFull,
) -> None:
    received: list[int] = []
    held: list[float] = []
    measured: list[int] = []

    def measure(item: int) -> int:
        measured.append(item)
        return size_of(item)

    async def consume(batch: list[int]) -> None:
        held.append(queue.stats().waiting_bytes or 0)
        assert sum(map(size_of, batch)) <= 15
        received.extend(batch)
        await asyncio.sleep(0)

    config = BatchQueueConfig[int](
        consumer=consume,
        partitions=PartitionPolicy.fixed(3),
        drain_tasks=DrainTaskPolicy.fixed(2),
        selector=lambda item, partitions: item % partitions,
        when_full=when_full,
        size_of=measure,
        buffer_bytes=40,
        max_batch_bytes=15,
    )
    async with BatchQueue("q", config) as queue:
        producers = Producers(queue)
        await producers.all()
    stats = check_settled(queue)
    assert stats.accepted == sum(producers.answers)
    assert len(received) == stats.accepted - stats.dropped == stats.handled
    assert max(held) <= 40
    assert len(measured) == len(set(measured)), "each is measured once"
    assert queue.stats().waiting_bytes == queue.stats().in_flight_bytes == 0
    for who in {(item // 1000, item % 3) for item in received}:
        own = [item for item in received if (item // 1000, item % 3) == who]
        assert own == sorted(own), "one producer's items are in its order"


async def test_a_large_waiter_on_a_thread_is_not_overtaken() -> None:
    gate = asyncio.Event()
    handler = RecordingHandler[bytes](gate=gate)
    config = BatchQueueConfig[bytes](consumer=handler, buffer_bytes=100, max_batch=1)
    async with BatchQueue("q", config) as queue:
        bridge = SyncBatchQueue(queue)
        assert await queue.produce(b"a")
        await handler.entered()
        assert await queue.produce(b"b" * 60)
        large = in_background(bridge.produce, b"c" * 80)
        await until(lambda: bool(queue._parts.partitions[0].line))
        assert bridge.offer(b"d") is Offer.FULL
        assert not await asyncio.to_thread(bridge.produce, b"e", 0.01)
        small = asyncio.create_task(queue.produce(b"f"))
        gate.set()
        assert await asyncio.wrap_future(large)
        assert await small
    assert [item[:1] for item in handler.items] == [b"a", b"b", b"c", b"f"]


@pytest.mark.parametrize("when_full", [WhenFull.WAIT, WhenFull.DROP_NEWEST])
async def test_what_lingers_makes_room_for_a_thread(when_full: WhenFull) -> None:
    received = RecordingHandler[bytes]()
    config = BatchQueueConfig[bytes](
        consumer=received, linger=3600.0, buffer_bytes=100, when_full=when_full
    )
    async with BatchQueue("q", config) as queue:
        bridge = SyncBatchQueue(queue)
        assert await asyncio.to_thread(bridge.produce, b"x" * 80)
        is_in = await asyncio.to_thread(bridge.produce, b"y" * 80, 30.0)
        assert is_in == (when_full is WhenFull.WAIT)
        await until(lambda: received.batches)
        assert received.batches == [[b"x" * 80]]


async def test_what_cannot_be_measured_comes_out_where_it_is_produced() -> None:
    threads: list[int] = []

    def measured(item: bytes) -> int:
        threads.append(threading.get_ident())
        return len(item)

    def on_thread() -> None:
        with pytest.raises(ItemTooLarge) as refused:
            bridge.produce(b"x" * 11)
        assert refused.value.accepted == 0  # type: ignore[attr-defined]
        with pytest.raises(ItemTooLarge):
            bridge.offer(b"x" * 11)
        with pytest.raises(ItemTooLarge) as caught:
            bridge.produce_many([b"a", b"b", b"x" * 11, b"c"])
        assert caught.value.accepted == 2  # type: ignore[attr-defined]
        assert set(threads) == {threading.get_ident()}

    config = BatchQueueConfig[bytes](
        consumer=RecordingHandler[bytes](), size_of=measured, buffer_bytes=10
    )
    async with BatchQueue("q", config) as queue:
        bridge = SyncBatchQueue(queue)
        await asyncio.to_thread(on_thread)
    assert queue.stats().handled == 2


async def test_an_iterable_is_not_asked_for_much_more_than_fits() -> None:
    gate, asked = asyncio.Event(), itertools.count()
    handler = RecordingHandler[bytes](gate=gate)
    config = BatchQueueConfig[bytes](consumer=handler, buffer_bytes=100, max_batch=1)
    pages = (b"a" * 10 for _ in asked)
    async with BatchQueue("q", config) as queue:
        bridge = SyncBatchQueue(queue)
        accepted = await asyncio.to_thread(bridge.produce_many, pages, 0.05)
        assert 10 <= accepted <= 11
        assert next(asked) <= accepted + 16
        gate.set()


async def test_a_timeout_leaves_the_room_to_others() -> None:
    gate = asyncio.Event()
    handler = RecordingHandler[bytes](gate=gate)
    config = BatchQueueConfig[bytes](consumer=handler, buffer_bytes=100)
    async with BatchQueue("q", config) as queue:
        bridge = SyncBatchQueue(queue)
        assert await queue.produce(b"a")
        await handler.entered()
        assert await queue.produce(b"b" * 60)
        chunk = [b"c" * 30, b"d" * 30]
        assert await asyncio.to_thread(bridge.produce_many, chunk, 0.01) == 1
        assert queue.stats().waiting_bytes == 90
        assert queue.produce_nowait(b"e" * 10)
        gate.set()


async def test_who_is_served_is_noted_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop may tell a partition's owner before a thread has placed items there."""
    config = BatchQueueConfig[int](consumer=lambda _: None, size_of=int, buffer_bytes=9)
    async with BatchQueue("q", config) as queue:
        assert queue.produce_nowait(9)
        waiting = asyncio.create_task(queue.produce(9))
        budget, (partition,) = queue._parts.byte_budget, queue._parts.partitions
        assert isinstance(budget, ByteBudget)
        await asyncio.sleep(0)
        serve_line = SizedPartition.serve_line

        def told_meanwhile(served: SizedPartition[int]) -> None:
            budget.tell_owners()
            serve_line(served)

        monkeypatch.setattr(SizedPartition, "serve_line", told_meanwhile)
        budget.serve()
        assert list(budget._served) == [partition]
        monkeypatch.undo()
        assert await waiting


async def test_room_in_one_partition_wakes_the_owner_of_another() -> None:
    """A thread's items go where its drain task sleeps, as another one settles a batch.

    The thread brings more than gets in, so it waits on, and tells nobody.
    """
    is_open = asyncio.Event()
    # Without hooks, for whose sake drain tasks look by themselves.
    handled: list[int] = []

    async def handle(sizes: list[int]) -> None:
        if 5 in sizes:
            await is_open.wait()
        handled.extend(sizes)

    config = BatchQueueConfig[int](
        consumer=handle,
        selector=lambda size, _: size - 5,
        partitions=PartitionPolicy.fixed(2),
        drain_tasks=DrainTaskPolicy.fixed(2),
        size_of=int,
        buffer_bytes=10,
    )
    async with BatchQueue("q", config) as queue:
        bridge = SyncBatchQueue(queue)
        assert await queue.produce_many([5, 5]) == 2
        await until(lambda: queue.stats().in_flight == 2)
        call = asyncio.create_task(asyncio.to_thread(bridge.produce_many, [6, 6, 6]))
        await until(lambda: queue.stats().waiting_producers == 1)
        # Until the other drain task has looked, and sleeps again.
        await asyncio.sleep(0.05)
        is_open.set()
        async with asyncio.timeout(10):
            assert await call == 3
            await queue.flush()
    assert handled == [5, 5, 6, 6, 6]
