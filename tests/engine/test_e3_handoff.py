"""E3: a handoff has two phases, and nothing is lost, doubled or reordered in it."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    IdleBackoff,
    PartitionPolicy,
    Retry,
    SyncBatchQueue,
    WouldDeadlock,
    by_key,
)
from batchqueue_async.testing import RecordingHandler
from tests.engine.every_loop import every_loop
from tests.engine.planned import (
    INTERVAL,
    TYPES,
    Planned,
    Shuffler,
    owners,
    rebalanced,
    register,
)
from tests.engine.until import turns, until
from tests.support.oracle import check_accounts, check_settled

Recording = RecordingHandler[Any]
fixed = PartitionPolicy.fixed
PATIENCE = 30.0


@dataclass
class Handoff:
    """One that waits for its old owner's cycle: partition 0 goes from 0 to 1."""

    queue: BatchQueue[Any]
    balancer: Planned
    moving: RecordingHandler[Any]
    staying: RecordingHandler[Any]
    gate: asyncio.Event


@asynccontextmanager
async def handoff(
    **settings: Any,  # noqa: ANN401  # of BatchQueueConfig
) -> AsyncIterator[Handoff]:
    """The old owner's handler has item 0 and stands at the gate.

    Leaving it opens the gate, and checks that nothing was lost, doubled or reordered.
    """
    gate = asyncio.Event()
    moving, staying = Recording(gate=gate), Recording()
    balancer = Planned([1, 1], on_demand=True)
    # Long beside what may hold this process up: it bounds how long a handoff takes.
    queue = rebalanced(balancer, interval=0.2, **settings)
    async with queue:
        register(queue, {int: moving, str: staying})
        assert await queue.produce(0)
        await moving.entered()
        await balancer.round(1)
        await turns()
        assert owners(queue)[:2] == [None, 1]
        try:
            yield Handoff(queue, balancer, moving, staying, gate)
        finally:
            gate.set()
    check_settled(queue)
    assert moving.max_concurrency <= 1
    assert moving.items == sorted(set(moving.items))


# --- the phases


@every_loop
async def test_items_wait_in_their_partition_until_the_new_owner_may_take() -> None:
    async with handoff() as it:
        for item in range(1, 6):
            assert await it.queue.produce(item)
        await turns()
        assert it.queue.stats().partitions[0].waiting == 5
        assert it.moving.items == [0]
        it.gate.set()
        await until(lambda: len(it.moving.items) == 6)
        assert owners(it.queue) == [1, 1]
        await until(lambda: it.queue.stats().drain_tasks[1].cycles == 1)
    assert it.moving.handled == [0, 1, 2, 3, 4, 5]


async def test_a_handoff_is_of_its_own_queue() -> None:
    async with handoff() as it, BatchQueue[int]("other") as other:
        assert owners(it.queue)[0] is None
        assert owners(other) == [0]


@every_loop
async def test_items_that_waited_before_the_handoff_are_handled_after_it() -> None:
    gate = asyncio.Event()
    handler = Recording(gate=gate)
    balancer = Planned([1, 1], on_demand=True)
    async with rebalanced(balancer, interval=0.1) as queue:
        register(queue, {int: handler, str: Recording()})
        assert await queue.produce(0)
        await handler.entered()
        assert await queue.produce_many([1, 2]) == 2
        await balancer.round(1)
        assert await queue.produce_many([3, 4]) == 2
        gate.set()
    assert handler.handled == [0, 1, 2, 3, 4]
    check_settled(queue)


@every_loop
async def test_waiting_producers_wait_on_through_a_handoff() -> None:
    """They keep their turn, and the new owner serves them."""
    async with handoff(buffer_size=2) as it:
        assert await it.queue.produce_many([1, 2]) == 2
        waiting = []
        for item in (3, 4, 5):
            waiting.append(asyncio.create_task(it.queue.produce(item)))
            await turns(2)
        assert not it.queue.produce_nowait(6)
        it.gate.set()
        assert await asyncio.gather(*waiting) == [True] * 3
        await until(lambda: len(it.moving.handled) == 6)
        assert owners(it.queue) == [1, 1]


