"""B1 and D2: a chunk's run may begin a batch only where nothing stands before it."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    IdleBackoff,
    PartitionPolicy,
)
from batchqueue_async._engine.intake import Intake
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.rolling_partition import RollingPartition
from batchqueue_async._engine.partitions.sorting import Sorter
from batchqueue_async._engine.partitions.waiting_line import Waiter
from batchqueue_async._threads.guard import Guard
from tests.engine.every_loop import every_loop
from tests.engine.until import until
from tests.support.meddling import Once, before_each_line_of
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler


class Watching:
    def reached(self) -> None:
        """Nobody asks."""


class Asleep(Waiter):
    """A producer that holds slots, and has not filled them yet."""

    def __init__(self) -> None:
        super().__init__(1)

    def wake(self) -> None:
        """Its step comes later."""


def wait_in_line(partition: Partition[int]) -> None:
    partition.offer(range(4))
    partition.wait_in_line(Asleep())
    partition.take(None)


def watch(partition: Partition[int]) -> None:
    partition.offer([1])
    partition.watch(Watching())
    partition.take(None)


def linger(partition: Partition[int]) -> None:
    partition.ages.clock = lambda: 0.0
    partition.open()


def be_changing(partition: Partition[int]) -> None:
    partition.is_changing = True


def nothing(_: Partition[int]) -> None:
    """Only the chunk is in the way."""


REASONS: dict[str, tuple[Callable[[Partition[int]], object], int]] = {
    "it is closed": (Partition.close, 1),
    "a change is under way": (be_changing, 1),
    "a producer waits": (wait_in_line, 1),
    "a flush waits": (watch, 1),
    "the oldest item's age counts": (linger, 1),
    "threads put, too": (lambda partition: partition.open_to_threads(Guard()), 1),
    "items wait": (lambda partition: partition.offer([1]), 1),
    "there is no room": (nothing, 5),
}


@pytest.mark.parametrize("reason", REASONS)
def test_it_does_not_begin_when(reason: str) -> None:
    get_in_the_way, count = REASONS[reason]
    partition = Partition[int](0, buffer_size=4, due_size=3)
    partition.open()
    get_in_the_way(partition)
    before = list(partition.items), partition.limit
    assert not partition.begin([0] * count)
    assert (list(partition.items), partition.limit) == before


class Chunk(list[int]):
    """Runs code where a signal handler may run, when it is measured or gone through."""

    def __init__(
        self,
        items: Sequence[int],
        measured: Callable[[], object] = int,
        gone_through: Callable[[], object] = int,
    ) -> None:
        super().__init__(items)
        self.measured = measured
        self.gone_through = gone_through

    def __len__(self) -> int:
        self.measured()
        return super().__len__()

    def __iter__(self) -> Iterator[int]:
        yield from super().__iter__()
        self.gone_through()


def test_what_a_signal_handler_puts_in_meanwhile_counts() -> None:
    partition = Partition[int](0, buffer_size=4, due_size=4)
    partition.open()
    chunk = Chunk([2] * 3, measured=lambda: partition.offer([1]))
    assert not partition.begin(chunk)
    assert partition.items == [1]


def test_a_close_by_a_signal_handler_meanwhile_stays() -> None:
    partition = Partition[int](0, buffer_size=4, due_size=4)
    partition.open()
    assert partition.begin(Chunk([2] * 2, gone_through=partition.close))
    assert partition.items == [2] * 2
    assert partition.limit == partition.guarded_limit == 0


def test_once_nobody_waits_in_line_a_batch_begins_again() -> None:
    partition = Partition[int](0, buffer_size=4, due_size=4)
    partition.open()
    waiter = Asleep()
    partition.wait_in_line(waiter)
    assert not partition.begin([1])
    partition.leave_line(waiter)
    assert partition.begin([1])


def test_once_nobody_watches_the_next_take_lets_a_batch_begin_again() -> None:
    partition = Partition[int](0, buffer_size=4, due_size=4)
    partition.open()
    watch(partition)
    partition.accounts.track(0)
    partition.accounts.settle("handled", 1, 0)
    assert partition.offer([2]) == 1
    assert partition.take(None) == [2]
    assert partition.begin([3])


@pytest.mark.parametrize("count", range(1, 5))
@pytest.mark.parametrize("is_given", [False, True])
def test_else_it_does_and_the_next_meet_the_same_edges_as_after_an_offer(
    *, count: int, is_given: bool
) -> None:
    """Some more, due, or full."""
    partition, by_offer = (
        Partition[int](0, buffer_size=4, due_size=3) for _ in range(2)
    )
    for each in (partition, by_offer):
        each.open()
    chunk = [1] * count
    assert partition.begin(chunk, is_given=is_given)
    assert by_offer.offer(chunk) == count
    assert partition.items == by_offer.items == chunk
    assert (partition.items is chunk) == is_given
    assert partition.limit == by_offer.limit
    assert partition.guarded_limit == by_offer.guarded_limit
    assert partition.is_due() == by_offer.is_due()


def test_a_partition_that_displaces_keeps_its_deque() -> None:
    partition = RollingPartition[int](0, 4, 4, on_drop=lambda _: None)
    partition.open()
    assert partition.begin([1, 2], is_given=True)
    assert partition.offer([3, 4, 5]) == 3
    assert partition.take(None) == [2, 3, 4, 5]


@every_loop
async def test_what_was_given_away_is_not_sorted_into_again() -> None:
    """Each chunk fills empty partitions, also those that two types share."""
    received: dict[type, list[object]] = {int: [], str: [], bytes: []}
    config = BatchQueueConfig[object](
        buffer_size=40, partitions=PartitionPolicy.fixed(2), max_batch=40
    )
    async with BatchQueue("q", config) as queue:
        for item_type, items in received.items():
            queue.add_handler(item_type, items.extend)
        for start in range(0, 100, 20):
            for number in range(start, start + 20, 10):
                numbers = range(number, number + 10)
                chunk = [f(n) for n in numbers for f in (int, str, lambda n: b"%d" % n)]
                assert await queue.produce_many(chunk) == 30
            await queue.flush()
    assert received[int] == [*range(100)]
    assert received[str] == [str(n) for n in range(100)]
    assert received[bytes] == [b"%d" % n for n in range(100)]
    check_settled(queue)


class Struck(BaseException):
    """What a signal handler may raise at any line, as Ctrl-C does."""


@pytest.mark.parametrize("at", range(60))
async def test_a_chunk_that_is_struck_midway_leaves_nothing_behind(at: int) -> None:
    """What is placed is handled once, and the next chunk as if nothing had been."""

    def strike() -> None:
        raise Struck

    received: dict[type, list[object]] = {int: [], str: [], bytes: []}
    config = BatchQueueConfig[object](
        buffer_size=100, partitions=PartitionPolicy.fixed(2)
    )
    async with BatchQueue("q", config) as queue:
        for item_type, items in received.items():
            queue.add_handler(item_type, items.extend)
        await queue.produce_many([0, "0", b"0"] * 5)
        await queue.flush()
        code = (Intake._place_bins, Sorter.renew)
        with (
            contextlib.suppress(Struck),
            before_each_line_of(*code, act=Once(at, strike)),
        ):
            await queue.produce_many([1, "1", b"1"] * 5)
        assert await queue.produce_many([2, "2", b"2"] * 5) == 15
    check_settled(queue)
    for kind, (zero, one, two) in {
        int: (0, 1, 2),
        str: ("0", "1", "2"),
        bytes: (b"0", b"1", b"2"),
    }.items():
        placed = received[kind].count(one)
        assert placed in (0, 5)
        assert received[kind] == [zero] * 5 + [one] * placed + [two] * 5


@pytest.mark.parametrize("due_at", range(3))
async def test_what_is_due_among_many_ends_the_nap_at_once(due_at: int) -> None:
    """A drain task that owns all of them is told once: by the one that is due."""
    types = (int, str, bytes)
    handlers = [RecordingHandler[object]() for _ in types]
    config = BatchQueueConfig[object](
        idle=IdleBackoff(1.0, 1000.0),
        buffer_size=100,
        max_batch=50,
        partitions=PartitionPolicy.fixed(3),
    )
    async with BatchQueue("q", config) as queue:
        for item_type, handler in zip(types, handlers, strict=True):
            queue.add_handler(item_type, handler)
        # Types are known, and a nap has just begun.
        await queue.produce_many([0, "", b""])
        await until(lambda: all(each.handled for each in handlers))
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        counts = [50 if number == due_at else 1 for number in range(3)]
        chunk = [f() for f, n in zip(types, counts, strict=True) for _ in range(n)]
        assert await queue.produce_many(chunk) == 52
        await asyncio.sleep(0.5)
        assert handlers[due_at].times[-1] == pytest.approx(began, abs=1e-3)


def test_a_partition_can_be_shown() -> None:
    partition = Partition[int](3, buffer_size=4, due_size=3)
    partition.offer([1, 2])
    assert str(partition) == "<Partition 3 open waiting=2>"
    partition.close()
    assert repr(partition).endswith(" 3 closed waiting=2>")
    assert repr(partition).startswith("<Partition at 0x")
