"""What many of a thing cost: counted in steps, and compared for n and 4 n of them.

Four times as many may cost a little over four times as much; what is quadratic costs
sixteen times as much.
"""

import asyncio
import functools
import gc
import random
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import ref

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    Retry,
)
from batchqueue_async._engine.draining.linger_and_nap import Nap
from batchqueue_async._engine.partitions.accounts import Accounts
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.routing import Lightest
from batchqueue_async._engine.partitions.wait_for_room import ServedWaiter
from batchqueue_async._engine.partitions.waiting_line import (
    LoopWaiter,
    Waiter,
    WaitingLine,
)
from benchmarks.opcodes import Instructions
from tests.engine.until import turns
from tests.support.comparisons import CountsComparisons
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

LINEAR = 5.0
"""Between 4 and 16: what four times as many may cost."""


@pytest.fixture
def whole_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries wait for as long as they may: n and 4 n of them are tried as often."""
    monkeypatch.setattr(random, "random", lambda: 0.99)


async def growth(steps: Callable[[int], Coroutine[Any, Any, int]], n: int) -> float:
    """How many times as many steps 4 n of them take."""
    return await steps(4 * n) / await steps(n)


class Compared(CountsComparisons, Waiter):
    """A producer in a line that counts how often it is compared."""

    def wake(self) -> None:
        """It looks at its slots all the time."""


def in_line(count: int, wants: int = 1) -> tuple[WaitingLine, list[Compared]]:
    line, waiters = WaitingLine(), [Compared(wants) for _ in range(count)]
    for each in waiters:
        line.join(each)
    return line, waiters


@pytest.mark.parametrize("order", ["oldest first", "newest first", "at random"])
def test_who_leaves_the_line_is_not_searched_for(order: str) -> None:
    Compared.comparisons = 0
    line, waiters = in_line(500)
    line.reserve(200)
    leaving = list(waiters)
    if order == "newest first":
        leaving.reverse()
    elif order == "at random":
        random.Random(1).shuffle(leaving)
    for each in leaving:
        line.leave(each)
        line.leave(each)
        line.reserve(200 - line.reserved)
        assert line.reserved == min(200, len(line))
        granted = [waiter.granted for waiter in line]
        assert granted == sorted(granted, reverse=True), "first come, first served"
    assert Compared.comparisons == 0
    assert line.reserved == len(line) == 0
    assert line.unserved is None


def test_a_slot_of_who_leaves_goes_to_the_first_that_lacks_one() -> None:
    line, (first, second, third, fourth) = in_line(4, wants=2)
    line.reserve(5)
    assert [each.granted for each in line] == [2, 2, 1, 0]
    line.leave(second)
    line.reserve(5 - line.reserved)
    assert [each.granted for each in (first, third, fourth)] == [2, 2, 1]
    line.leave(fourth)
    line.join(late := Compared(2))
    line.reserve(5 - line.reserved)
    assert (late.granted, list(line)) == (1, [first, third, late])


@pytest.mark.parametrize("order", ["oldest first", "newest first"])
async def test_nor_are_others_looked_at_where_an_item_is_taken_back(order: str) -> None:
    """As where all requests of a service are cancelled as their items are placed."""

    async def steps(count: int) -> int:
        loop, partition = asyncio.get_running_loop(), Partition[int](0, count, count)
        partition.open()
        assert partition.offer(range(count)) == count
        waiters = [ServedWaiter(loop, (item,), partition) for item in range(count)]
        for each in waiters:
            partition.wait_in_line(each, each.chunk)
        partition.take(None)
        assert len(partition.items) == count
        with (instructions := Instructions()).counted():
            for each in waiters if order == "oldest first" else reversed(waiters):
                each.on_cancelled()
        assert partition.items == []
        assert partition.pausing is None
        return sum(instructions.by_line().values())

    assert await growth(steps, 200) < LINEAR


async def test_producers_that_are_cancelled_newest_first_are_not_searched_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    comparisons = 0

    def compare(one: object, other: object) -> bool:
        nonlocal comparisons
        comparisons += 1
        return one is other

    monkeypatch.setattr(LoopWaiter, "__eq__", compare)
    handler = RecordingHandler[int](gate=asyncio.Event())
    async with BatchQueue("q", BatchQueueConfig[int](buffer_size=1)) as queue:
        queue.add_handler(int, handler)
        assert await queue.produce(0)
        await handler.entered()
        assert await queue.produce(1)
        waiting = [asyncio.create_task(queue.produce(2)) for _ in range(100)]
        await turns(2)
        for each in reversed(waiting):
            each.cancel()
        await turns(3)
        assert all(each.cancelled() for each in waiting)
        assert handler.gate is not None
        handler.gate.set()
    assert check_settled(queue).handled == 2
    assert comparisons == 0


async def test_slots_are_given_to_a_long_line_without_a_walk_from_its_head() -> None:
    async def steps(count: int) -> int:
        line, waiters = in_line(count)
        counts = Instructions()
        with counts.counted():
            for _ in range(count):
                line.reserve(1)
        assert all(each.granted for each in waiters)
        return sum(counts.by_line().values())

    assert await growth(steps, 50) < LINEAR


async def test_a_flush_asks_each_drain_task_once_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many partitions it waits for, and whether it is cancelled or not."""
    gate, notices = asyncio.Event(), 0
    expect = Nap.expect

    def counted(self: Nap, *, is_due: bool) -> None:
        nonlocal notices
        notices += 1
        expect(self, is_due=is_due)

    async def handle(_: list[Any]) -> None:
        await gate.wait()

    types = [type(f"T{number}", (), {}) for number in range(64)]
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(64), drain_tasks=DrainTaskPolicy.fixed(2)
    )
    async with BatchQueue("q", config) as queue:
        for each in types:
            queue.add_handler(each, handle)
            assert await queue.produce(each())
        await turns()
        monkeypatch.setattr(Nap, "expect", counted)
        flushes = [asyncio.create_task(queue.flush()) for _ in range(50)]
        await turns(2)
        assert notices == 2 * 50
        for flush in flushes[::2]:
            flush.cancel()
        await turns(2)
        watched = [each.accounts.watchers for each in queue._parts.partitions]
        assert [len(each or ()) for each in watched] == [25] * 64
        gate.set()
        await asyncio.gather(*flushes[1::2])
        assert all(each.cancelled() for each in flushes[::2])
        assert not any(each.accounts.is_watched for each in queue._parts.partitions)


