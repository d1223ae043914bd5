"""B1, C1 and D2: a chunk may begin a batch, where nothing stands before it."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    IdleBackoff,
    PartitionPolicy,
    WhenFull,
)
from batchqueue_async._engine.intake import Intake
from batchqueue_async._engine.partitions.chunk_by_partition import Sorter
from batchqueue_async._engine.partitions.partition import Partition
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until
from tests.support.meddling import Once, before_each_line_of
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

MIXED: tuple[object, ...] = (1, "1", b"1")
TYPES: tuple[type, ...] = (int, str, bytes)


def receiving(queue: BatchQueue[object]) -> dict[type, list[object]]:
    """Return what the handlers of three types get from now on."""
    received: dict[type, list[object]] = {each: [] for each in TYPES}
    for item_type, items in received.items():
        queue.add_handler(item_type, items.extend)
    return received


def numbered(*numbers: int) -> list[object]:
    """Return a chunk that is sorted: so many items of each type."""
    return [f(n) for n in numbers for f in (int, str, lambda n: b"%d" % n)]


def begun(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run it up to its first wait, as a finalizer or a signal handler could."""
    with contextlib.suppress(StopIteration):
        coroutine.send(None)
    coroutine.close()


@pytest.mark.parametrize("max_batch", [2, 15, 40])
async def test_it_comes_behind_what_waits(max_batch: int) -> None:
    """Also where it makes a batch due, so that it is no matter of appending."""
    config = BatchQueueConfig[object](
        buffer_size=40, partitions=PartitionPolicy.fixed(3), max_batch=max_batch
    )
    async with BatchQueue("q", config) as queue:
        received = receiving(queue)
        # The types are known from here on, and sorted.
        assert await queue.produce_many(numbered(*range(4))) == 12
        # No flush, after which the next batch takes the long way.
        await until(lambda: all(received.values()))
        for start in (4, 14, 24):
            chunk = numbered(*range(start, start + 10))
            assert await queue.produce_many(chunk) == 30
    assert received[int] == [*range(34)]
    assert received[str] == [str(n) for n in range(34)]
    check_settled(queue)


async def test_it_overtakes_no_producer_who_has_been_served_and_has_not_run() -> None:
    gate = asyncio.Event()
    config = BatchQueueConfig[object](
        buffer_size=2, partitions=PartitionPolicy.fixed(3)
    )
    received: list[int] = []

    async def consume(batch: list[int]) -> None:
        received.extend(batch)
        await gate.wait()

    async with BatchQueue("q", config) as queue:
        for item_type in (str, bytes):
            queue.add_handler(item_type, lambda _: None)
        queue.add_handler(int, consume)
        await queue.produce_many(numbered(0))
        await until(lambda: received)
        assert await queue.produce_many([1, 2]) == 2
        first = asyncio.create_task(queue.produce(3))
        await turns()
        gate.set()
        # Once what waited is taken, nobody has run yet who waits for its room.
        while queue.stats().waiting:  # noqa: ASYNC110  # turns, not events
            await asyncio.sleep(0)
        second = asyncio.create_task(queue.produce_many(numbered(5)))
        await asyncio.gather(first, second)
    assert received == [0, 1, 2, 3, 5]
    check_settled(queue)


async def test_with_linger_it_is_handled_when_it_has_lingered() -> None:
    config = BatchQueueConfig[object](
        partitions=PartitionPolicy.fixed(3), max_batch=50, linger=10.0
    )
    handler = RecordingHandler[object]()
    async with BatchQueue("q", config) as queue:
        queue.add_handler(object, handler)
        for start in (0.0, 100.0):
            await asyncio.sleep(max(0.0, start - asyncio.get_running_loop().time()))
            assert await queue.produce_many([1, 1.0, "1"]) == 3
        await asyncio.sleep(50.0)
    assert handler.times == pytest.approx([10.0, 110.0], abs=0.01)