@every_loop
async def test_a_producer_cancelled_in_a_handoff_leaves_nothing_behind() -> None:
    async with handoff(buffer_size=1) as it:
        assert await it.queue.produce(1)
        first = asyncio.create_task(it.queue.produce(2))
        second = asyncio.create_task(it.queue.produce(3))
        await turns()
        first.cancel()
        it.gate.set()
        assert await second
        await until(lambda: len(it.moving.handled) == 3)
    assert it.moving.handled == [0, 1, 3]


async def test_an_old_owner_that_naps_does_not_delay_the_handoff() -> None:
    """Its nap could last for ten hours; the handoff takes no time at all."""
    napping = Recording()
    balancer = Planned([1, 1], on_demand=True)
    loop = asyncio.get_running_loop()
    async with rebalanced(balancer, idle=IdleBackoff(36_000, 36_000)) as queue:
        register(queue, {int: napping, str: Recording()})
        await balancer.round(1)
        asked = loop.time()
        await turns()
        assert owners(queue) == [1, 1]
        assert loop.time() == asked


async def test_an_old_owner_without_work_hands_over_what_waits_for_company() -> None:
    """With linger it has items, and naps: the new owner goes on lingering."""
    balancer = Planned([1, 1], on_demand=True)
    handler = Recording()
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with rebalanced(balancer, linger=1.5 * INTERVAL) as queue:
        register(queue, {int: handler, str: Recording()})
        await asyncio.sleep(0.9 * INTERVAL)
        assert await queue.produce(1)
        await balancer.round(1)
        await turns()
        assert owners(queue) == [1, 1]
        assert handler.items == []
        await handler.entered()
        # As old as it may get, although its owner has changed.
        assert handler.times[0] - started == pytest.approx(2.4 * INTERVAL, abs=0.01)


async def test_all_revocations_of_a_round_are_awaited_together() -> None:
    """The round takes as long as the longest cycle, not as long as all of them."""
    handlers = {
        each: Recording(delay=delay)
        for each, delay in zip(TYPES, (0.2, 0.5, 0.3, 0.4), strict=True)
    }
    balancer = Planned([1, 2, 3, 0], on_demand=True)
    loop = asyncio.get_running_loop()
    queue = rebalanced(balancer, drain_tasks=4, partitions=fixed(4))
    async with queue:
        register(queue, handlers)
        await asyncio.sleep(0.99 * INTERVAL)
        assert await queue.produce_many([0, "one", b"two", 3.0]) == 4
        await balancer.round(1)
        asked = loop.time()
        await turns()
        assert owners(queue) == [None] * 4
        await until(lambda: None not in owners(queue))
        assert loop.time() - asked == pytest.approx(0.5, abs=0.02)
        assert owners(queue) == [1, 2, 3, 0]


@every_loop
async def test_the_old_owner_works_on_with_what_it_keeps() -> None:
    """Only the moving partition waits: the others of both drain tasks go on."""
    gate = asyncio.Event()
    slow, quick = Recording(), Recording()
    moving = Recording(gate=gate)
    balancer = Planned([1, 1, 0], on_demand=True)
    async with rebalanced(balancer, interval=0.1, partitions=fixed(3)) as queue:
        register(queue, {int: moving, str: quick, bytes: slow})
        assert await queue.produce(0)
        await moving.entered()
        await balancer.round(1)
        assert await queue.produce_many(["of the new owner", b"of the old owner"]) == 2
        await until(lambda: quick.items)
        gate.set()
        await until(lambda: slow.items)


# --- under saturation, with moves in every round


