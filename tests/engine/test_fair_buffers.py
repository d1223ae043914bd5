"""`fair_by`: each key has its own room, line, order, retries; and leaves nothing."""

import asyncio
import gc
import weakref
from typing import Any
from weakref import WeakValueDictionary

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    CostBalancer,
    DrainTaskPolicy,
    Offer,
    PartitionPolicy,
    PartitionSelector,
    Rebalancing,
    Retry,
    SyncBatchQueue,
    WhenFull,
    WouldDeadlock,
    fair_by,
)
from batchqueue_async._engine.partitions.fair_partition import FairPartition
from batchqueue_async._engine.partitions.key_buffer import KeyBuffer
from batchqueue_async._engine.stats import overview
from tests.engine.every_loop import every_loop
from tests.engine.failing_items import FailingItems, Item, assert_in_order
from tests.engine.until import turns, until
from tests.support.meddling import Once, before_each_line_of
from tests.support.oracle import QueueAccounts, check_accounts, check_settled

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])

MOST_LINES = 100
"""More than any of the functions here runs through."""

Selector = PartitionSelector[Any]

BY_KEY: PartitionSelector[Item] = fair_by(lambda item: item[0])


def of(key: str, count: int, first: int = 0) -> list[Item]:
    return [(key, n) for n in range(first, first + count)]


class Gate:
    """A consumer that is at work until it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.batches: list[list[Item]] = []
        self.calls = 0

    async def consume(self, batch: list[Item]) -> None:
        self.calls += 1
        await self.opened.wait()
        self.batches.append(batch)

    @property
    def items(self) -> list[Item]:
        return [item for batch in self.batches for item in batch]


async def stalled(
    gate: Gate,
    **declared: Any,  # noqa: ANN401 - any setting
) -> BatchQueue[Item]:
    """Return a queue whose handler is at work, on an item of nobody's."""
    declared.setdefault("selector", BY_KEY)
    config = BatchQueueConfig[Item](consumer=gate, **declared)
    queue = BatchQueue("fair", config)
    await queue.start()
    await queue.produce(("nobody", 0))
    await until(lambda: gate.calls)
    return queue


async def ended(queue: BatchQueue[Item], gate: Gate) -> QueueAccounts:
    gate.opened.set()
    await queue.close()
    return check_settled(queue)


class TestRoom:
    async def test_a_full_key_leaves_the_others_room(self) -> None:
        gate = Gate()
        queue = await stalled(gate, buffer_size=3, when_full=WhenFull.DROP_NEWEST)
        assert await queue.produce_many(of("flood", 10)) == 3
        assert not queue.produce_nowait(("flood", 11))
        assert queue.offer(("flood", 12)) is Offer.FULL
        assert await queue.produce_many(of("quiet", 3)) == 3
        stats = check_accounts(queue)
        assert (stats.waiting, stats.rejected) == (6, 9)
        assert queue.stats().rejected_closed == 0
        # That of the item in flight is there, too.
        assert queue.stats().capacity == 9
        await ended(queue, gate)
        assert queue.stats().capacity == 3

    async def test_what_is_displaced_is_of_the_same_key(self) -> None:
        gate = Gate()
        queue = await stalled(gate, buffer_size=3, when_full=WhenFull.DROP_OLDEST)
        await queue.produce_many([*of("quiet", 2), *of("flood", 10)])
        assert queue.offer(("flood", 10))
        stats = check_accounts(queue)
        assert (stats.waiting, stats.dropped) == (5, 8)
        assert (await ended(queue, gate)).dropped == 8
        assert sorted(gate.items[1:]) == [*of("flood", 3, 8), *of("quiet", 2)]

    async def test_nobody_stands_behind_the_floods_producers(self) -> None:
        gate = Gate()
        queue = await stalled(gate, buffer_size=2)
        floods = [
            asyncio.ensure_future(queue.produce(item)) for item in of("flood", 100)
        ]
        await turns()
        assert await queue.produce(("quiet", 0))
        assert sum(each.done() for each in floods) == 2
        assert (await ended(queue, gate)).handled == 2 + len(
            [each for each in floods if each.result()]
        )

    async def test_waiting_producers_of_a_key_are_served_in_order(self) -> None:
        gate = Gate()
        queue = await stalled(gate, buffer_size=2)
        calls = [
            asyncio.ensure_future(queue.produce((key, n)))
            for n in range(20)
            for key in "ab"
        ]
        await turns()
        assert not queue.produce_nowait(("a", 99)), "nobody is overtaken"
        gate.opened.set()
        assert all(await asyncio.gather(*calls))
        await ended(queue, gate)
        for key in "ab":
            assert [item for item in gate.items if item[0] == key] == of(key, 20)

    async def test_a_cancelled_producer_leaves_nothing(self) -> None:
        gate = Gate()
        queue = await stalled(gate, buffer_size=1)
        calls = [asyncio.ensure_future(queue.produce(item)) for item in of("a", 5)]
        await turns()
        for call in calls[1:4]:
            call.cancel()
        await turns()
        gate.opened.set()
        assert await calls[4]
        await ended(queue, gate)
        assert [item for item in gate.items if item[0] == "a"] == [("a", 0), ("a", 4)]

    async def test_a_mixed_chunk_waits_where_it_has_to(self) -> None:
        gate = Gate()
        queue = await stalled(gate, buffer_size=2)
        chunk = [("a", n) if n % 2 else ("b", n) for n in range(8)]
        call = asyncio.ensure_future(queue.produce_many(chunk))
        await turns()
        assert queue.stats().waiting == 4
        gate.opened.set()
        assert await call == 8
        assert (await ended(queue, gate)).handled == 9

    async def test_shutdown_wakes_every_keys_line(self) -> None:
        gate = Gate()
        queue = await stalled(gate, buffer_size=1)
        calls = [
            asyncio.ensure_future(queue.produce((key, n)))
            for n in range(2)
            for key in "abc"
        ]
        await turns()
        closing = asyncio.ensure_future(queue.shutdown(timeout=0))
        assert [await call for call in calls] == [True] * 3 + [False] * 3
        left = await closing
        assert sorted(left) == [("a", 0), ("b", 0), ("c", 0), ("nobody", 0)]
        assert not await queue.produce(("d", 0))
        assert check_settled(queue).rejected == 4


