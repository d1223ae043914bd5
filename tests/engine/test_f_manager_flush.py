"""A manager's flush goes through chains: the last created first, the end last."""

import asyncio
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DeliveryError,
    Merging,
    WouldDeadlock,
)
from tests.engine.every_loop import every_loop

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])


async def test_what_one_queue_feeds_into_the_next_is_flushed_too() -> None:
    """Through three stages, of which two hold back what they merged."""
    stored: list[int] = []

    def stage(then: BatchQueue[int]) -> BatchQueueConfig[int]:
        # One at a time: each pass on takes turns of the loop.
        consumer = Merging[int](
            key=lambda item: item % 10, merge=max, then=then, every=3600
        )
        return BatchQueueConfig[int](consumer=consumer, linger=60, max_batch=3)

    async with BatchQueueManager() as manager:
        storage = await manager.create(
            "storage", BatchQueueConfig[int](consumer=stored.extend, linger=60)
        )
        second = await manager.create("second", stage(storage))
        first = await manager.create("first", stage(second))
        await first.produce_many(range(50))
        await manager.flush(timeout=30)
        assert sorted(stored) == list(range(40, 50))
        await manager.flush()
    assert len(stored) == 10


async def test_all_are_flushed_before_failures_are_raised_together() -> None:
    stored: list[int] = []

    async def fail(_: list[int]) -> None:
        msg = "down"
        raise OSError(msg)

    async with BatchQueueManager() as manager:
        good = await manager.create("good", BatchQueueConfig(consumer=stored.extend))
        bad = BatchQueueConfig[int](consumer=fail, on_error=lambda *_: None)
        for name in ("bad", "worse"):
            queue = await manager.create(name, bad)
            await queue.produce_many(range(60))
        await good.produce(1)
        with pytest.raises(DeliveryError) as caught:
            await manager.flush()
        assert stored == [1]
        assert caught.value.queue_name == "worse, bad"
        assert caught.value.count == 120
        assert len(caught.value.failures) == 100
        await good.produce(2)
        await manager.flush()
        await bad_again(manager)


async def bad_again(manager: BatchQueueManager) -> None:
    queue: BatchQueue[Any] | None = manager.get("bad")
    assert queue is not None
    await queue.produce(1)
    with pytest.raises(DeliveryError) as caught:
        await manager.flush()
    assert (caught.value.queue_name, caught.value.count) == ("bad", 1)


@virtual
async def test_one_deadline_holds_for_all_and_failures_are_not_forgotten() -> None:
    async def slow(_: list[int]) -> None:
        await asyncio.sleep(2)

    async def fail(_: list[int]) -> None:
        await asyncio.sleep(2)
        msg = "down"
        raise OSError(msg)

    loop = asyncio.get_running_loop()
    async with BatchQueueManager() as manager:
        for name, consumer in {"slow": slow, "failing": fail}.items():
            config = BatchQueueConfig[int](
                consumer=consumer, max_batch=1, on_error=lambda *_: None
            )
            await (await manager.create(name, config)).produce_many([1, 2])
        # The first one takes 4 s, the other one is nearly done by then.
        queue = manager.get("slow")
        assert queue is not None
        await queue.produce(3)
        begun = loop.time()
        late = "queue 'slow' was not flushed within 5 s"
        with pytest.raises(TimeoutError, match=late) as caught:
            await manager.flush(timeout=5)
        assert loop.time() - begun == pytest.approx(5)
        assert isinstance(caught.value.__cause__, DeliveryError)
        assert caught.value.__cause__.count == 2
        with pytest.raises(ValueError, match="timeout must be"):
            await manager.flush(timeout=-1)


async def test_one_that_is_cancelled_leaves_the_failures_to_the_next() -> None:
    """By a time limit around it, or with its thread, which waits no longer."""
    gate = asyncio.Event()

    async def fail(_: list[int]) -> None:
        msg = "down"
        raise OSError(msg)

    async def wait(_: list[int]) -> None:
        await gate.wait()

    async with BatchQueueManager() as manager:
        slow = await manager.create("slow", BatchQueueConfig[int](consumer=wait))
        bad = BatchQueueConfig[int](consumer=fail, on_error=lambda *_: None)
        first = await manager.create("first", bad)
        await slow.produce(1)
        await first.produce(2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await manager.flush()
        gate.set()
        with pytest.raises(DeliveryError) as raised:
            await manager.flush()
        assert (raised.value.queue_name, raised.value.count) == ("first", 1)
        await manager.flush()


async def test_a_handler_gets_would_deadlock_instead_of_waiting_for_itself() -> None:
    errors: list[BaseException] = []

    async def flush_all(_: list[int]) -> None:
        try:
            # The front's handler waits for this one.
            await manager.flush(timeout=30)
        except WouldDeadlock as error:
            errors.append(error)

    async def wait_for_it(_: list[int]) -> None:
        try:
            await storage.flush()
        except WouldDeadlock as error:
            errors.append(error)

    async with BatchQueueManager() as manager:
        storage = await manager.create(
            "storage", BatchQueueConfig[int](consumer=flush_all)
        )
        front = await manager.create(
            "front", BatchQueueConfig[int](consumer=wait_for_it)
        )
        await front.produce(1)
        await storage.produce(1)
        await manager.flush()
    assert len(errors) == 1


async def test_of_nothing_it_returns_at_once() -> None:
    async with BatchQueueManager() as manager:
        await manager.flush(timeout=0)


@pytest.mark.parametrize("steps", range(12))
async def test_it_is_a_receipt_also_where_the_manager_closes_meanwhile(
    steps: int,
) -> None:
    """Begun after each step of a closing that goes from stage to stage."""
    stored: list[int] = []

    async def store(batch: list[int]) -> None:
        await asyncio.sleep(0.001)
        stored.extend(batch)

    def stage(then: BatchQueue[int]) -> BatchQueueConfig[int]:
        consumer = Merging[int](key=lambda item: item % 10, merge=max, then=then)
        return BatchQueueConfig[int](consumer=consumer, linger=60)

    async with BatchQueueManager() as manager:
        storage = await manager.create("storage", BatchQueueConfig(consumer=store))
        second = await manager.create("second", stage(storage))
        first = await manager.create("first", stage(second))
        await first.produce_many(range(50))
        closing = asyncio.create_task(manager.close())
        for _ in range(steps):
            await asyncio.sleep(0)
        await manager.flush(timeout=30)
        assert sorted(stored) == list(range(40, 50))
        await closing
