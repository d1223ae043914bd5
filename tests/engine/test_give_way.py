"""A producer that meets a full partition gives way to its drain task, for one turn.

It comes next all the same (B1), leaves nothing behind if it is cancelled meanwhile
(C2), and holds nobody up, whatever becomes of its turn.
"""

import asyncio
import contextlib
import gc
import random
import threading
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, SyncBatchQueue
from batchqueue_async._engine.partitions.give_way import put_untold
from batchqueue_async._engine.partitions.loop_waker import LoopWaker
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.wait_for_room import (
    ServedWaiter,
    put_one_in_turn,
    withdraw,
)
from batchqueue_async._engine.queue import parts_of
from batchqueue_async.testing import VirtualTimeLoop
from tests.bridge.interruptions import Interruption
from tests.engine.every_loop import every_loop
from tests.engine.until import turns
from tests.support.oracle import check_settled
from tests.support.striking import OUT_OF_REACH, SWEEP, Struck, quiet, strike

__all__ = ["quiet"]


def full_and_taken_from_next() -> Partition[int]:
    """Return a full partition whose drain task looks again in the next turn."""
    partition = Partition[int](0, 2, 2)
    owner: Any = SimpleNamespace(has_news=False, listens=False, is_over_next_turn=True)
    partition.owner = owner
    partition.open()
    assert partition.offer((1, 2)) == 2
    return partition


def naps(partition: Partition[int]) -> None:
    """Have its drain task not look in the next turn, after all."""
    owner: Any = partition.owner
    owner.is_over_next_turn = False


def putting(partition: Partition[int], item: int) -> asyncio.Task[bool]:
    async def put() -> bool:
        return await put_one_in_turn(partition, (item,), asyncio.get_running_loop())

    return asyncio.create_task(put())


async def begun(partition: Partition[int], producers: int = 1) -> None:
    """Let so many come as far as waiting: eager tasks are there already."""
    while partition.waiting_producers() < producers:
        await turns(1)


async def one_that_gives_way() -> tuple[Partition[int], asyncio.Task[bool]]:
    """Return a full partition, and the producer of 3 that gives way there."""
    partition = full_and_taken_from_next()
    producer = putting(partition, 3)
    await begun(partition)
    return partition, producer


@every_loop
async def test_it_is_in_after_one_turn_without_a_place_in_the_line() -> None:
    partition, producer = await one_that_gives_way()
    assert partition.line.head is None
    assert partition.line.giving_way
    assert partition.waiting_producers() == 1
    assert partition.take(None) == [1, 2]
    await turns(1)
    assert producer.done()
    assert await producer
    assert partition.items == [3]
    assert partition.waiting_producers() == 0
    assert partition.has_fast_path
    assert partition.limit == partition.guarded_limit == 1
    assert partition.put_nowait(4) is None  # type: ignore[func-returns-value]


@every_loop
async def test_it_is_not_in_before_there_is_room() -> None:
    """Whether the drain task comes next is a hint."""
    partition, producer = await one_that_gives_way()
    await turns(2)
    assert partition.items == [1, 2]
    assert partition.line.giving_way is None
    assert partition.waiting_producers() == 1
    partition.take(None)
    assert await producer
    assert partition.items == [3]


@every_loop
async def test_its_item_meets_the_edge_where_a_drain_task_is_told() -> None:
    partition = full_and_taken_from_next()
    partition.due_size = 1
    partition.clock = lambda: 7.0
    producer = putting(partition, 3)
    await begun(partition)
    partition.take(None)
    partition.due_size = 2
    partition.full_at = partition._maxsize = 5
    assert await producer
    assert partition.limit == partition.guarded_limit == 1
    assert partition.filled_at == 7.0