@every_loop
async def test_nothing_is_lost_doubled_or_reordered_under_constant_moves() -> None:
    """Every handler gets its numbers in order, and is never entered twice."""
    types: list[Any] = [type(f"Numbered{p}", (int,), {}) for p in range(8)]
    handlers = [Recording(delay=0.001 * (p % 4)) for p in range(8)]
    balancer = Shuffler()
    each = 80

    async def produce(item_type: Any) -> None:  # noqa: ANN401
        for item in range(each):
            assert await queue.produce(item_type(item))

    queue = rebalanced(
        balancer,
        drain_tasks=4,
        partitions=fixed(8),
        interval=0.003,
        buffer_size=3,
        max_batch=2,
    )
    async with queue:
        for item_type, handler in zip(types, handlers, strict=True):
            queue.add_handler(item_type, handler)
        async with asyncio.TaskGroup() as producing:
            for item_type in types:
                producing.create_task(produce(item_type))
        check_accounts(queue)
        assert balancer.rounds > 10
    for handler in handlers:
        assert handler.handled == list(range(each))
        assert handler.max_concurrency == 1
    check_settled(queue)


@every_loop
async def test_keys_keep_their_order_with_a_consumer_under_constant_moves() -> None:
    """The consumer is entered by several drain tasks, each key by one at a time."""
    balancer = Shuffler()
    received: dict[int, list[int]] = {key: [] for key in range(12)}
    inside: set[int] = set()

    async def consume(batch: list[tuple[int, int]]) -> None:
        keys = {key for key, _ in batch}
        assert not keys & inside
        inside.update(keys)
        await asyncio.sleep(0.001 * (1 + len(batch) % 3))
        for key, number in batch:
            received[key].append(number)
        inside.difference_update(keys)

    queue = rebalanced(
        balancer,
        drain_tasks=4,
        partitions=fixed(12),
        interval=0.003,
        buffer_size=4,
        selector=by_key(lambda item: item[0]),
        consumer=consume,
    )

    async def produce(key: int) -> None:
        for number in range(100):
            assert await queue.produce((key, number))

    async with queue:
        await asyncio.gather(*map(produce, received))
        assert balancer.rounds > 5
    assert received == {key: list(range(100)) for key in range(12)}
    assert check_settled(queue).failed == 0


