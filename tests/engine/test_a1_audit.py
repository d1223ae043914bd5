"""A1 as a measurement: with `audit`, what came in is counted where it comes in."""

import asyncio
import logging

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    Offer,
    PartitionPolicy,
    SyncBatchQueue,
    WhenFull,
)
from batchqueue_async._engine.partitions.audited_partition import audited as kind_of
from batchqueue_async._engine.partitions.partition import Partition
from tests.support.meddling import Once, before_each_line_of
from tests.support.oracle import check_accounts, check_settled

SIZE = 7


async def slow(_: list[int]) -> None:
    await asyncio.sleep(0.01)


def audited(when_full: WhenFull, partitions: int = 3) -> BatchQueueConfig[int]:
    return BatchQueueConfig[int](
        audit=True,
        consumer=slow,
        buffer_size=SIZE,
        when_full=when_full,
        partitions=PartitionPolicy.fixed(partitions),
        selector=lambda item, count: item % count,
    )


@pytest.mark.parametrize("when_full", WhenFull)
@pytest.mark.parametrize("partitions", [1, 3])
async def test_each_way_in_is_counted(when_full: WhenFull, partitions: int) -> None:
    async with BatchQueue("q", audited(when_full, partitions)) as queue:
        accepted = sum(await asyncio.gather(*map(queue.produce, range(50))))
        accepted += await queue.produce_many(range(40))
        accepted += sum(queue.produce_nowait(item) for item in range(20))
        accepted += sum(queue.offer(item) is Offer.ACCEPTED for item in range(20))
        stats = check_accounts(queue)
        assert stats.accepted == accepted
    assert check_settled(queue).accepted == accepted
    assert queue.stats().unaccounted == 0


@pytest.mark.parametrize("at", range(14))
async def test_those_in_between_too(at: int) -> None:
    """A tracer's or profiler's function may offer, as one that logs does."""
    offers: list[Offer] = []
    kind = kind_of(Partition)
    async with BatchQueue("q", audited(WhenFull.WAIT, 1)) as queue:
        once = Once(at, lambda: offers.append(queue.offer(99)))
        with before_each_line_of(kind._set_limits, Partition._set_limits, act=once):
            accepted = sum(queue.produce_nowait(item) for item in range(5))
    accepted += offers.count(Offer.ACCEPTED)
    assert check_settled(queue).accepted == accepted
    assert queue.stats().unaccounted == 0


@pytest.mark.real_time
@pytest.mark.parametrize("when_full", WhenFull)
async def test_those_of_threads_too(when_full: WhenFull) -> None:
    async with BatchQueue("q", audited(when_full)) as queue:
        bridge = SyncBatchQueue(queue)

        def produce() -> int:
            one_by_one = sum(bridge.produce(item, timeout=30) for item in range(60))
            return one_by_one + bridge.produce_many(range(60))

        accepted = sum(
            await asyncio.gather(*(asyncio.to_thread(produce) for _ in range(3)))
        )
    assert check_settled(queue).accepted == accepted
    assert queue.stats().unaccounted == 0


@pytest.mark.parametrize("when_full", WhenFull)
async def test_an_item_lost_in_the_buffer_shows(when_full: WhenFull) -> None:
    async with BatchQueue("q", audited(when_full)) as queue:
        for item in range(6):
            assert queue.produce_nowait(item)
        # The planted fault.
        queue._parts.partitions[1].items.pop()
        assert queue.stats().unaccounted == 1
        assert [each.unaccounted for each in queue.stats().partitions] == [0, 1, 0]
    assert queue.stats().unaccounted == 1
    assert queue.stats().accepted == 6
    assert queue.stats().handled == 5


async def test_without_audit_both_sides_miss_it() -> None:
    # That is why there is `audit`.
    async with BatchQueue("q", BatchQueueConfig(consumer=slow)) as queue:
        assert queue.produce_nowait(1)
        queue._parts.partitions[0].items.pop()
        assert queue.stats().accepted == queue.stats().unaccounted == 0


async def test_an_audited_queue_can_be_flushed_and_lingers() -> None:
    config = BatchQueueConfig[int](audit=True, consumer=slow, linger=60.0)
    loop = asyncio.get_running_loop()
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
        await queue.flush()
        assert loop.time() < 1
        assert queue.stats().handled == 1
        await queue.produce(2)
        await asyncio.sleep(59)
        assert queue.stats().waiting == 1
        await asyncio.sleep(2)
        assert queue.stats().handled == 2


def test_it_is_true_or_false() -> None:
    with pytest.raises(TypeError, match="audit must be a bool, got 1"):
        BatchQueueConfig(audit=1)  # type: ignore[arg-type]


async def test_a_manager_lists_its_queues_and_their_statistics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    inside = asyncio.Event()

    async def wait(_: list[int]) -> None:
        inside.set()
        await asyncio.sleep(5)

    async with BatchQueueManager() as manager:
        first = await manager.create("first", BatchQueueConfig[int](consumer=wait))
        await manager.create("second")
        names = [queue.name for queue in manager.queues]
        assert names == ["first", "second"]
        await first.produce(1)
        await inside.wait()
        ending = asyncio.create_task(manager.shutdown("first"))
        await asyncio.sleep(0)
        assert list(manager.stats()) == ["first", "second"]
        assert manager.stats()["first"].in_flight == 1
        await ending
        assert list(manager.stats()) == ["second"]
    assert manager.stats() == {}