class Told:
    def __init__(self, number: int, log: list[int]) -> None:
        self.number, self.log = number, log

    def reached(self) -> None:
        self.log.append(self.number)


async def test_who_watches_is_told_and_forgotten_without_a_search() -> None:
    async def steps(count: int) -> int:
        accounts, told, counts = Accounts(), list[int](), Instructions()
        watchers = [Told(number, told) for number in range(count)]
        accounts.take(count)
        accounts.note_groups(dict.fromkeys(range(count), 1))
        with counts.counted():
            for watcher in watchers:
                assert accounts.watch(watcher.number + 1, watcher)
            for watcher in watchers[1::2]:
                accounts.unwatch(watcher)
                accounts.unwatch(watcher)
            for first in range(count):
                accounts.settle("handled", 1, first)
                accounts.tell_watchers()
                assert told == list(range(0, first + 1, 2))[-len(told) :]
        assert told == list(range(0, count, 2))
        assert not accounts.is_watched
        return sum(counts.by_line().values())

    assert await growth(steps, 50) < LINEAR


def test_the_ranks_of_partitions_stay_few() -> None:
    lightest = Lightest()
    lightest.grow(10)
    for number in range(5_000):
        lightest.book(number % 7, 0)
        lightest.book(number % 7, (number % 2) * 2 - 1)
        assert len(lightest._ranks) <= 1.5 * 10 + 16
    assert lightest.types[lightest.find()] == min(lightest.types)
    # As after an interrupt in the middle of a change.
    lightest._ranks.clear()
    assert lightest.types[lightest.find()] == min(lightest.types)


async def test_statistics_of_many_partitions_cost_little_for_each() -> None:
    count, counts = 400, Instructions()
    config = BatchQueueConfig[Any](partitions=PartitionPolicy.fixed(count))
    queue = BatchQueue("q", config)
    queue.stats()
    with counts.counted():
        stats = queue.stats()
    assert [each.index for each in stats.partitions] == list(range(count))
    # It was 430, and C functions that looked fields up by name came on top of it.
    assert sum(counts.by_line().values()) / count < 200


@pytest.mark.usefixtures("whole_waits")
async def test_batches_that_were_taken_with_one_that_fails_are_not_compared() -> None:
    """There are thousands where one handler has a `max_batch` and another has none."""

    async def steps(count: int) -> int:
        handler, counts = RecordingHandler[int](), Instructions()
        is_down = True

        async def consume(batch: list[int]) -> None:
            if is_down:
                raise OSError
            await handler.consume(batch)

        retry = Retry(attempts=100, wait_initial=1.0, wait_max=1.0)
        config = BatchQueueConfig[Any](retry=retry)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, consume, max_batch=1)
            queue.add_handler(str, lambda _: None)
            with counts.counted():
                assert await queue.produce_many(range(count)) == count
                await asyncio.sleep(5.0)
                is_down = False
                await queue.flush()
        assert handler.batches == [[number] for number in range(count)]
        return sum(counts.by_line().values())

    assert await growth(steps, 50) < LINEAR