@pytest.mark.real_time
async def test_threads_keep_their_order_under_constant_moves() -> None:
    """Per producer and type, from four threads at once."""
    balancer = Shuffler()
    handlers = {each: Recording(delay=0.0005) for each in TYPES[:2]}
    queue = rebalanced(balancer, interval=0.002, buffer_size=20)
    async with queue:
        register(queue, handlers)
        bridge = SyncBatchQueue(queue)

        def produce(thread: int) -> None:
            for number in range(500):
                assert bridge.produce(thread * 1000 + number, timeout=PATIENCE)
                assert bridge.produce(f"{thread}{number:03}", timeout=PATIENCE)

        await asyncio.gather(*(asyncio.to_thread(produce, n) for n in range(1, 5)))
        await queue.flush()
        assert balancer.rounds > 5
    for handler in handlers.values():
        assert handler.max_concurrency == 1
        received = [int(item) for item in handler.handled]
        for thread in range(1, 5):
            mine = [item for item in received if item // 1000 == thread]
            assert mine == [thread * 1000 + number for number in range(500)]


@every_loop
async def test_on_idle_meets_nothing_under_constant_moves() -> None:
    """Each drain task calls it for what it owns, and ownership changes all the time."""

    class Idling(RecordingHandler[Any]):
        async def on_idle(self) -> None:
            with self._inside("on_idle"):
                self.idle_calls += 1
                await asyncio.sleep(0.002)

    handlers = {each: Idling(delay=0.001) for each in TYPES}
    balancer = Shuffler()
    queue = rebalanced(
        balancer,
        drain_tasks=4,
        partitions=fixed(4),
        interval=0.01,
        idle=IdleBackoff(0.001, 0.002),
    )
    async with queue:
        register(queue, handlers)
        for _ in range(40):
            assert await queue.produce_many([0, "one", b"two", 3.0]) == 4
            await asyncio.sleep(0.004)
    for handler in handlers.values():
        assert handler.max_concurrency == 1
        assert handler.idle_calls > 1
        assert len(handler.handled) == 40


# --- in the middle: growth, handlers, flush, shutdown


@every_loop
async def test_growth_in_a_handoff_gives_every_partition_an_owner() -> None:
    """The original's D2: the moved partition stayed without one for good."""
    async with handoff(partitions=PartitionPolicy.adaptive()) as it:
        new = Recording()
        it.queue.add_handler(bytes, new)
        assert owners(it.queue) == [None, 1, 0]
        assert await it.queue.produce_many([1, "one", b"one"]) == 3
        it.gate.set()
        await it.queue.flush(timeout=PATIENCE)
        assert owners(it.queue) == [1, 1, 0]
        assert (it.staying.items, new.items) == (["one"], [b"one"])
    assert it.moving.handled == [0, 1]


@every_loop
async def test_growth_after_a_handoff_keeps_the_owners() -> None:
    """The original's D1: the moved partition was in nobody's list any more."""
    async with handoff(partitions=PartitionPolicy.adaptive()) as it:
        it.gate.set()
        await until(lambda: owners(it.queue) == [1, 1])
        handlers = {each: Recording() for each in TYPES[2:]}
        for item_type, handler in handlers.items():
            it.queue.add_handler(item_type, handler)
        assert owners(it.queue) == [1, 1, 0, 1]
        owned = [each.partitions for each in it.queue.stats().drain_tasks]
        assert owned == [(2,), (0, 1, 3)]
        assert await it.queue.produce_many([1, "one", b"two", 3.0]) == 4
        await it.queue.flush(timeout=PATIENCE)
        assert [len(each.handled) for each in handlers.values()] == [1, 1]
    assert it.moving.handled == [0, 1]


@every_loop
async def test_replacing_a_handler_in_a_handoff_closes_the_old_one_last() -> None:
    async with handoff() as it:
        successor = Recording()
        it.queue.add_handler(int, successor)
        assert await it.queue.produce_many([1, 2]) == 2
        await turns()
        assert it.moving.close_calls == 0
        it.gate.set()
        await it.queue.flush(timeout=PATIENCE)
        assert successor.handled == [1, 2]
        await until(lambda: it.moving.close_calls)
    assert it.moving.handled == [0]
    assert it.moving.calls == ["consume", "on_close"]


@every_loop
async def test_removing_a_handler_in_a_handoff_loses_no_item_from_the_account() -> None:
    async with handoff() as it:
        assert await it.queue.produce_many([1, 2]) == 2
        assert it.queue.remove_handler(int)
        it.gate.set()
        await until(lambda: it.queue.stats().unhandled == 2)
        await until(lambda: it.moving.close_calls)
        assert owners(it.queue) == [1, 1]
    assert it.moving.handled == [0]
    assert it.moving.calls == ["consume", "on_close"]


@every_loop
async def test_flush_in_a_handoff_waits_for_the_new_owner() -> None:
    async with handoff() as it:
        assert await it.queue.produce_many([1, 2]) == 2
        flushing = asyncio.create_task(it.queue.flush(timeout=PATIENCE))
        await turns()
        assert not flushing.done()
        it.gate.set()
        await flushing
        assert owners(it.queue) == [1, 1]
        assert it.moving.handled == [0, 1, 2]
        assert it.moving.flush_calls == 1


@every_loop
async def test_shutdown_in_a_handoff_has_everything_handled() -> None:
    async with handoff() as it:
        assert await it.queue.produce_many([1, 2, "one"]) == 3
        ending = asyncio.create_task(it.queue.shutdown())
        await turns()
        # The old owner has it back, and nobody is in its way.
        assert owners(it.queue) == [0, 1]
        it.gate.set()
        assert await ending == []
    assert it.moving.handled == [0, 1, 2]
    assert it.staying.handled == ["one"]


@every_loop
async def test_shutdown_at_the_end_of_a_handoff_has_everything_handled() -> None:
    """Begun when the old owner has let go, before the new one knows."""
    for count in range(12):
        async with handoff() as it:
            assert await it.queue.produce_many([1, 2]) == 2
            it.gate.set()
            await turns(count)
            assert await it.queue.shutdown() == []
            assert None not in owners(it.queue)
        assert it.moving.handled == [0, 1, 2]


@every_loop
async def test_the_deadline_in_a_handoff_returns_what_waits() -> None:
    async with handoff() as it:
        assert await it.queue.produce_many([1, 2]) == 2
        assert await it.queue.shutdown(timeout=0.01) == [0, 1, 2]
        stats = check_settled(it.queue)
        assert (stats.returned, stats.handled) == (3, 0)


@every_loop
async def test_a_handler_may_shut_its_queue_down_in_a_handoff() -> None:
    seen: list[int] = []

    async def consume(batch: list[int]) -> None:
        seen.extend(batch)
        if batch == [0]:
            await gate.wait()
            assert await queue.shutdown() == []

    gate = asyncio.Event()
    balancer = Planned([1, 1], on_demand=True)
    queue = rebalanced(balancer, interval=0.05)
    async with queue:
        register(queue, {int: consume, str: Recording()})
        assert await queue.produce(0)
        await balancer.round(1)
        assert await queue.produce_many([1, 2]) == 2
        gate.set()
    assert seen == [0, 1, 2]
    check_settled(queue)


@every_loop
async def test_an_idle_handler_in_a_handoff_is_called_by_nobody() -> None:
    """Then by the new owner, which wakes up for it although nothing came in."""
    idling = Recording()
    gate = asyncio.Event()
    slow = Recording(gate=gate)
    balancer = Planned([1, 1, 0], on_demand=True)
    queue = rebalanced(
        balancer,
        partitions=fixed(3),
        interval=0.1,
        idle=IdleBackoff(0.001, 0.002),
    )
    async with queue:
        # Partition 0 idles while its owner is busy with partition 2.
        register(queue, {int: idling, str: [].extend, bytes: slow})
        await until(lambda: idling.idle_calls)
        assert await queue.produce(b"slow")
        await balancer.round(1)
        before = idling.idle_calls
        await asyncio.sleep(0.02)
        assert idling.idle_calls == before
        gate.set()
        await until(lambda: owners(queue)[0] == 1)
        await until(lambda: idling.idle_calls > before + 2)
    assert idling.max_concurrency == 1


# --- a cycle that does not end


@every_loop
async def test_a_cycle_longer_than_an_interval_calls_its_moves_off() -> None:
    async with handoff() as it:
        assert await it.queue.produce_many([1, 2]) == 2
        await until(lambda: owners(it.queue) == [0, 1])
        last = it.queue.stats().last_round
        assert last is not None
        assert last.moved == 0
        it.gate.set()
        await it.queue.flush(timeout=PATIENCE)
        assert it.queue.stats().drain_tasks[1].cycles == 0, "the old owner took it"
    assert it.moving.handled == [0, 1, 2]


@every_loop
async def test_what_was_called_off_can_move_in_a_later_round() -> None:
    gate = asyncio.Event()
    handler = Recording(gate=gate)
    balancer = Planned([1, 1], [1, 1], [0, 1], [1, 1], on_demand=True)
    async with rebalanced(balancer, interval=0.05) as queue:
        register(queue, {int: handler, str: Recording()})
        assert await queue.produce(0)
        await balancer.round(2)
        assert await queue.produce(1)
        gate.set()
        await until(lambda: owners(queue) == [1, 1])
        await balancer.round(5)
        assert owners(queue) == [1, 1]
        assert await queue.produce(2)
    assert handler.handled == [0, 1, 2]
    check_settled(queue)


@every_loop
async def test_one_endless_cycle_calls_off_no_other_move() -> None:
    gate = asyncio.Event()
    stuck, free = Recording(gate=gate), Recording()
    balancer = Planned([2, 2, 2], on_demand=True)
    queue = rebalanced(balancer, drain_tasks=3, partitions=fixed(3), interval=0.05)
    async with queue:
        register(queue, {int: stuck, str: free, bytes: Recording()})
        assert await queue.produce(0)
        await stuck.entered()
        await balancer.round(1)
        await until(lambda: owners(queue) == [0, 2, 2])
        gate.set()


@every_loop
async def test_a_move_does_not_wait_for_another_moves_old_owner() -> None:
    """Up to an interval, by default ten seconds, in which nobody serves it."""
    gate = asyncio.Event()
    stuck, free = Recording(gate=gate), Recording()
    balancer = Planned([2, 2, 2], on_demand=True)
    queue = rebalanced(balancer, drain_tasks=3, partitions=fixed(3), interval=0.2)
    async with queue:
        register(queue, {int: stuck, str: free, bytes: Recording()})
        assert await queue.produce(0)
        await stuck.entered()
        await balancer.round(1)
        await turns()
        assert await queue.produce("one")
        await asyncio.sleep(0.02)
        try:
            assert free.items == ["one"]
        finally:
            gate.set()


# --- what is parked or cannot be stopped


@pytest.fixture
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 1.0)


