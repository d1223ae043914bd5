"""Producers that wait on the loop are placed by whoever makes room.

So several of them don't stand in line again for each item (B1), and one that is
cancelled before it runs leaves nothing behind (C2), also where others stand behind it.
"""

import asyncio
import logging
import sys
import threading
from contextvars import copy_context
from functools import partial
from itertools import count
from random import Random
from types import FrameType
from typing import Any
from unittest.mock import Mock, patch

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig
from batchqueue_async._engine.partitions.audited_partition import AuditedPartition
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.unguarded import UNGUARDED
from batchqueue_async._engine.partitions.wait_for_room import (
    ServedWaiter,
    Tally,
    leave,
    put_in_turn,
    put_one_in_turn,
    withdraw_all,
)
from batchqueue_async._engine.partitions.waiting_line import Waiter, WaitingLine
from tests.engine.every_loop import every_loop
from tests.engine.stalled import stalled_queue
from tests.engine.until import turns
from tests.support.meddling import Once, before_each_line_of
from tests.support.oracle import check_accounts, check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop


def full(*items: int, partition: Partition[int] | None = None) -> Partition[int]:
    """Return a full partition."""
    partition = partition or Partition(0, len(items), len(items))
    partition.open()
    assert partition.offer(items) == len(items)
    return partition


def in_line(partition: Partition[int], *chunks: tuple[int, ...]) -> list[ServedWaiter]:
    loop = asyncio.get_running_loop()
    waiters = [ServedWaiter(loop, chunk, partition) for chunk in chunks]
    for waiter, chunk in zip(waiters, chunks, strict=True):
        partition.wait_in_line(waiter, chunk)
    return waiters


SIZED: dict[str, Any] = {"size_of": lambda _: 1, "max_batch_bytes": 100}