@every_loop
async def test_what_comes_in_the_middle_of_a_change_is_not_in() -> None:
    """From the `__del__` of an item, for instance."""
    partition, producer = await one_that_gives_way()
    partition.take(None)
    partition.is_changing = True
    assert not partition.offer((9,))
    assert not partition.items
    partition.is_changing = False
    assert await producer
    assert partition.items == [3]


@every_loop
async def test_who_finds_no_room_stands_behind_it() -> None:
    partition, first = await one_that_gives_way()
    assert not partition.has_room
    assert not partition.offer((9,))
    assert not partition.append(9)
    assert not partition.accept_at_once((9,))
    with pytest.raises(asyncio.QueueFull):
        partition.put_nowait(9)
    second = putting(partition, 4)
    await turns(3)
    assert not first.done()
    assert partition.waiting_producers() == 2
    partition.take(None)
    assert not partition.waiting_producers()
    assert await first
    assert await second
    assert partition.items == [3, 4]


def by_offer(partition: Partition[int]) -> None:
    assert partition.offer((9,)) == 1


def without_waiting(partition: Partition[int]) -> None:
    partition.put_nowait(9)


def in_the_line(partition: Partition[int]) -> None:
    waiter = ServedWaiter(asyncio.get_running_loop(), (9,), partition)
    partition.wait_in_line(waiter)
    assert not waiter.wants or waiter in (partition.line.unaware or ())


@every_loop
@pytest.mark.parametrize("comes", [by_offer, without_waiting, in_the_line])
async def test_who_finds_room_is_in_at_once_and_behind_it(
    comes: Callable[[Partition[int]], None],
) -> None:
    """Nobody waits while there is room, whoever comes before its turn."""
    partition, first = await one_that_gives_way()
    partition.take(None)
    assert partition.has_room
    assert not partition.waiting_producers()
    assert not partition.append(9)
    assert not partition.accept_at_once((9,))
    comes(partition)
    assert partition.items == [3, 9]
    assert not partition.waiting_producers()
    assert await first
    assert partition.items == [3, 9]


@every_loop
@pytest.mark.parametrize("comes", [by_offer, without_waiting, in_the_line])
async def test_room_for_one_is_its_own(
    comes: Callable[[Partition[int]], None],
) -> None:
    partition, first = await one_that_gives_way()
    assert partition.take(1) == [1]
    assert partition.limit == partition.guarded_limit == 0
    assert not partition.has_room
    with contextlib.suppress(AssertionError, asyncio.QueueFull):
        comes(partition)
    assert await first
    assert partition.items == [2, 3]


@every_loop
async def test_placed_meanwhile_and_cancelled_it_leaves_nothing() -> None:
    partition, first = await one_that_gives_way()
    partition.take(None)
    by_offer(partition)
    first.cancel()
    await asyncio.wait({first})
    assert first.cancelled()
    assert partition.items == [9]
    assert partition.pausing is None
    by_offer(partition)


@every_loop
@pytest.mark.parametrize("others", [0, 1])
async def test_the_room_that_a_part_of_a_batch_leaves_is_kept_for_it(
    others: int,
) -> None:
    partition = full_and_taken_from_next()
    producers = [putting(partition, item) for item in range(3, 4 + others)]
    await begun(partition, 1 + others)
    assert partition.take(1) == [1]
    assert partition.limit == partition.guarded_limit == 0
    assert await producers[0]
    assert partition.items == [2, 3]
    partition.take(None)
    assert all(await asyncio.gather(*producers))


@every_loop
@pytest.mark.parametrize("is_taken_first", [False, True])
async def test_cancelled_it_leaves_nothing_and_its_room_is_the_next_one_s(
    *, is_taken_first: bool
) -> None:
    """Also of one that is in the line before there is room."""
    partition = full_and_taken_from_next()
    first, second = putting(partition, 3), putting(partition, 4)
    if not is_taken_first:
        await begun(partition, 2)
    partition.take(None)
    first.cancel()
    await asyncio.wait({first})
    assert first.cancelled()
    assert await second
    assert partition.items == [4]
    assert partition.offer((5,)) == 1