@pytest.mark.usefixtures("no_jitter")
async def test_a_batch_that_waits_for_its_retry_holds_the_handoff() -> None:
    """Its items come first, so nobody may take those behind it."""
    attempts: list[tuple[list[int], int | None]] = []

    def consume(batch: list[int]) -> None:
        attempts.append((batch, owners(queue)[0]))
        if len(attempts) == 1:
            raise ValueError

    balancer = Planned([1, 1], on_demand=True)
    queue = rebalanced(balancer, retry=retry(2, wait=0.5))
    async with queue:
        register(queue, {int: consume, str: Recording()})
        await asyncio.sleep(0.8 * INTERVAL)
        assert await queue.produce(1)
        await balancer.round(1)
        assert await queue.produce(2)
        await asyncio.sleep(0.1)
        assert owners(queue) == [None, 1]
        await until(lambda: len(attempts) == 3)
    assert attempts == [([1], 0), ([1], None), ([2], 1)]
    check_settled(queue)


@pytest.mark.usefixtures("no_jitter")
async def test_a_retry_that_outlasts_the_interval_calls_the_handoff_off() -> None:
    attempts: list[tuple[list[int], int | None]] = []

    def consume(batch: list[int]) -> None:
        attempts.append((batch, owners(queue)[0]))
        if len(attempts) == 1:
            raise ValueError

    balancer = Planned([1, 1])
    queue = rebalanced(balancer, retry=retry(2, wait=3 * INTERVAL))
    async with queue:
        register(queue, {int: consume, str: Recording()})
        await asyncio.sleep(0.8 * INTERVAL)
        assert await queue.produce(1)
        await asyncio.sleep(1.5 * INTERVAL)
        assert owners(queue) == [0, 1]
        assert await queue.produce(2)
        await until(lambda: len(attempts) == 3)
    assert attempts == [([1], 0), ([1], 0), ([2], 0)]