@pytest.mark.parametrize("end", ["closes", "puts in"])
@pytest.mark.parametrize("chunk", [[2] * 3, numbered(2, 2, 2)], ids=["one", "three"])
async def test_what_a_signal_handler_does_in_the_middle_of_it_holds(
    end: str, chunk: list[object]
) -> None:
    """After a close nothing gets in; what it puts in is handled once, and counted."""
    for line in range(100):
        config = BatchQueueConfig[object](
            buffer_size=20, partitions=PartitionPolicy.fixed(3), max_batch=10
        )
        async with BatchQueue("q", config) as queue:
            received = receiving(queue)
            await queue.produce_many(numbered(0))
            # No flush, after which the next batch takes the long way.
            await until(lambda got=received: all(got.values()))  # type: ignore[misc]

            def act(queue: BatchQueue[object] = queue) -> None:
                if end == "closes":
                    begun(queue.shutdown(None))
                else:
                    begun(queue.produce_many(numbered(1)))

            meddler = Once(line, act)
            with before_each_line_of(
                Partition.accept_at_once, Intake._place_bins, act=meddler
            ):
                await queue.produce_many(chunk)
            if end == "closes" and meddler.has_acted:
                assert not any(map(queue.produce_nowait, MIXED))
        stats = check_settled(queue)
        assert stats.handled == sum(map(len, received.values()))
        for got, one in zip(received.values(), MIXED, strict=True):
            assert got.count(one) <= 1
        if not meddler.has_acted:
            return
    pytest.fail("it never came to an end")


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


async def test_the_item_that_makes_it_due_ends_the_nap_at_once() -> None:
    handler = RecordingHandler[int]()
    config = BatchQueueConfig[object](
        idle=IdleBackoff(1.0, 1000.0),
        buffer_size=100,
        max_batch=50,
        partitions=PartitionPolicy.fixed(3),
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        await queue.produce_many([0, 0])
        await until(lambda: handler.handled)
        await asyncio.sleep(0.1)
        assert await queue.produce_many([1] * 49) == 49
        await asyncio.sleep(0.1)
        assert handler.handled == [0, 0]
        assert await queue.produce(2)
        await turns()
        assert handler.batches[1:] == [[1] * 49 + [2]]


async def test_it_is_displaced_as_single_items_are() -> None:
    """Where the oldest go, too, the first chunk may become what waits."""
    config = BatchQueueConfig[object](
        buffer_size=4,
        partitions=PartitionPolicy.fixed(3),
        when_full=WhenFull.DROP_OLDEST,
    )
    async with BatchQueue("q", config) as queue:
        received = receiving(queue)
        await queue.produce_many(numbered(0))
        await until(lambda: all(received.values()))
        assert await queue.produce_many(numbered(1, 2)) == 6
        assert await queue.produce_many(numbered(3, 4, 5)) == 9
    assert received[int] == [0, 2, 3, 4, 5]
    assert check_settled(queue).dropped == 3


class Entered(contextlib.nullcontext[None]):
    """A guard that counts."""

    times = 0

    def __enter__(self) -> None:
        self.times += 1


@pytest.mark.parametrize(
    "accept",
    [lambda p: p.append(1), lambda p: p.accept_at_once([1]), lambda p: p.offer([1])],
    ids=["append", "accept_at_once", "offer"],
)
def test_where_threads_put_too_nothing_gets_in_without_the_guard(
    accept: Callable[[Partition[int]], object],
) -> None:
    partition, guard = Partition[int](0, buffer_size=4, due_size=4), Entered()
    partition.open()
    partition.open_to_threads(guard)
    before = guard.times
    assert not accept(partition) or guard.times > before


def test_a_chunk_is_begun_behind_what_waits_if_all_of_it_has_room() -> None:
    partition = Partition[int](0, buffer_size=4, due_size=2)
    partition.open()
    assert partition.accept_at_once([1])
    assert partition.accept_at_once((2, 3))
    assert not partition.accept_at_once((4, 5))
    assert partition.accept_at_once([4], is_given=True)
    assert not partition.accept_at_once((5,))
    assert (partition.items, partition.limit) == ([1, 2, 3, 4], 3)
    assert not partition.has_room


def test_a_partition_can_be_shown() -> None:
    partition = Partition[int](3, buffer_size=4, due_size=3)
    partition.offer([1, 2])
    assert str(partition) == "<Partition 3 open waiting=2>"
    partition.close()
    assert repr(partition).endswith(" 3 closed waiting=2>")
    assert repr(partition).startswith("<Partition at 0x")
