"""B1: items of one partition reach their handler in the order of acceptance."""

import asyncio
from collections.abc import Iterable

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, WhenFull
from batchqueue_async._engine.partitions.partition import Partition
from tests.engine.every_loop import every_loop
from tests.engine.stalled import stalled_queue
from tests.engine.until import turns
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop


@pytest.mark.parametrize("max_batch", [None, 1, 3])
async def test_items_keep_their_order_whatever_call_brought_them(
    max_batch: int | None,
) -> None:
    handler = RecordingHandler[int]()
    async with BatchQueue("q", BatchQueueConfig[int](max_batch=max_batch)) as queue:
        queue.add_handler(int, handler)
        expected = 0
        for _ in range(20):
            assert await queue.produce(expected)
            assert queue.produce_nowait(expected + 1)
            more = range(expected + 2, expected + 7)
            assert await queue.produce_many(more) == 5
            expected += 7
            await turns(expected % 4)
    assert handler.items == list(range(expected))
    check_settled(queue)


async def test_waiting_producers_are_served_first_come_first_served() -> None:
    async with stalled_queue(buffer_size=2) as stalled:
        for item in range(3, 30):
            await stalled.join_the_line(item)
    assert stalled.handler.items == list(range(30))


async def test_produce_many_is_not_interleaved_with_who_came_later() -> None:
    """It waits for five slots, which come two at a time."""
    async with stalled_queue(buffer_size=2) as stalled:
        await stalled.join_the_line(3, 4, 5, 6, 7)
        await stalled.join_the_line(8)
        await stalled.join_the_line(9, 10, 11)
    assert stalled.handler.items == list(range(12))


async def test_acceptance_order_is_the_handlers_order_under_contention() -> None:
    """The step after `await produce` is the step of acceptance: it logs the order."""
    handler = RecordingHandler[tuple[int, int]]()
    accepted: list[tuple[int, int]] = []

    async def producer(number: int) -> None:
        for step in range(30):
            assert await queue.produce((number, step))
            accepted.append((number, step))
            await turns((number * step) % 3)

    async with BatchQueue(
        "q", BatchQueueConfig[tuple[int, int]](buffer_size=3)
    ) as queue:
        queue.add_handler(tuple, handler)
        await asyncio.gather(*map(producer, range(12)))
    for number in range(12):
        steps = [step for producer, step in handler.items if producer == number]
        assert steps == list(range(30))
    assert len(handler.items) == 12 * 30


async def test_the_order_of_true_answers_is_the_order_of_items() -> None:
    async with stalled_queue(buffer_size=1) as stalled:
        answered: list[int] = []

        async def producer(item: int) -> None:
            assert await stalled.queue.produce(item)
            answered.append(item)

        tasks = [asyncio.create_task(producer(item)) for item in range(2, 12)]
        await turns()
        stalled.gate.set()
        await asyncio.gather(*tasks)
    assert answered == list(range(2, 12))
    assert stalled.handler.items == list(range(12))


async def test_produce_nowait_is_refused_while_somebody_waits() -> None:
    async with stalled_queue() as stalled:
        await stalled.join_the_line(3)
        assert not stalled.queue.produce_nowait(99)
        assert stalled.queue.stats().rejected == 1
    assert stalled.handler.items == [0, 1, 2, 3]