class TestAccounts:
    @pytest.mark.parametrize("when_full", WhenFull)
    async def test_what_came_in_is_counted_where_it_comes_in(
        self, when_full: WhenFull
    ) -> None:
        gate = Gate()
        queue = await stalled(gate, buffer_size=3, when_full=when_full, audit=True)
        calls = [queue.produce(item) for item in [*of("a", 9), *of("b", 2)]]
        accepting = asyncio.gather(*calls, queue.produce_many(of("c", 10)))
        await turns()
        assert check_accounts(queue).waiting == 8
        assert queue.stats().unaccounted == 0
        gate.opened.set()
        accepted = sum(await accepting)
        await queue.close()
        assert check_settled(queue).accepted == accepted + 1
        assert queue.stats().unaccounted == 0

    async def test_an_item_lost_in_a_buffer_shows(self) -> None:
        gate = Gate()
        queue = await stalled(gate, audit=True)
        await queue.produce_many([*of("a", 2), *of("b", 2)])
        # The planted fault.
        queue._parts.placement.partition_of(("a", 0)).items.pop()
        assert queue.stats().unaccounted == 1
        gate.opened.set()
        await queue.close()
        assert queue.stats().unaccounted == 1

    async def test_from_afar_its_fullness_is_that_of_its_keys(self) -> None:
        gate = Gate()
        queue = await stalled(gate, buffer_size=4)
        await queue.produce_many([*of("a", 3), *of("b", 3)])
        seen = overview(queue._parts, partitions=1)
        # The one of the item that is in flight has room, too.
        assert seen.stats.capacity == queue.stats().capacity == 12
        assert seen.used_fractions == [0.5]
        await ended(queue, gate)