@every_loop
async def test_in_the_line_it_is_the_head_and_others_may_leave() -> None:
    partition = full_and_taken_from_next()
    first, second, third, fourth = (putting(partition, item) for item in (3, 4, 5, 6))
    await turns(3)
    second.cancel()
    await turns(1)
    assert partition.waiting_producers() == 3
    partition.take(None)
    assert await first
    assert await third
    assert partition.take(None) == [3, 5]
    assert await fourth


@every_loop
async def test_the_owner_is_told_before_it_is_in() -> None:
    """It may nap by then: if nobody else comes, nobody else would tell it."""
    partition = full_and_taken_from_next()
    owner: Any = partition.owner
    producer = putting(partition, 3)
    await begun(partition)
    partition.take(None)
    owner.has_news = False
    naps(partition)
    assert await producer
    assert owner.has_news


@every_loop
async def test_what_meets_an_edge_as_the_drain_task_comes_next_need_not_tell_it() -> (
    None
):
    partition = full_and_taken_from_next()
    owner: Any = partition.owner
    partition.take(None)
    partition.due_size, partition.full_at, partition._maxsize = 2, 4, 4
    partition.accept_at_once((1,))
    owner.has_news = False
    assert put_untold(partition, 2)
    assert partition.limit == partition.guarded_limit == 3
    partition.items.append(3)
    assert put_untold(partition, 4)
    assert not put_untold(partition, 5)
    assert partition.items == [1, 2, 3, 4]
    assert not owner.has_news


@every_loop
async def test_what_was_placed_by_itself_meanwhile_is_not_put_again() -> None:
    """Where others have not run yet since theirs was, it is placed alone."""
    partition = full_and_taken_from_next()
    owner: Any = partition.owner
    owner.is_over_next_turn = False
    loop = asyncio.get_running_loop()
    served = [ServedWaiter(loop, (number,), partition) for number in (3, 4)]
    for each in served:
        partition.wait_in_line(each)
    assert partition.take(None) == [1, 2]
    assert partition.items == [3, 4]
    owner.is_over_next_turn = True
    first, second = (put_one_in_turn(partition, (each,), loop) for each in (5, 6))
    assert first.send(None) is None
    assert partition.line.giving_way
    # One that has not run since its item was placed is cancelled: there is room.
    withdraw(served[1], partition)
    second.send(None)
    assert partition.items == [3, 5]
    with pytest.raises(StopIteration, match="True"):
        first.send(None)
    assert partition.items == [3, 5]
    assert len(partition.line) == 1
    second.close()
    served[0].acknowledge()
    assert partition.line.unaware is None


@every_loop
async def test_the_edge_ahead_stays_where_an_item_does_not_reach_it() -> None:
    """Items that a selector places come this way wherever they are."""
    partition = full_and_taken_from_next()
    partition.take(None)
    partition.due_size, partition.full_at, partition._maxsize = 3, 5, 5
    partition.accept_at_once((1,))
    assert put_untold(partition, 2)
    assert partition.limit == partition.guarded_limit == 2
    assert put_untold(partition, 3)
    assert partition.limit == partition.guarded_limit == 4


@every_loop
async def test_an_empty_partition_is_filled_by_who_notes_when() -> None:
    partition = full_and_taken_from_next()
    partition.take(None)
    assert not put_untold(partition, 1)
    assert not partition.items


@every_loop
async def test_untold_it_goes_nowhere_where_an_edge_is_more_than_that() -> None:
    for change in (watched, lingering, opened):
        partition = full_and_taken_from_next()
        change(partition)
        partition.offer((1,))
        partition._set_limits()
        assert not partition.has_fast_path
        assert not put_untold(partition, 2)
        assert partition.items == [1]