@pytest.mark.usefixtures("no_jitter")
async def test_a_batch_that_fails_again_holds_the_handoff_on() -> None:
    seen: list[int | None] = []

    def consume(batch: list[int]) -> None:
        seen.append(owners(queue)[0])
        raise ValueError

    balancer = Planned([1, 1])
    queue = rebalanced(balancer, retry=retry(4, wait=0.3), on_error=lambda *_: None)
    async with queue:
        register(queue, {int: consume, str: Recording()})
        await asyncio.sleep(0.9 * INTERVAL)
        assert await queue.produce(1)
        await until(lambda: len(seen) == 4)
        await until(lambda: owners(queue) == [1, 1])
    assert seen == [0, None, None, None]


@pytest.mark.usefixtures("no_jitter")
async def test_a_batch_that_fails_first_in_a_handoff_holds_it_on() -> None:
    """It was not parked when the handoff began, and is when the cycle ends."""
    gate = asyncio.Event()
    seen: list[tuple[list[int], int | None]] = []

    async def consume(batch: list[int]) -> None:
        await gate.wait()
        seen.append((batch, owners(queue)[0]))
        if len(seen) == 1:
            raise ValueError

    balancer = Planned([1, 1], on_demand=True)
    queue = rebalanced(balancer, retry=retry(2, wait=0.5))
    async with queue:
        register(queue, {int: consume, str: Recording()})
        assert await queue.produce(1)
        await balancer.round(1)
        assert await queue.produce(2)
        gate.set()
        await until(lambda: len(seen) == 3)
    assert seen == [([1], None), ([1], None), ([2], 1)]
    check_settled(queue)


