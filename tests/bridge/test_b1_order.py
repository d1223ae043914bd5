"""B1 through the bridge: each producer's items stay in order, and nobody overtakes."""

import asyncio
import threading
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    LoopThread,
    PartitionPolicy,
    SyncBatchQueue,
    by_key,
)
from batchqueue_async._engine.partitions.partition import Partition
from tests.bridge.background import all_answers, in_background, until, wait_until
from tests.bridge.gated import Gated, partition_of
from tests.support.oracle import check_settled

Item = tuple[int, int]


def put(bridge: SyncBatchQueue[Item], producer: int) -> None:
    for step in range(0, 180, 3):
        assert bridge.produce((producer, step))
        assert bridge.produce_many([(producer, step + 1), (producer, step + 2)]) == 2


async def put_on_loop(queue: BatchQueue[Item], producer: int) -> None:
    for step in range(0, 180, 3):
        assert await queue.produce((producer, step))
        while not queue.produce_nowait((producer, step + 1)):  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert await queue.produce_many([(producer, step + 2)]) == 1


@pytest.mark.real_time
@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("buffer_size", [1, 4, 10_000])
async def test_each_producers_items_stay_in_order(buffer_size: int) -> None:
    handled: list[Item] = []

    async def consume(batch: list[Item]) -> None:
        handled.extend(batch)
        await asyncio.sleep(0)

    config = BatchQueueConfig[Item](
        partitions=PartitionPolicy.fixed(2),
        buffer_size=buffer_size,
        selector=by_key(lambda item: item[0]),
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(tuple, consume)
        bridge = SyncBatchQueue(queue)
        on_threads = [in_background(put, bridge, n) for n in range(4)]
        await asyncio.gather(*(put_on_loop(queue, n) for n in range(4, 7)))
        await all_answers(on_threads)
    assert check_settled(queue).handled == 7 * 180
    for producer in range(7):
        assert [step for who, step in handled if who == producer] == list(range(180))


@pytest.mark.real_time
async def test_threads_and_tasks_wait_in_one_line() -> None:
    handler = Gated(is_open=False)
    calls: list[asyncio.Future[Any]] = []
    config = BatchQueueConfig[int](buffer_size=2)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        bridge, partition = SyncBatchQueue(queue), partition_of(queue)
        assert await queue.produce(0)
        await asyncio.to_thread(handler.entered.wait, 10)
        assert await queue.produce_many([1, 2]) == 2
        for number in range(0, 12, 2):
            ahead = len(partition.line)
            calls.append(
                asyncio.wrap_future(
                    in_background(bridge.produce_many, [3 + number, 4 + number])
                )
                if number % 4
                else asyncio.ensure_future(queue.produce_many([3 + number, 4 + number]))
            )
            await until(lambda ahead=ahead: len(partition.line) > ahead)  # type: ignore[misc]
        # Whoever does not want to wait comes too late, on the loop or on a thread.
        assert not queue.produce_nowait(99)
        assert not await asyncio.to_thread(bridge.produce, 99, 0)
        handler.gate.set()
        async with asyncio.timeout(10):
            assert await asyncio.gather(*calls) == [2] * 6
    assert handler.handled == list(range(15))


@pytest.mark.real_time
@pytest.mark.parametrize("places_its_own", [False, True])
async def test_a_slot_that_is_reserved_for_a_task_is_not_free_for_threads(
    *, places_its_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The take has made room, but the loop is too busy to let its producer run.

    Its item is in, or, where it has to place it itself, its slot is reserved.
    """
    monkeypatch.setattr(Partition, "serves_on_loop", not places_its_own)
    blocking, go_on = threading.Event(), threading.Event()
    handled: list[int] = []

    async def consume(batch: list[int]) -> None:
        handled.extend(batch)
        if 1 in batch:
            blocking.set()
            go_on.wait(10)
        await started.wait()

    started = asyncio.Event()
    async with BatchQueue("q", BatchQueueConfig[int](buffer_size=1)) as queue:
        queue.add_handler(int, consume)
        bridge = SyncBatchQueue(queue)
        await queue.produce(0)
        await until(lambda: handled)
        await queue.produce(1)
        waiting = asyncio.create_task(queue.produce(2))
        await until(lambda: len(partition_of(queue).line))

        def overtake() -> tuple[bool, bool, int]:
            assert blocking.wait(10)
            refused = bridge.produce(3, timeout=0), bridge.produce(3, timeout=0.02)
            room = 1 - len(partition_of(queue).items)
            go_on.set()
            return (*refused, room)

        thread = in_background(overtake)
        started.set()
        async with asyncio.timeout(10):
            assert await waiting
        room = int(places_its_own)
        assert await asyncio.wrap_future(thread) == (False, False, room)
    assert handled == [0, 1, 2]


@pytest.mark.real_time
async def test_a_thread_that_gives_up_passes_its_slot_to_a_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It held one already, behind a task that could not run yet to place its item."""
    monkeypatch.setattr(Partition, "serves_on_loop", False)
    blocking, given_up = threading.Event(), threading.Event()
    handled: list[int] = []

    async def consume(batch: list[int]) -> None:
        handled.extend(batch)
        if 1 in batch:
            blocking.set()
            given_up.wait(10)
        await started.wait()

    started = asyncio.Event()
    async with BatchQueue("q", BatchQueueConfig[int](buffer_size=2)) as queue:
        queue.add_handler(int, consume)
        bridge, partition = SyncBatchQueue(queue), partition_of(queue)
        await queue.produce(0)
        await until(lambda: handled)
        await queue.produce_many([1, 2])

        async def joined(length: int) -> None:
            await until(lambda: len(partition.line) >= length)

        first = asyncio.create_task(queue.produce(3))
        await joined(1)

        def give_up() -> bool:
            try:
                return bridge.produce(4, timeout=0.2)
            finally:
                given_up.set()

        thread = in_background(give_up)
        await joined(2)
        second = asyncio.create_task(queue.produce(5))
        await joined(3)
        await asyncio.sleep(0.05)
        started.set()
        async with asyncio.timeout(10):
            assert await first
            assert await second
            gave_up = not await asyncio.wrap_future(thread)
    assert blocking.is_set()
    assert gave_up
    assert handled == [0, 1, 2, 3, 5]


def test_one_threads_items_stay_in_order_across_objects(
    loop_thread: LoopThread,
) -> None:
    handler = Gated()
    one: SyncBatchQueue[int] = loop_thread.open("q", None, {int: handler})

    async def another() -> SyncBatchQueue[int]:
        return SyncBatchQueue(one._queue)

    two = asyncio.run_coroutine_threadsafe(another(), one._loop).result(10)
    for item in range(0, 200, 2):
        assert one.produce(item)
        assert two.produce(item + 1)
    one.flush(10)
    assert handler.handled == list(range(200))
    wait_until(lambda: two.stats().handled == 200)