class ClosesIt(list[int]):
    """Items at whose count a signal handler closes their partition."""

    def __init__(self, partition: Partition[int]) -> None:
        super().__init__(partition.items)
        self._partition = partition

    def __len__(self) -> int:
        self._partition.close()
        return super().__len__()


@every_loop
async def test_what_a_signal_handler_closes_in_the_middle_stays_closed() -> None:
    partition = full_and_taken_from_next()
    partition.take(None)
    partition.accept_at_once((1,))
    partition.items = ClosesIt(partition)
    assert put_untold(partition, 2)
    assert partition.limit == partition.guarded_limit == 0


@every_loop
async def test_who_finds_it_closed_is_in_its_line_no_more() -> None:
    partition, first = await one_that_gives_way()
    second = putting(partition, 4)
    await begun(partition, 2)
    partition.close()
    assert not await first
    assert not await second
    assert not len(partition.line)


def test_what_a_signal_handler_puts_in_the_middle_is_never_one_too_many() -> None:
    """Between the look for room and the append, too: a slot is kept for that (C1)."""
    seen: list[str | None] = []
    while not seen or seen[-1]:
        with contextlib.closing(VirtualTimeLoop()) as loop:
            seen.append(loop.run_until_complete(put_in_the_middle(len(seen))))
    where = " ".join(filter(None, seen))
    assert "put_after_giving_way" in where
    assert "put_untold" in where


async def put_in_the_middle(at: int) -> str | None:
    """Produce, and have a signal handler do so at one of the points; returns which."""
    handled: list[int] = []
    between: list[bool] = []
    async with BatchQueue[int]("q", BatchQueueConfig(buffer_size=4)) as queue:
        queue.add_handler(int, handled.extend)
        (partition,) = parts_of(queue).partitions
        point = Interruption(at, lambda: between.append(queue.produce_nowait(-1)))
        # From the seventh on: whoever finds no room gives way.
        for item in range(14):
            with point if item > 5 else contextlib.nullcontext():
                assert await queue.produce(item)
            assert len(partition.items) <= 4, f"as one came at {point.where}"
        await asyncio.sleep(10.0)
    assert len(handled) == 14 + sum(between)
    assert [item for item in handled if item != -1] == [*range(14)]
    return point.where


@every_loop
async def test_the_next_producer_gets_what_the_last_one_waited_with() -> None:
    """As it was made: its item is not kept, and nothing is known of its turn."""
    partition, producer = await one_that_gives_way()
    partition.take(None)
    assert await producer
    line: Any = partition.line
    spare = line.spare
    assert spare is not None
    assert spare.chunk == ()
    assert partition.put_nowait(4) is None  # type: ignore[func-returns-value]
    producer = putting(partition, 5)
    await begun(partition)
    assert line.giving_way is spare
    assert line.spare is None
    # The second one stands behind it, so it has been put into the line.
    second = putting(partition, 6)
    await begun(partition, 2)
    assert partition.take(None) == [3, 4]
    assert await producer
    assert await second
    assert partition.take(None) == [5, 6]
    # So it is where one was in the line, and knows by now that its item is in.
    spare = partition.line.spare
    assert spare is not None
    assert (spare.chunk, spare.wants, spare.accepted) == ((), 1, 0)
    assert (spare.line, spare.ahead, spare.behind) == (None, None, None)
    assert (spare._wakeup, spare._context, spare.is_woken) == (None, None, False)


@every_loop
async def test_a_drain_task_that_is_cancelled_as_it_was_to_look_looks() -> None:
    """Nobody tells it again: the partition is filled without."""
    handled: list[int] = []

    async def handle(batch: list[int]) -> None:
        handled.extend(batch)

    async with BatchQueue[int]("q", BatchQueueConfig(buffer_size=10)) as queue:
        queue.add_handler(int, handle)
        (task,) = parts_of(queue).tasks.running
        (partition,) = parts_of(queue).partitions
        for strikes in range(1, 4):
            handled.clear()
            for item in range(31):
                assert await queue.produce(item)
            owner: Any = partition.owner
            assert owner.is_over_next_turn
            for _ in range(strikes):
                task.cancel()
                await turns(1)
            while len(partition.items) < 10 and len(handled) < 30:
                assert queue.produce_nowait(99)
            await asyncio.sleep(0.01)
            assert handled[:31] == [*range(31)], strikes
            assert not partition.items, strikes