@pytest.mark.parametrize("places_its_own", [False, True])
async def test_produce_nowait_is_refused_after_a_take_for_who_waits(
    *, places_its_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within `consume` the take has just made room, and the waiter has not run.

    Its item is in, or, where it has to place it itself, its slot is reserved.
    """
    monkeypatch.setattr(Partition, "serves_on_loop", not places_its_own)
    answers: list[bool] = []
    seen: list[tuple[int, int]] = []
    received: list[int] = []

    async def consume(batch: list[int]) -> None:
        received.extend(batch)
        if batch[0] == 0:
            await gate.wait()
        elif not waiter.done():
            stats = queue.stats()
            seen.append((stats.waiting, stats.capacity))
            answers.append(queue.produce_nowait(99))

    gate = asyncio.Event()
    async with BatchQueue("q", BatchQueueConfig[int](buffer_size=1)) as queue:
        queue.add_handler(int, consume)
        assert await queue.produce(0)
        await turns()
        assert queue.produce_nowait(1)
        waiter = asyncio.create_task(queue.produce(2))
        await turns()
        gate.set()
        assert await waiter
    assert seen == [(0 if places_its_own else 1, 1)], "room showed, or not"
    assert answers == [False], "and yet it was refused"
    assert received == [0, 1, 2]


async def test_a_producer_that_comes_later_queues_up_behind_reserved_slots() -> None:
    """gh-83055: on `asyncio.Queue` it overtakes the producer that was woken."""
    received: list[int] = []
    late: list[asyncio.Task[bool]] = []

    async def consume(batch: list[int]) -> None:
        received.extend(batch)
        if batch[0] == 0:
            await gate.wait()
        if batch[0] == 1:
            task = asyncio.create_task(queue.produce(4))
            late.append(task)
            # Run the newcomer first, whatever order the loop would choose.
            await asyncio.sleep(0)

    gate = asyncio.Event()
    async with BatchQueue("q", BatchQueueConfig[int](buffer_size=1)) as queue:
        queue.add_handler(int, consume)
        assert await queue.produce(0)
        await turns()
        assert queue.produce_nowait(1)
        early = [asyncio.create_task(queue.produce(item)) for item in (2, 3)]
        await turns()
        gate.set()
        assert all(await asyncio.gather(*early))
        (answer,) = await asyncio.gather(*late, return_exceptions=True)
    assert received[:4] == [0, 1, 2, 3]
    assert received[4:] == ([4] if answer is True else [])


async def test_the_line_is_left_when_all_are_served() -> None:
    """Afterwards `produce_nowait` has its fast way again."""
    async with stalled_queue() as stalled:
        waiter = await stalled.wait_to_produce(3)
        stalled.gate.set()
        assert await waiter
        await stalled.queue.flush()
        assert stalled.queue.produce_nowait(4)
        assert stalled.queue.produce_nowait(5)
        assert not stalled.queue.produce_nowait(6), "the partition is full"
    assert stalled.handler.items == [0, 1, 2, 3, 4, 5]


async def test_types_that_share_a_handler_keep_their_common_order() -> None:
    class Base:
        def __init__(self, number: int) -> None:
            self.number = number

    class Sub(Base): ...

    handler = RecordingHandler[Base]()
    async with BatchQueue("q", BatchQueueConfig[Base]()) as queue:
        queue.add_handler(Base, handler)
        sent = [(Sub if number % 3 else Base)(number) for number in range(50)]
        assert await queue.produce_many(sent) == 50
    assert [item.number for item in handler.items] == list(range(50))


async def test_each_of_several_handlers_in_a_partition_gets_its_items_in_order() -> (
    None
):
    numbers, words = RecordingHandler[int](), RecordingHandler[str]()
    async with BatchQueue("q", BatchQueueConfig(buffer_size=4)) as queue:
        queue.add_handler(int, numbers)
        queue.add_handler(str, words)
        mixed: Iterable[object] = (
            number if number % 2 else str(number) for number in range(40)
        )
        assert await queue.produce_many(mixed) == 40
    assert numbers.items == list(range(1, 40, 2))
    assert words.items == [str(number) for number in range(0, 40, 2)]


async def test_what_drop_oldest_keeps_stays_in_order() -> None:
    async with stalled_queue(buffer_size=3, when_full=WhenFull.DROP_OLDEST) as stalled:
        for item in range(4, 9):
            assert await stalled.queue.produce(item)
    assert stalled.handler.items == [0, 6, 7, 8]


async def test_the_consumer_gets_each_partitions_items_in_order() -> None:
    received: list[tuple[int, int]] = []
    config = BatchQueueConfig[tuple[int, int]](
        consumer=received.extend, selector=lambda item, partitions: item[0] % partitions
    )
    async with BatchQueue("q", config) as queue:
        for step in range(60):
            assert await queue.produce((step % 3, step))
            await turns(step % 2)
    for key in range(3):
        steps = [step for each, step in received if each == key]
        assert steps == list(range(key, 60, 3))