@pytest.mark.usefixtures("whole_waits")
async def test_batches_that_wait_for_a_retry_cost_others_nothing() -> None:
    async def steps(count: int) -> int:
        async def fail(_: list[int]) -> None:
            raise OSError

        handler, counts = RecordingHandler[str](), Instructions()
        retry = Retry(attempts=2, wait_initial=60.0, wait_max=60.0)
        config = BatchQueueConfig[Any](
            retry=retry, partitions=PartitionPolicy.fixed(2), on_error=lambda *_: None
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, fail, max_batch=1)
            queue.add_handler(str, handler)
            assert await queue.produce_many(range(count)) == count
            assert queue.partition_of(1) != queue.partition_of("")
            await asyncio.sleep(1.0)
            with counts.counted():
                for number in range(10):
                    assert await queue.produce(str(number))
                    await asyncio.sleep(1.0)
            assert len(handler.items) == 10
            await queue.shutdown(0.0)
        return sum(counts.by_line().values())

    assert await growth(steps, 50) < 1.5


@pytest.mark.slow  # Others like it are quicker.
async def test_handlers_that_fail_are_not_all_looked_at_when_one_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each has a due time of its own: of a thousand they took all of a processor."""
    monkeypatch.setattr(random, "random", random.Random(1).random)

    async def steps(count: int) -> int:
        async def fail(_: list[Any]) -> None:
            raise OSError

        counts = Instructions()
        types = [type(f"Kind{number}", (), {}) for number in range(count)]
        retry = Retry(attempts=4, wait_initial=0.05, wait_max=0.05)
        config = BatchQueueConfig[Any](retry=retry, on_error=lambda *_: None)
        async with BatchQueue("q", config) as queue:
            for kind in types:
                # One handler for each: none waits behind another one's retry.
                queue.add_handler(kind, functools.partial(fail))
            with counts.counted():
                assert await queue.produce_many([kind() for kind in types]) == count
                with pytest.raises(DeliveryError):
                    await queue.flush()
            assert queue.stats().failed == count
        return sum(counts.by_line().values())

    assert await growth(steps, 80) < LINEAR


class Hooked(RecordingHandler[Any]):
    tick_every = 1000.0

    def on_tick(self) -> None:
        """Hardly ever called."""


@pytest.mark.parametrize("partitions", [1, 16])
async def test_hooks_that_are_not_due_are_not_looked_at_in_each_cycle(
    partitions: int,
) -> None:
    """With 400 handlers that have an `on_idle` they took all of a processor."""

    async def steps(count: int) -> int:
        counts = Instructions()
        types = [type(f"Kind{number}", (), {}) for number in range(count)]
        config = BatchQueueConfig[Any](
            idle=IdleBackoff(shortest=0.001, longest=1000.0),
            partitions=PartitionPolicy.fixed(partitions),
        )
        async with BatchQueue("q", config) as queue:
            handlers = [Hooked() for _ in types]
            for kind, handler in zip(types, handlers, strict=True):
                queue.add_handler(kind, handler)
            queue.add_handler(int, lambda _: None)
            await asyncio.sleep(100.0)
            told = sum(each.idle_calls for each in handlers)
            with counts.counted():
                for number in range(50):
                    assert await queue.produce(number)
                    await asyncio.sleep(0.002)
            assert sum(each.idle_calls for each in handlers) == told
        return sum(counts.by_line().values())

    assert await growth(steps, 100) < 1.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "partitions", [PartitionPolicy.fixed(1), PartitionPolicy.adaptive()]
)
@pytest.mark.parametrize("change", ["removed", "replaced", "other limit"])
async def test_a_handler_with_terms_of_its_own_asks_no_others(
    partitions: PartitionPolicy, change: str
) -> None:
    async def steps(count: int) -> int:
        types = [type(f"T{number}", (), {}) for number in range(count)]
        config = BatchQueueConfig[Any](partitions=partitions, linger=60)
        async with BatchQueue("q", config) as queue:
            for each in types:
                queue.add_handler(each, RecordingHandler(), linger=30, max_batch="auto")
            terms, handlers = queue._parts.batch_terms, queue._parts.handlers
            counts = Instructions()
            with counts.counted():
                for each in types[::2]:
                    if change == "removed":
                        queue.remove_handler(each)
                    elif change == "replaced":
                        queue.add_handler(each, RecordingHandler(), linger=10)
                    else:
                        registration = handlers.of_exactly(each)
                        assert registration is not None
                        registration.max_batch = 7
                        terms._limit_changed(registration)
        return sum(counts.by_line().values())

    assert await growth(steps, 60) < LINEAR


@pytest.mark.slow
async def test_drain_tasks_that_end_one_by_one_ask_no_others() -> None:
    async def steps(count: int) -> int:
        async def handle(batch: list[int]) -> None:
            await asyncio.sleep(batch[0] / 10)

        counts = Instructions()
        config = BatchQueueConfig[Any](
            consumer=handle,
            drain_tasks=DrainTaskPolicy.fixed(count),
            partitions=PartitionPolicy.fixed(count),
            selector=lambda item, partitions: item % partitions,
        )
        queue = BatchQueue("q", config)
        await queue.start()
        for number in range(count):
            assert await queue.produce(number)
        with counts.counted():
            assert await queue.shutdown() == []
        return sum(counts.by_line().values())

    assert await growth(steps, 50) < LINEAR


@pytest.mark.slow  # Others like it are quicker.
async def test_partitions_that_linger_are_not_all_looked_at_for_each() -> None:
    """Each lingers until a time of its own: thousands of them took a processor."""
    linger = 0.4

    async def steps(count: int) -> int:
        counts, loop, order = (
            Instructions(),
            asyncio.get_running_loop(),
            random.Random(1),
        )
        # How long the oldest item of each take has waited.
        waits: dict[tuple[int, float], float] = {}

        class Item:
            def __init__(self) -> None:
                self.came = loop.time()

        def consume(batch: list[Item]) -> None:
            take = queue.partition_of(batch[0]), loop.time()
            waits[take] = max(waits.get(take, 0.0), loop.time() - batch[0].came)

        types = [type(f"Kind{number}", (Item,), {}) for number in range(count)]
        config = BatchQueueConfig[Any](
            partitions=PartitionPolicy.adaptive(), linger=linger
        )
        async with BatchQueue("q", config) as queue:
            for kind in types:
                queue.add_handler(kind, consume)
            with counts.counted():
                for _ in range(2 * count):
                    assert await queue.produce(order.choice(types)())
                    await asyncio.sleep(1.0 / count)
            found = waits.values()
            assert linger * 7 / 8 - 1e-3 <= min(found) <= max(found) <= linger + 1e-3
        return sum(counts.by_line().values())

    assert await growth(steps, 100) < LINEAR


async def test_none_of_many_lingers_for_less_than_seven_eighths() -> None:
    loop, waits, linger = asyncio.get_running_loop(), list[float](), 0.05
    came: dict[type, float] = {}
    types = [type(f"Kind{number}", (), {}) for number in range(400)]
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(len(types)), linger=linger
    )
    async with BatchQueue("q", config) as queue:
        for kind in types:
            queue.add_handler(
                kind, lambda batch: waits.append(loop.time() - came[type(batch[0])])
            )
        for kind in types:
            came[kind] = loop.time()
            assert await queue.produce(kind())
            await asyncio.sleep(1e-4)
        await asyncio.sleep(2 * linger)
        assert len(waits) == len(types)
    assert min(waits) >= linger * 7 / 8 - 1e-3
    assert max(waits) <= linger + 1e-3


async def test_an_arrival_that_lingers_asks_no_other_partitions() -> None:
    async def steps(count: int) -> int:
        counts = Instructions()
        config = BatchQueueConfig[int](
            consumer=RecordingHandler[int](),
            partitions=PartitionPolicy.fixed(count),
            selector=lambda item, partitions: item % partitions,
            linger=5.0,
        )
        async with BatchQueue("q", config) as queue:
            await turns()
            with counts.counted():
                for number in range(count):
                    assert await queue.produce(number)
                    # The drain task naps again, and is told of the next one.
                    await turns(2)
        return sum(counts.by_line().values())

    assert await growth(steps, 50) < LINEAR


async def test_a_look_at_retries_that_is_cut_short_is_done_again() -> None:
    """A signal handler raises after it, so what stays was not kept."""

    async def fail(_: list[int]) -> None:
        raise OSError

    retry = Retry(attempts=2, wait_initial=60.0, wait_max=60.0)
    config = BatchQueueConfig[int](retry=retry, max_batch=1)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, fail)
        await queue.produce_many([1, 2])
        await asyncio.sleep(1.0)
        retries = queue._parts.tasks.drain_tasks[0].in_flight.retries
        now = asyncio.get_running_loop().time()
        expected = retries.dues(now)
        due, staying = retries.due_at(now + 100.0)
        assert (len(due), staying) == (1, [])
        assert retries.dues(now) == expected != []
        await queue.shutdown(0.0)


class Transient:
    """A handler of which there are many, one after the other."""

    def consume(self, batch: list[int]) -> None:
        """Take it."""


async def test_handlers_that_came_and_went_are_forgotten() -> None:
    """One that is at work, or may come back, has to find its lock."""
    known: list[ref[Transient]] = []
    async with BatchQueue("q", BatchQueueConfig[Any]()) as queue:
        for _ in range(200):
            handler = Transient()
            known.append(ref(handler))
            queue.add_handler(int, handler)
            del handler
            assert queue.remove_handler(int)
        gc.collect()
        assert sum(each() is not None for each in known) < 50