@every_loop
async def test_a_drain_task_that_was_to_look_and_has_ended_is_started_again() -> None:
    """Who found it to come next must find that it does not: or nobody tells it."""
    async with BatchQueue[int]("q", BatchQueueConfig(buffer_size=10)) as queue:
        queue.add_handler(int, Mock(return_value=None))
        parts = parts_of(queue)
        for item in range(31):
            assert await queue.produce(item)
        (task,) = parts.tasks.running
        nap: Any = parts.partitions[0].owner
        while not nap.is_over_next_turn:
            await turns(1)
        task.cancel()
        parts.tasks.suspend()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not nap.is_over_next_turn
        for item in range(31):
            assert await queue.produce(item)


@every_loop
async def test_what_changes_meanwhile_is_looked_at() -> None:
    """Each of these ends the hot path: it was to end where it went on."""
    for change in (watched, lingering, opened, opened_to_threads):
        partition, producer = await one_that_gives_way()
        change(partition)
        assert await producer
        assert not partition.has_fast_path
        assert not partition.limit or not partition.is_open_to_threads


def watched(partition: Partition[int]) -> None:
    partition.take(None)
    assert partition.watch(Mock())


def lingering(partition: Partition[int]) -> None:
    partition.take(None)
    partition.ages.clock = asyncio.get_running_loop().time


def opened(partition: Partition[int]) -> None:
    lock = threading.RLock()
    partition.open_to_threads(lock)
    partition.take(None)


def opened_to_threads(partition: Partition[int]) -> None:
    """A thread finds it empty, and does not overtake either."""
    opened(partition)
    waker = LoopWaker[int](asyncio.get_running_loop())
    assert not waker.put_first(partition, 9)
    assert waker.put(partition, (9,)) == 1
    assert partition.items == [3, 9]


@every_loop
async def test_closed_meanwhile_the_item_is_not_accepted() -> None:
    partition, first = await one_that_gives_way()
    partition.take(None)
    partition.close()
    second = putting(partition, 4)
    assert not await first
    assert not await second
    assert partition.items == []


@every_loop
async def test_nobody_gives_way_to_a_drain_task_that_does_not_come_next() -> None:
    async def consume(_: list[int]) -> None:
        await asyncio.sleep(0.01)

    config = BatchQueueConfig[int](buffer_size=2, consumer=consume)
    async with BatchQueue("q", config) as queue:
        (partition,) = parts_of(queue).partitions
        for item in range(6):
            assert await queue.produce(item)
        waiting = asyncio.create_task(queue.produce(6))
        await begun(partition)
        assert partition.line.giving_way is None
        assert partition.line.head is not None
        assert await waiting
    assert check_settled(queue).handled == 7


class Produced:
    """Producers that take all ways in, at random, and what has come of it."""

    def __init__(self, seed: int, room: int) -> None:
        self.chance = random.Random(seed)
        self.handled: list[tuple[int, int]] = []
        self.accepted: Counter[int] = Counter()
        config = BatchQueueConfig[tuple[int, int]](
            buffer_size=room, consumer=self.consume
        )
        self.queue = BatchQueue("q", config)

    async def consume(self, batch: list[tuple[int, int]]) -> None:
        self.handled += batch
        if self.chance.random() < 0.1:
            await asyncio.sleep(0)

    async def cancelled(self, item: tuple[int, int]) -> bool:
        one = asyncio.create_task(self.queue.produce(item))
        await turns(self.chance.randrange(3))
        one.cancel()
        await asyncio.wait({one})
        return not one.cancelled() and one.result()

    async def produce(self, producer: int) -> None:
        for number in range(300):
            item, dice = (producer, number), self.chance.random()
            if dice < 0.7:
                is_in = await self.queue.produce(item)
            elif dice < 0.8:
                is_in = self.queue.produce_nowait(item)
            elif dice < 0.9:
                is_in = await self.queue.produce_many([item]) == 1
            else:
                is_in = await self.cancelled(item)
            self.accepted[producer] += is_in
            if dice > 0.97:
                await asyncio.sleep(0.001)