class TestRetries:
    @virtual
    async def test_only_the_key_that_failed_is_held_up(self) -> None:
        sink = FailingItems({("bad", 0): 1}, retry_after=5.0)
        retry = Retry(attempts=2)
        config = BatchQueueConfig[Item](consumer=sink, selector=BY_KEY, retry=retry)
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([*of("bad", 1), *of("good", 1)])
            await turns()
            await queue.produce_many([*of("bad", 2, 1), *of("good", 2, 1)])
            await asyncio.sleep(1)
            assert sink.stored == of("good", 3)
            stats = check_accounts(queue)
            assert (stats.waiting, stats.in_flight) == (2, 1)
        assert sink.stored == [*of("good", 3), *of("bad", 3)]
        check_settled(queue)

    @virtual
    async def test_what_waits_behind_a_retry_does_not_keep_the_loop_busy(self) -> None:
        sink = FailingItems({("bad", 0): 1}, retry_after=5.0)
        retry = Retry(attempts=2)
        config = BatchQueueConfig[Item](consumer=sink, selector=BY_KEY, retry=retry)
        async with BatchQueue("q", config) as queue:
            await queue.produce(("bad", 0))
            await turns()
            await queue.produce(("bad", 1))
            await asyncio.sleep(1)
            assert queue.stats().drain_tasks[0].cycles <= 2
            # Virtual time would stand still in a loop that never sleeps.
            await queue.flush()
        assert sink.stored == of("bad", 2)


class TestFlush:
    async def test_it_covers_all_keys_and_only_what_came_before(self) -> None:
        gate = Gate()
        queue = await stalled(gate, selector=fair_by(lambda item: item[0], quantum=1))
        await queue.produce_many([*of("flood", 20), *of("quiet", 1)])
        flush = asyncio.ensure_future(queue.flush())
        await turns()
        # In each batch after it, and so ahead of the flood's last ones.
        await queue.produce_many(of("later", 100))
        gate.opened.set()
        await flush
        assert set(of("flood", 20)) < set(gate.items)
        assert len([item for item in gate.items if item[0] == "later"]) < 100
        await ended(queue, gate)

    async def test_a_cancelled_one_leaves_no_watch(self) -> None:
        gate = Gate()
        queue = await stalled(gate)
        await queue.produce_many(of("a", 3))
        with pytest.raises(TimeoutError):
            await queue.flush(timeout=0.001)
        gate.opened.set()
        await queue.flush()
        assert queue._parts.partitions[0].accounts.watchers is None
        await ended(queue, gate)