@pytest.mark.usefixtures("no_jitter")
async def test_the_halves_of_a_batch_hold_the_handoff() -> None:
    """One after the other, in the old owner's hands."""
    received: list[int] = []

    async def consume(batch: list[int]) -> None:
        await asyncio.sleep(0.01)
        if len(batch) == 4:
            raise ValueError
        received.extend(batch)

    balancer = Planned([1, 1], on_demand=True)
    queue = rebalanced(balancer, retry=retry(2, wait=0.5, split=True))
    async with queue:
        register(queue, {int: consume, str: Recording()})
        await asyncio.sleep(0.8 * INTERVAL)
        assert await queue.produce_many([1, 2, 3, 4]) == 4
        await balancer.round(1)
        assert await queue.produce_many([5, 6]) == 2
        await until(lambda: len(received) == 6)
    assert received == [1, 2, 3, 4, 5, 6]


def retry(attempts: int, *, wait: float, split: bool = False) -> Retry:
    return Retry(attempts, wait_initial=wait, wait_max=wait, split=split)


async def test_a_handler_that_cannot_be_stopped_holds_the_handoff() -> None:
    """It may be at work still, so nobody else may enter it."""
    gate = asyncio.Event()
    running = most = 0

    async def stubborn(batch: list[int]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        running -= 1

    balancer = Planned([1, 1], None, [1, 1], on_demand=True)
    queue = rebalanced(balancer, handler_timeout=0.1, on_error=lambda *_: None)
    async with queue:
        register(queue, {int: stubborn, str: Recording()})
        await asyncio.sleep(0.5 * INTERVAL)
        assert await queue.produce(0)
        await balancer.round(1)
        assert await queue.produce(1)
        await turns()
        assert owners(queue) == [None, 1]
        await asyncio.sleep(1.5 * INTERVAL)
        assert owners(queue) == [0, 1]
        gate.set()
        await balancer.round(4)
        assert owners(queue) == [1, 1]
    assert most == 1
    check_settled(queue)


# --- handlers that wait for what is being moved


@every_loop
async def test_a_partition_is_not_given_to_a_handler_that_waits_for_room_in_it() -> (
    None
):
    """It waits for the old owner, and could not take while it waits."""
    waits = asyncio.Event()
    done: list[bool] = []

    async def producing(batch: list[str]) -> None:
        waits.set()
        # Into the partition of drain task 0, which becomes its own.
        done.append(await queue.produce(3))

    gate = asyncio.Event()
    target = Recording(gate=gate)
    balancer = Planned([1, 1], on_demand=True)
    queue = rebalanced(balancer, interval=0.1, buffer_size=1)
    async with queue:
        register(queue, {int: target, str: producing})
        assert await queue.produce(1)
        await target.entered()
        assert await queue.produce(2)
        assert await queue.produce("go")
        await waits.wait()
        await balancer.round(1)
        await turns()
        assert owners(queue) == [None, 1]
        gate.set()
        await until(lambda: done)
        assert owners(queue) == [0, 1]
    assert done == [True]
    assert target.handled == [1, 2, 3]
    check_settled(queue)


@every_loop
async def test_an_old_owners_handler_is_refused_in_a_handoff_as_before_it() -> None:
    """C3: room in the partition that is moved comes only after this handler's end."""
    refused: list[bool] = []

    async def consume(batch: list[int]) -> None:
        if batch == [0]:
            await gate.wait()
            try:
                async with asyncio.timeout(PATIENCE):
                    await queue.produce(3)
            except WouldDeadlock:
                refused.append(True)

    gate = asyncio.Event()
    balancer = Planned([1, 1], on_demand=True)
    queue = rebalanced(balancer, interval=0.1, buffer_size=2)
    async with queue:
        register(queue, {int: consume, str: Recording()})
        assert await queue.produce(0)
        await turns()
        await balancer.round(1)
        assert await queue.produce_many([1, 2]) == 2
        assert owners(queue) == [None, 1]
        gate.set()
        await until(lambda: refused)


async def test_a_handler_that_waits_for_another_moving_partition_gets_room() -> None:
    """Its partition waits for it, and it waits for one that moves in the same round.

    Without the handoff there would be no wait: the other's old owner is free to take.
    """
    done: list[float] = []
    loop = asyncio.get_running_loop()

    async def producing(batch: list[int]) -> None:
        await gate.wait()
        started = loop.time()
        assert await queue.produce_many(["one", "two", "three"]) == 3
        done.append(loop.time() - started)

    gate = asyncio.Event()
    target = Recording()
    balancer = Planned([1, 2, 2], on_demand=True)
    queue = rebalanced(
        balancer, drain_tasks=3, partitions=fixed(3), interval=0.5, buffer_size=1
    )
    async with queue:
        register(queue, {int: producing, str: target})
        assert await queue.produce(0)
        await balancer.round(1)
        gate.set()
        await until(lambda: done)
    assert target.handled == ["one", "two", "three"]
    assert done[0] < 0.2


@every_loop
async def test_a_partition_is_not_given_to_a_handler_that_waits_for_it_in_flush() -> (
    None
):
    outcomes: list[str] = []

    async def flushing(batch: list[str]) -> None:
        try:
            await queue.flush(timeout=1.0)
        except TimeoutError:
            outcomes.append("TimeoutError")
        else:
            outcomes.append("flushed")

    gate = asyncio.Event()
    target = Recording(gate=gate)
    balancer = Planned([1, 1], on_demand=True)
    queue = rebalanced(balancer, interval=0.1)
    async with queue:
        register(queue, {int: target, str: flushing})
        assert await queue.produce(1)
        await target.entered()
        assert await queue.produce(2)
        assert await queue.produce("go")
        await balancer.round(1)
        await turns()
        gate.set()
        await until(lambda: outcomes)
    assert outcomes == ["flushed"]


@every_loop
async def test_a_handler_in_on_flush_is_not_entered_by_the_new_owner() -> None:
    """`on_flush` is outside of cycles, so the handoff doesn't wait for it."""
    gate = asyncio.Event()

    class Flushing(RecordingHandler[Any]):
        async def on_flush(self) -> None:
            with self._inside("on_flush"):
                self.flush_calls += 1
                await gate.wait()

    handler = Flushing()
    balancer = Planned([1, 1])
    queue = rebalanced(balancer, interval=0.05)
    async with queue:
        register(queue, {int: handler, str: Recording()})
        flushing = asyncio.create_task(queue.flush(timeout=PATIENCE))
        await until(lambda: handler.flush_calls)
        await until(lambda: owners(queue) == [1, 1])
        assert await queue.produce_many([1, 2]) == 2
        await asyncio.sleep(0.01)
        assert handler.items == []
        gate.set()
        await flushing
    assert handler.max_concurrency == 1
    assert handler.handled == [1, 2]
    check_settled(queue)


# --- every point in time


@every_loop
@pytest.mark.parametrize("ticks", range(0, 24, 2))
async def test_items_that_come_at_any_turn_of_a_handoff_are_handled(ticks: int) -> None:
    async with handoff() as it:
        it.gate.set()
        await turns(ticks)
        assert await it.queue.produce(1)
        await until(lambda: it.moving.handled == [0, 1])
        assert owners(it.queue) == [1, 1]


@every_loop
async def test_stats_add_up_at_every_turn_of_a_handoff() -> None:
    """A1 and E4: an owner, or None and in a handoff, and all items accounted for."""
    async with handoff() as it:
        for step in itertools.count(1):
            stats = check_accounts(it.queue)
            drain_tasks = it.queue.stats().drain_tasks
            owned = sorted(p for each in drain_tasks for p in each.partitions)
            is_moving = owners(it.queue)[0] is None
            assert owned == ([1] if is_moving else [0, 1])
            if step == 5:
                it.gate.set()
            if step > 5 and not is_moving and stats.in_flight == 0:
                break
            assert await it.queue.produce(step)
            await turns(1)
        assert step > 5
