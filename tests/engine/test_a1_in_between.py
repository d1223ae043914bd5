"""A1, C1, D2, F5: a `__del__` or a thread comes in between, inside of one step.

What a signal handler may do is in `test_a1_anywhere.py`.
"""

import asyncio
from unittest.mock import Mock

import pytest

from batchqueue_async._engine.draining.batch import Grouping
from batchqueue_async._engine.draining.linger_and_nap import Gathering, Nap, Schedule
from batchqueue_async._engine.handlers.registration import Registration
from batchqueue_async._engine.handlers.registry import HandlerRegistry
from batchqueue_async._engine.partitions.ages import Ages
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.rolling_partition import RollingPartition
from batchqueue_async._engine.partitions.routing import placement_for
from batchqueue_async._engine.partitions.waiting_line import LoopWaiter, Waiter
from batchqueue_async._policies.selectors import by_type
from tests.engine.until import turns
from tests.support.meddling import Once, before_each_line_of

MOST_LINES = 100
"""More than any of the functions here runs through."""


def rolling(buffer_size: int, dropped: list[int]) -> RollingPartition[int]:
    partition = RollingPartition[int](0, buffer_size, buffer_size, dropped.extend)
    partition.open()
    return partition


async def consume(_: list[int]) -> None:
    """Handle nothing."""


def test_a_batch_keeps_the_position_that_it_was_taken_from() -> None:
    """Threads displace items as soon as the take lets them: F5 counts positions."""
    partition = rolling(4, [])
    partition.offer([0, 1])
    taken = partition.take(None)
    partition.offer(range(100, 110))
    handlers = HandlerRegistry(None)
    handlers.add(Registration(consume, item_type=int))
    placement = placement_for(by_type, [partition], handlers, grows=False)
    grouping = Grouping[int](handlers, placement)
    grouping.add(partition, taken)
    assert [batch.first for batch in grouping.batches(None)] == [0]


@pytest.mark.parametrize("most", [None, 3])
@pytest.mark.parametrize("waiting", [3, 5, 8])
def test_what_comes_during_a_take_is_taken_or_waits(
    most: int | None, waiting: int
) -> None:
    for at in range(MOST_LINES):
        dropped: list[int] = []
        partition = rolling(8, dropped)
        partition.offer(range(waiting))
        meddler = Once(at, lambda put=partition.offer: put([99]))  # type: ignore[misc]
        remove, take = RollingPartition._remove, Partition.take
        with before_each_line_of(remove, take, act=meddler):
            taken = partition.take(most)
        found = sorted([*taken, *partition.items, *dropped])
        assert found == [*range(waiting), *[99] * meddler.has_acted]
        assert partition.accounts.in_flight == len(taken)
        assert partition.accepted == len(found)
        if not meddler.has_acted:
            return
    pytest.fail("it never came to an end")


class InLine(Waiter):
    """A producer that waits, and somebody who puts in when it is woken."""

    def __init__(self, partition: Partition[int]) -> None:
        super().__init__(2)
        self._partition = partition

    def wake(self) -> None:
        if len(self._partition.items) < self._partition.limit:
            self._partition.items.append(99)


def test_nobody_gets_the_slot_of_who_joins_the_line_while_there_is_room() -> None:
    partition = Partition[int](0, buffer_size=5, due_size=5)
    partition.open()
    partition.offer([1, 2, 3])
    waiter = InLine(partition)
    partition.wait_in_line(waiter)
    assert partition.offer_in_turn(waiter, [4, 5]) == 2
    assert partition.items == [1, 2, 3, 4, 5]


async def test_a_wake_up_before_the_wait_counts_once() -> None:
    """A shutdown may begin after its producer's last look."""
    partition = Partition[int](0, buffer_size=1, due_size=1)
    waiter = LoopWaiter(asyncio.get_running_loop(), 1, partition)
    waiter.wake()
    assert waiter.fall_asleep().is_woken
    waiter.is_woken = False
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await waiter.fall_asleep()


def test_items_may_come_while_the_oldest_ones_age_is_looked_up() -> None:
    times = iter([None, 1.0, *(float(n) for n in range(2, MOST_LINES))])
    ages = Ages()
    ages.clock = lambda: next(times)
    ages.note(0)
    ages.note(1)
    with before_each_line_of(Ages.oldest, act=lambda: ages.note(2)):
        assert ages.oldest(0, 5.0) == 5.0


@pytest.mark.parametrize("at", range(4))
async def test_a_nap_may_be_ended_while_it_is_ended(at: int) -> None:
    loop = asyncio.get_running_loop()
    nap = Nap(loop, Mock(spec=Schedule), Gathering(1.0))

    async def sleep() -> float:
        return await nap.sleep(None)

    napping = asyncio.create_task(sleep())
    await turns()
    with before_each_line_of(Nap.wake, act=Once(at, nap.wake)):
        nap.wake()
    await napping