@virtual
class TestLinger:
    async def test_the_oldest_of_any_key_counts(self) -> None:
        gate = Gate()
        gate.opened.set()
        config = BatchQueueConfig[Item](
            consumer=gate, selector=BY_KEY, linger=1.0, max_batch=10
        )
        async with BatchQueue("q", config) as queue:
            start = asyncio.get_running_loop().time()
            await queue.produce(("a", 0))
            await asyncio.sleep(0.6)
            await queue.produce(("b", 0))
            await until(lambda: gate.batches)
            assert asyncio.get_running_loop().time() - start == pytest.approx(1, 0.01)
            assert gate.items == [("a", 0), ("b", 0)]

    async def test_each_batch_lingers_for_its_own_oldest_item(self) -> None:
        gate = Gate()
        gate.opened.set()
        config = BatchQueueConfig[Item](
            consumer=gate, selector=BY_KEY, linger=1.0, max_batch=10
        )
        async with BatchQueue("q", config) as queue:
            for batches in (0, 1):
                await queue.produce_many([("a", 0), ("b", 0)])
                await asyncio.sleep(0.99)
                assert len(gate.batches) == batches
                await asyncio.sleep(0.02)
                assert len(gate.batches) == batches + 1

    async def test_a_flush_ends_it(self) -> None:
        gate = Gate()
        gate.opened.set()
        config = BatchQueueConfig[Item](consumer=gate, selector=BY_KEY, linger=100.0)
        start = asyncio.get_running_loop().time()
        async with BatchQueue("q", config) as queue:
            await queue.produce(("a", 0))
            await queue.flush()
            assert asyncio.get_running_loop().time() - start < 1

    async def test_what_is_full_does_not_linger(self) -> None:
        gate = Gate()
        gate.opened.set()
        config = BatchQueueConfig[Item](
            consumer=gate, selector=BY_KEY, linger=100.0, max_batch=10
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([*of("a", 5), *of("b", 5)])
            await turns()
            assert len(gate.items) == 10


def buffers() -> int:
    return sum(isinstance(each, KeyBuffer) for each in gc.get_objects())


class TestNothingStays:
    @pytest.mark.slow
    async def test_keys_that_came_and_went_leave_nothing(self) -> None:
        """Without a garbage collection: nothing is in a cycle."""
        gc.collect()
        gc.disable()
        try:
            count = 0

            def store(batch: list[int]) -> None:
                nonlocal count
                count += len(batch)

            config = BatchQueueConfig[int](consumer=store, selector=fair_by(str))
            async with BatchQueue("q", config) as queue:
                for first in range(0, 50_000, 5_000):
                    await queue.produce_many(range(first, first + 5_000))
                await queue.flush()
                assert count == 50_000
                assert buffers() == 0
                (partition,) = queue._parts.partitions
                assert len(partition.items) == 0
                assert partition.maxsize == config.buffer_size
        finally:
            gc.enable()

    @virtual
    async def test_nor_do_those_that_failed_waited_or_were_refused(self) -> None:
        class Key:
            pass

        keys = [Key() for _ in range(4)]
        known = [weakref.ref(key) for key in keys]
        blocked = asyncio.Event()

        async def fail(batch: list[Key]) -> None:
            await blocked.wait()
            message = "a test's"
            raise ValueError(message)

        config = BatchQueueConfig[Key](
            consumer=fail,
            selector=fair_by(lambda key: key),
            buffer_size=1,
            retry=Retry(attempts=2, wait_initial=0.1),
            on_error=lambda _, __: None,
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce(keys[0])
            await turns()
            await queue.produce(keys[0])
            waiting = asyncio.ensure_future(queue.produce(keys[0]))
            await queue.produce(keys[1])
            await turns()
            assert not queue.produce_nowait(keys[1])
            waiting.cancel()
            blocked.set()
            await asyncio.sleep(1)
            assert check_settled(queue).failed == 3
            del waiting
            keys.clear()
            # `flush` would tell what failed, and so it is known until then.
            queue._log.clear()
            # An error and the frames of its traceback know each other.
            gc.collect()
            assert [ref() for ref in known] == [None] * 4
            assert buffers() == 0


def as_list(item: str) -> Any:  # noqa: ANN401 - a mistake that types would tell
    return [item]


class TestWhatChangesForAll:
    """Buffers that there are already go along."""

    async def test_a_bridge_that_is_opened_later(self) -> None:
        gate = Gate()
        queue = await stalled(gate)
        buffer = queue._parts.placement.partition_of(("a", 0))
        bridge = SyncBatchQueue(queue)
        assert buffer.is_open_to_threads
        assert buffer.guard is queue._parts.partitions[0].guard
        assert await asyncio.to_thread(bridge.produce, ("a", 0))
        await ended(queue, gate)

    async def test_a_linger_that_a_later_handler_brings(self) -> None:
        config = BatchQueueConfig[Item](selector=BY_KEY)
        async with BatchQueue("q", config) as queue:
            buffer = queue._parts.placement.partition_of(("a", 0))
            queue.add_handler(tuple, lambda _: None, linger=3.0, max_batch=7)
            assert (buffer.ages.linger, buffer.due_size) == (3.0, 7)
            assert buffer.ages.clock is not None

    async def test_a_fork(self) -> None:
        """What the child does: the parent's producers must find nothing there."""
        gate = Gate()
        queue = await stalled(gate, buffer_size=2)
        calls = [asyncio.ensure_future(queue.produce(item)) for item in of("a", 3)]
        await turns()
        (partition,) = queue._parts.partitions
        buffer = queue._parts.placement.partition_of(("a", 0))
        partition.abandon()
        assert buffer.is_closed
        assert not buffer.items
        assert len(partition.items) == 0
        assert partition.accepted == 0
        assert not partition.is_open_to_threads
        calls[2].cancel()
        gate.opened.set()
        await queue.shutdown(0)


class TestMisuse:
    async def run(self, selector: Selector, error: type[Exception]) -> str:
        item: Any = "abc"
        config = BatchQueueConfig[Any](consumer=lambda _: None, selector=selector)
        async with BatchQueue("q", config) as queue:
            for produce in (queue.produce, queue.produce_many):
                with pytest.raises(error) as caught:
                    await produce([item] if produce == queue.produce_many else item)
            for produce_now in (queue.produce_nowait, queue.offer):
                with pytest.raises(error):
                    produce_now(item)
            assert check_settled(queue).accepted == 0
        return str(caught.value)

    async def test_a_key_that_cannot_be_hashed(self) -> None:
        message = await self.run(fair_by(as_list), TypeError)
        assert (
            message == "fair_by(as_list, quantum=100) needs hashable keys, got a list"
        )

    async def test_a_key_function_that_raises(self) -> None:
        await self.run(fair_by(lambda item: item.tenant), AttributeError)

    async def test_a_weight_function_that_raises(self) -> None:
        weights: dict[str, float] = {}
        await self.run(fair_by(str, weight=weights.__getitem__), KeyError)

    @pytest.mark.parametrize(
        "weight, error",
        [
            (0, ValueError),
            (-1, ValueError),
            (float("nan"), ValueError),
            (float("inf"), ValueError),
            (1e7, ValueError),
            (True, TypeError),
            (None, TypeError),
        ],
    )
    async def test_a_weight_that_is_none(
        self,
        weight: Any,  # noqa: ANN401 - what is no weight, too
        error: type[Exception],
    ) -> None:
        message = await self.run(fair_by(str, weight=lambda _: weight), error)
        rule = "a number from 1e-06 to 1000000 for every key"
        assert message == f"weight must be {rule}, got {weight!r}"

    async def test_every_nan_is_one_key(self) -> None:
        gate = Gate()
        selector: Selector = fair_by(lambda item: (item[0], float("nan")))
        queue = await stalled(gate, selector=selector)
        await queue.produce_many(of("nan", 5))
        assert buffers() == 2
        await ended(queue, gate)

    async def test_a_weight_function_that_produces(self) -> None:
        """In the middle of the making of the key's buffer; it gets only one."""
        got: list[str] = []
        asked: list[str] = []

        def weight(key: str) -> float:
            asked.append(key)
            if len(asked) < 3:
                assert queue.offer(key)
            return 1.0

        config = BatchQueueConfig[str](
            consumer=got.extend, selector=fair_by(str, weight=weight)
        )
        async with BatchQueue("q", config) as queue:
            assert await queue.produce("a")
            assert buffers() == 1
        assert got == ["a"] * 3

    async def test_a_handler_that_waits_for_room_of_its_own_queue(self) -> None:
        refused: list[WouldDeadlock] = []
        others: list[Item] = []

        async def store(batch: list[Item]) -> None:
            if ("a", 0) in batch:
                await queue.produce(("b", 0))
                await queue.produce(("a", 1))
                try:
                    await queue.produce(("a", 2))
                except WouldDeadlock as error:
                    refused.append(error)
            others.extend(batch)

        config = BatchQueueConfig[Item](consumer=store, selector=BY_KEY, buffer_size=1)
        async with BatchQueue("q", config) as queue:
            await queue.produce(("a", 0))
            await queue.flush()
        assert len(refused) == 1
        assert sorted(others) == [("a", 0), ("a", 1), ("b", 0)]

    async def test_a_partition_is_not_given_to_who_waits_for_room_in_it(self) -> None:
        """The wait is for a key's buffer; whoever makes room takes the partition."""
        let_go = asyncio.Event()

        async def store(batch: list[int]) -> None:
            if 1 in batch:
                await let_go.wait()
            if 0 in batch:
                for _ in range(2):
                    await queue.produce(3)

        config = BatchQueueConfig[int](
            consumer=store,
            selector=fair_by(lambda item: item),
            buffer_size=1,
            partitions=PartitionPolicy.fixed(2),
            drain_tasks=DrainTaskPolicy.fixed(2),
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
            await turns()
            await queue.produce(0)
            parts = queue._parts
            await until(lambda: not parts.detector.may_own(0, parts.partitions[1]))
            assert parts.detector.may_own(1, parts.partitions[1])
            assert parts.detector.may_own(0, parts.partitions[0])
            let_go.set()
            await queue.flush()
        assert check_settled(queue).handled == 4

    async def test_a_buffer_that_changes_is_a_change_of_its_partition(self) -> None:
        """After Ctrl-C a thread asks that, to know which of its locks are its own."""
        gate = Gate()
        queue = await stalled(gate)
        buffer = queue._parts.placement.partition_of(("a", 0))
        (partition,) = queue._parts.partitions
        for is_changing in (True, False):
            buffer.is_changing = is_changing
            assert partition.is_changing == is_changing
        await ended(queue, gate)


@virtual
async def test_a_balancer_knows_what_handlers_spent_on_a_partitions_keys() -> None:
    config = BatchQueueConfig[int](
        consumer=lambda _: asyncio.sleep(1),
        selector=fair_by(lambda item: item),
        partitions=PartitionPolicy.fixed(2),
        drain_tasks=DrainTaskPolicy.fixed(2),
        rebalancing=Rebalancing(CostBalancer(), interval=100),
    )
    async with BatchQueue("q", config) as queue:
        for item in (0, 2, 4):
            await queue.produce(item)
            await queue.flush()
        loads = [each.load for each in queue.stats().drain_tasks]
    assert loads == [pytest.approx(3, 0.01), 0]


@virtual
async def test_keys_stay_in_order_while_their_partitions_move() -> None:
    sink = FailingItems({("k3", 5): 1, ("k7", 90): 2})
    config = BatchQueueConfig[Item](
        consumer=sink,
        selector=BY_KEY,
        max_batch=16,
        partitions=PartitionPolicy.fixed(8),
        drain_tasks=DrainTaskPolicy.fixed(3),
        rebalancing=Rebalancing(interval=0.01),
        retry=Retry(attempts=4, wait_initial=0.02),
    )
    async with BatchQueue("q", config) as queue:

        async def send(key: int) -> None:
            for n in range(200):
                await queue.produce((f"k{key}", n))
                await asyncio.sleep(0.0005 if key % 3 else 0.005)

        await asyncio.gather(*map(send, range(12)))
        moved = queue.stats().last_round
    assert moved is not None
    assert check_settled(queue).handled == 2400
    assert_in_order(sink.stored)


async def test_a_retry_that_ends_wakes_whoever_owns_the_partition_by_then() -> None:
    """What waits behind it goes on."""
    sink = FailingItems({("a", 0): 1})
    config = BatchQueueConfig[Item](
        consumer=sink,
        selector=BY_KEY,
        partitions=PartitionPolicy.fixed(2),
        drain_tasks=DrainTaskPolicy.fixed(2),
        retry=Retry(attempts=2, wait_initial=0.02),
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce(("a", 0))
        await until(lambda: queue.stats().retried)
        await queue.produce(("a", 1))
        await turns()
        index = hash("a") % 2
        ownership = queue._parts.ownership
        ownership.grant(index, 1 - ownership.last_owner(index))
        await asyncio.wait_for(queue.flush(), 20)
    assert sink.stored == of("a", 2)


@virtual
async def test_who_waits_is_told_of_all_keys_together() -> None:
    blocked = asyncio.Event()

    async def wait(_: list[str]) -> None:
        await blocked.wait()

    config = BatchQueueConfig[str](
        consumer=wait, selector=fair_by(lambda key: key), buffer_size=1
    )
    async with BatchQueue("q", config) as queue:
        assert queue.stats().oldest_age == 0.0
        await queue.produce("first")
        await turns()
        await queue.produce("a")
        await asyncio.sleep(2)
        await queue.produce("b")
        waiting = [asyncio.ensure_future(queue.produce(key)) for key in "abb"]
        await asyncio.sleep(1)
        for stats in (queue.stats(), queue.stats().partitions[0]):
            assert stats.waiting_producers == 3
            assert stats.oldest_age == pytest.approx(3, abs=0.1)
        blocked.set()
        await asyncio.gather(*waiting)
    assert queue.stats().waiting_producers == 0
    assert queue.stats().oldest_age == 0.0


@virtual
async def test_an_item_that_comes_as_its_key_gets_a_buffer_is_counted() -> None:
    """A1: a signal handler, or a `__del__`, offers the key's first item, too."""
    for at in range(MOST_LINES):
        gate = Gate()
        queue = await stalled(gate)
        meanwhile: list[Offer] = []
        meddler = Once(at, lambda: meanwhile.append(queue.offer(("a", 2))))  # noqa: B023
        makes = FairPartition.buffer_of, WeakValueDictionary.setdefault
        refers = weakref.KeyedRef.__new__, weakref.KeyedRef.__init__
        with before_each_line_of(*makes, *refers, act=meddler):
            assert queue.produce_nowait(("a", 1))
        taken = meanwhile.count(Offer.ACCEPTED)
        stats = check_accounts(queue)
        assert (stats.accepted, stats.waiting) == (2 + taken, 1 + taken)
        await ended(queue, gate)
        assert len(gate.items) == 2 + taken
        if not meddler.has_acted:
            return
    pytest.fail("it never came to an end")