@pytest.mark.parametrize("settings", [{}, SIZED], ids=["plain", "sized"])
@pytest.mark.parametrize("producers", [2, 4, 16])
async def test_who_has_waited_once_does_not_wait_with_each_item(
    producers: int, settings: dict[str, Any]
) -> None:
    """Full batches: the first one to run goes on without a line."""
    handler = RecordingHandler[tuple[int, int]]()

    async def produce(producer: int) -> None:
        for number in range(1000 // producers):
            assert await queue.produce((producer, number))

    config = BatchQueueConfig[tuple[int, int]](
        buffer_size=100, consumer=handler, **settings
    )
    async with BatchQueue("q", config) as queue:
        await asyncio.gather(*map(produce, range(producers)))
    batches = [len(batch) for batch in handler.batches]
    assert set(batches[:-1]) == {100}
    for producer in range(producers):
        own = [number for each, number in handler.items if each == producer]
        assert own == sorted(own)


@pytest.mark.parametrize("producers", [500, 3000])
async def test_nor_do_many_producers_for_all_of_whom_there_is_room(
    producers: int,
) -> None:
    """As the requests of a web service: each waits once per batch, not per item."""
    items, room = 20, 2 * producers
    joined = 0

    def join(line: WaitingLine, waiter: Waiter) -> None:
        nonlocal joined
        joined += 1
        as_ever(line, waiter)

    async def produce() -> None:
        for number in range(items):
            assert await queue.produce(number)

    config = BatchQueueConfig[int](buffer_size=room, consumer=lambda batch: None)
    as_ever = WaitingLine.join
    with patch.object(WaitingLine, "join", join):
        async with BatchQueue("q", config) as queue:
            await asyncio.gather(*(produce() for _ in range(producers)))
    batches = producers * items // room
    assert 0 < joined <= producers * batches


async def test_a_long_line_is_served_in_its_order() -> None:
    size = 1000
    async with stalled_queue(buffer_size=size) as stalled:
        first = size + 1
        for item in range(first, first + 2 * size):
            stalled.waiting.append(asyncio.create_task(stalled.queue.produce(item)))
        await turns(3)
        victims = stalled.waiting[: 2 * size : 3]
        stalled.gate.set()
        for _ in range(3):
            await turns(1)
            for each in victims:
                each.cancel()
        answers = await asyncio.gather(*stalled.waiting, return_exceptions=True)
    accepted = [first + at for at, answer in enumerate(answers) if answer is True]
    assert stalled.handler.items == [*range(first), *accepted]
    assert len(accepted) >= 2 * size - len(victims)


@pytest.mark.parametrize(
    "sizes, sum_of_sizes",
    [
        ({}, None),
        ({"size_of": lambda item: item, "buffer_bytes": 100}, 3 + 4),
        ({"size_of": lambda item: item / 4, "max_batch_bytes": 5}, 7 / 4),
    ],
    ids=["plain", "buffer_bytes", "fractions"],
)
async def test_cancelled_before_it_runs_it_has_not_accepted(
    sizes: dict[str, Any], sum_of_sizes: float | None
) -> None:
    """By the handler to which the take gives its items, which made the room."""
    gate = asyncio.Event()
    seen: list[tuple[int, int]] = []

    async def consume(batch: list[int]) -> None:
        if batch == [0]:
            await gate.wait()
        if batch == [1, 2]:
            seen.append((queue.stats().accepted, queue.stats().waiting))
            assert queue.stats().waiting_bytes == sum_of_sizes
            waiting[0].cancel()
            waiting[2].cancel()
            await turns(3)
            seen.append((queue.stats().accepted, queue.stats().waiting))
            check_accounts(queue)
        received.extend(batch)

    received: list[int] = []
    config = BatchQueueConfig[int](
        buffer_size=2, consumer=consume, audit=not sizes, **sizes
    )
    async with BatchQueue("q", config) as queue:
        assert await queue.produce(0)
        await turns(3)
        assert await queue.produce_many([1, 2]) == 2
        waiting = [asyncio.create_task(queue.produce(item)) for item in range(3, 8)]
        await turns(3)
        gate.set()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert seen == [(5, 2), (5, 2)], "two were placed, and others in place of those"
    assert [answer is True for answer in answers] == [False, True, False, True, True]
    assert received == [0, 1, 2, 4, 6, 7]
    check_settled(queue)
    assert queue.stats().unaccounted == 0
    assert not queue.stats().waiting_bytes


async def test_cancelled_before_it_runs_produce_many_tells_what_is_in() -> None:
    gate = asyncio.Event()
    told: list[int] = []

    async def consume(batch: list[int]) -> None:
        if batch == [0]:
            await gate.wait()
        if batch == [1, 2]:
            waiting.cancel()

    async def produce() -> None:
        try:
            await queue.produce_many([3, 4, 5])
        except asyncio.CancelledError as error:
            told.append(error.accepted)  # type: ignore[attr-defined]
            raise

    config = BatchQueueConfig[int](buffer_size=2, consumer=consume)
    async with BatchQueue("q", config) as queue:
        assert await queue.produce(0)
        await turns(3)
        assert await queue.produce_many([1, 2]) == 2
        waiting = asyncio.create_task(produce())
        await turns(3)
        gate.set()
        await asyncio.wait({waiting})
    assert told == [2]
    assert check_settled(queue).handled == 5


async def test_nothing_is_taken_that_may_be_taken_back() -> None:
    partition = full(1, 2)
    first, second = in_line(partition, (3,), (4,))
    partition.take(None)
    assert partition.items == [3, 4]
    assert partition.pausing is not None
    first.acknowledge()
    assert partition.pausing is not None
    second.acknowledge()
    assert partition.pausing is None


async def test_chunks_and_single_items_are_placed_in_the_order_of_the_line() -> None:
    partition = full(1, 2, 3, 4, 5)
    line = in_line(partition, (6,), (7,), (8, 9), (10,), (11,))
    partition.take(None)
    assert partition.items == [6, 7, 8, 9, 10]
    assert partition.line.unaware is not None
    assert list(partition.line.unaware) == [line[0], line[1], line[3]]
    assert list(partition.line) == line[4:]
    for each in line[:4]:
        each.acknowledge()
    assert [each.accepted for each in line] == [1, 1, 2, 1, 0]
    assert [each.wants for each in line] == [0, 0, 0, 0, 1]
    assert partition.pausing is None
    assert partition.take(2) == [6, 7]
    assert partition.items == [8, 9, 10, 11]
    assert partition.line.head is None


async def test_who_waits_for_what_was_accepted_does_not_wait_for_what_was_not() -> None:
    partition, watcher = full(1, 2), Mock()
    (waiter,) = in_line(partition, (3,))
    partition.take(None)
    assert partition.watch(watcher)
    waiter.on_cancelled()
    assert (partition.items, partition.accepted) == ([], 2)
    partition.accounts.settle("handled", 2, 0)
    partition.accounts.tell_watchers()
    watcher.reached.assert_called_once_with()


async def test_what_is_taken_back_may_stand_before_others() -> None:
    partition = full(1, 2, 3, 4)
    first, second, third = in_line(partition, (5,), (6,), (7,))
    partition.take(None)
    assert partition.offer((8,)) == 1
    (late,) = in_line(partition, (9,))
    partition.uniform_prefix = 4
    second.on_cancelled()
    partition.leave_line(second)
    assert partition.items == [5, 7, 8, 9]
    assert partition.uniform_prefix == 3
    late.on_cancelled()
    first.on_cancelled()
    assert partition.items == [7, 8]
    third.acknowledge()
    third.on_cancelled()
    assert partition.items == [7, 8], "it knows, so it stays"
    assert partition.pausing is None


async def test_items_taken_back_in_any_order_leave_all_others() -> None:
    random = Random(1)
    for _ in range(200):
        count = random.randrange(2, 12)
        partition = full(*range(count))
        line = in_line(partition, *((item,) for item in range(count + 3)))
        partition.take(None)
        left, behind = [*range(count)], [*range(count, count + 3)]
        for item in random.sample(left, count):
            if random.random() < 0.5:
                line[item].acknowledge()
                continue
            line[item].on_cancelled()
            left.remove(item)
            if random.random() < 0.5:
                # Who comes next is placed behind all of them.
                leave(partition, line[item])
                room = count - len(left)
                left, behind = left + behind[:room], behind[room:]
            assert partition.items == left


@pytest.mark.parametrize("kind", [Partition, AuditedPartition])
async def test_the_room_of_what_is_taken_back_is_the_next_one_s(
    kind: type[Partition[int]],
) -> None:
    """Whether it was placed with others or alone, as where each item is counted."""
    partition = full(1, 2, partition=kind(0, 2, 2))
    first, *_ = in_line(partition, (3,), (4,), (5,))
    partition.take(None)
    assert partition.items == [3, 4]
    first.on_cancelled()
    leave(partition, first)
    assert partition.items == [4, 5]
    assert first.accepted == 0


async def test_at_the_deadline_it_was_not_accepted() -> None:
    partition = full(1, 2, partition=AuditedPartition(0, 2, 2))
    waiters = in_line(partition, (3,), (4,))
    partition.take(None)
    assert partition.entered == 4
    partition.close()
    withdraw_all(partition)
    left: list[int] = []
    partition.take_rest(left)
    assert left == []
    assert [each.accepted for each in waiters] == [0, 0]
    assert partition.entered == partition.accepted == 2


async def test_on_another_thread_nobody_is_served_who_waits_on_the_loop() -> None:
    """It could be cancelled after its item was taken."""
    partition = full(1, 2)
    (waiter,) = in_line(partition, (3,))
    partition.open_to_threads(UNGUARDED)
    thread = threading.Thread(target=partition.take, args=(None,))
    thread.start()
    thread.join()
    assert partition.items == []
    assert partition.offer_in_turn(waiter, (3,)) == 1


async def test_the_owner_is_told_when_all_may_be_taken() -> None:
    """It may have looked while they could be taken back, and sleep since."""
    partition, owner = full(1, 2), Mock(listens=True)
    first, second = in_line(partition, (3,), (4,))
    partition.take(None)
    partition.owner = owner
    first.acknowledge()
    owner.notify.assert_not_called()
    second.on_cancelled()
    owner.notify.assert_called_once_with(partition, 0, may_run=False)
    assert partition.items == [3]


async def test_the_owner_is_told_of_a_chunk_that_finds_room_at_last() -> None:
    """It waited for another partition first, and so comes by way of the line."""
    partition, owner, placed = Partition[int](0, 5, 5), Mock(listens=True), Tally()
    partition.open()
    partition.owner = owner
    await put_in_turn(partition, (1, 2), placed, asyncio.get_running_loop())
    assert (partition.items, placed.count) == ([1, 2], 2)
    owner.notify.assert_called_once_with(partition, 0, may_run=False)


async def test_all_who_are_served_at_once_are_run_by_one_callback() -> None:
    """Who waits pays for the loop's handle once in a take, not once each."""
    partition, loop = full(1, 2, 3), Mock()
    for item in (4, 5, 6):
        partition.wait_in_line(ServedWaiter(loop, (item,), partition))
    partition.take(None)
    assert partition.items == [4, 5, 6]
    loop.call_soon.assert_called_once()


async def test_one_that_is_struck_keeps_nobody_else_asleep() -> None:
    """Ctrl-C leaves the callback: the others run in the loop's next turn, once each."""
    partition, loop, ran = full(1, 2, 3), Mock(), list[int]()

    def run(item: int, _: object) -> None:
        ran.append(item)
        if item == 5:
            raise KeyboardInterrupt

    for item in (4, 5, 6):
        waiter = ServedWaiter(loop, (item,), partition)
        partition.wait_in_line(waiter)
        _ = waiter.fall_asleep()
        waiter.add_done_callback(partial(run, item), context=copy_context())
    partition.take(None)
    callback, unaware = loop.call_soon.call_args.args
    with pytest.raises(KeyboardInterrupt):
        callback(unaware)
    assert ran == [4, 5]
    await turns(1)
    assert ran == [4, 5, 6]


async def test_what_was_struck_by_a_lack_of_memory_pauses_nobody() -> None:
    """Its item was not placed: nobody can take it back, so the partition goes on."""
    partition = full(1, 2, partition=AuditedPartition(0, 2, 2))
    (waiter,) = in_line(partition, (3,))
    with (
        patch.object(AuditedPartition, "_append", side_effect=MemoryError),
        pytest.raises(MemoryError),
    ):
        partition.take(None)
    assert partition.items == []
    assert (partition.pausing, waiter.accepted) == (None, 0)


@pytest.mark.parametrize("ahead", [(), (3,)])
async def test_nobody_waits_for_room_in_what_is_closed_as_he_joins_the_line(
    ahead: tuple[int, ...],
) -> None:
    """With eager tasks a signal handler may close the queue there, wherever he is."""

    async def put(partition: Partition[int], closing: Once) -> bool:
        lines_of = (put_one_in_turn, WaitingLine.join, ServedWaiter.fall_asleep)
        with before_each_line_of(*lines_of, act=closing):
            return await put_one_in_turn(partition, (9,), asyncio.get_running_loop())

    for at in count():
        partition = full(1, 2)
        in_line(partition, *((item,) for item in ahead))
        closing = Once(at, partition.close)
        producer = asyncio.create_task(put(partition, closing))
        await turns(3)
        if not closing.has_acted:
            break
        # Where it still waits that ends its tracing, and the test.
        producer.cancel()
        assert not await producer
    producer.cancel()
    assert at > 5


@pytest.mark.asyncio(loop_factories=["virtual"])
@pytest.mark.parametrize("heals", ["flush", "shutdown"])
async def test_who_was_to_run_on_runs_after_a_strike_at_the_callback(
    heals: str, asyncio_errors: list[logging.LogRecord]
) -> None:
    """A signal handler raises as `_run_on` begins: nobody else would run them on."""
    struck = False

    def strike(frame: FrameType, event: str, _: object) -> None:
        nonlocal struck
        if event == "call" and frame.f_code.co_name == "_run_on" and not struck:
            struck = True
            raise TimeoutError

    handled: list[int] = []
    config = BatchQueueConfig[int](consumer=handled.extend, buffer_size=2)
    queue = BatchQueue("q", config)
    await queue.start()
    sys.setprofile(strike)
    producing = [asyncio.create_task(queue.produce(number)) for number in range(4)]
    await asyncio.sleep(1.0)
    sys.setprofile(None)
    assert struck
    asyncio_errors.clear()
    assert not all(each.done() for each in producing)
    if heals == "flush":
        await queue.flush(1.0)
    assert await queue.shutdown(1.0) == []
    assert [await each for each in producing] == [True] * 4
    assert handled == [0, 1, 2, 3]