@every_loop
@pytest.mark.parametrize("producers, room", [(1, 3), (2, 3), (3, 3), (8, 6)])
@pytest.mark.parametrize("seed", range(8))
async def test_all_that_come_meanwhile_keep_their_order(
    producers: int, room: int, seed: int
) -> None:
    """Behind quick and slow batches; half of the queues are opened to threads."""
    run = Produced(seed, room)
    async with run.queue:
        tasks = [asyncio.create_task(run.produce(each)) for each in range(producers)]
        await turns(run.chance.randrange(200))
        if seed % 2:
            SyncBatchQueue(run.queue)
        await asyncio.wait_for(asyncio.gather(*tasks), 60.0)
    stats = check_settled(run.queue)
    assert stats.handled == run.accepted.total() == len(run.handled)
    for producer in range(producers):
        own = [number for each, number in run.handled if each == producer]
        assert own == sorted(set(own))


# --- struck


MOST_POINTS = 3_000
OTHERS = (10, 11)


class Turns:
    """A queue whose producer gives way again and again, while others come."""

    def __init__(self) -> None:
        self.seen: Counter[int] = Counter()
        self.accepted: Counter[int] = Counter()
        config = BatchQueueConfig[int](buffer_size=2, consumer=self.seen.update)
        self.queue = BatchQueue("q", config)

    async def produce(self, item: int) -> None:
        try:
            self.accepted[item] += await self.queue.produce(item)
        except Struck as error:
            self.accepted[item] += getattr(error, "accepted", 0)

    async def feed(self) -> None:
        for item in range(10):
            await self.produce(item)
        others = [asyncio.create_task(self.produce(each)) for each in OTHERS]
        await self.produce(12)
        await asyncio.gather(*others)

    def check(self) -> None:
        assert self.seen == +self.accepted
        assert check_settled(self.queue).handled == self.seen.total()


def is_producing() -> bool:
    task = asyncio.current_task()
    return task is not None and not task.get_name().startswith("q: ")


def strike_at(at: int) -> bool:
    """Strike a producer at one of its points; returns whether there was one."""
    with contextlib.closing(VirtualTimeLoop()) as loop:
        run, struck = loop.run_until_complete, Turns()
        run(struck.queue.start())
        point = Interruption(at, strike, is_producing, at_entries=True)
        try:
            with point, contextlib.suppress(Struck):
                run(struck.feed())
            run(asyncio.sleep(20.0))
            later = [20, 21, 22, 23]
            assert run(asyncio.wait_for(struck.queue.produce_many(later), 50.0)) == 4
            struck.accepted.update(later)
            assert run(struck.queue.shutdown(100.0)) == []
            struck.check()
        except BaseException as error:
            if not (point.where or "").startswith(OUT_OF_REACH):
                error.add_note(f"struck at point {at}, {point.where}")
                raise
    if (point.where or "").startswith(OUT_OF_REACH):
        gc.collect()  # While nothing is logged: asyncio forgets the task.
    return point.has_acted


@pytest.mark.parametrize("part", range(7))
class TestStruck:
    pytestmark = SWEEP

    def test_it_is_in_once_or_not_at_all(self, part: int) -> None:
        struck = 0
        for at in range(part, MOST_POINTS, 7):
            if not strike_at(at):
                break
            struck += 1
        assert struck > 3
