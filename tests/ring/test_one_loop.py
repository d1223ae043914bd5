"""All that runs on a ring runs on one loop; what begins on another one is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from batchqueue_async.ring import RingBuffer, RingError, SyncRing, WorkerPool
from tests.ring.events import Event, Recorder, fill, small

pytestmark = pytest.mark.real_time
CAPACITY = 4


async def refused_elsewhere(begin: Callable[[], Awaitable[object]]) -> None:
    """Have it begin on a loop of another thread, which refuses it."""

    async def begun() -> None:
        with pytest.raises(RingError, match=r"^handlers must run on their ring's own"):
            await begin()

    await asyncio.to_thread(lambda: asyncio.run(begun()))


async def test_a_ring_starts_on_the_loop_of_its_sync_ring() -> None:
    """That loop published, woke the other's consumers, and tried again for ever."""
    recorder = Recorder()
    disruptor = small()
    disruptor.handle_events_with(recorder)
    sync_ring = SyncRing(disruptor.ring)
    await refused_elsewhere(disruptor.start)
    async with disruptor:
        published = sync_ring.publish_events
        assert await asyncio.to_thread(published, fill, range(9), timeout=20) == 9
    assert recorder.values == [*range(9)]


async def test_two_pools_of_a_ring_are_on_one_loop() -> None:
    first, second, third = Recorder(), Recorder(), Recorder()
    ring = RingBuffer(Event, CAPACITY)
    async with WorkerPool(ring, first):
        await refused_elsewhere(WorkerPool(ring, second).start)
        # What was refused holds nobody back.
        await ring.publish_events(fill, range(3 * CAPACITY))
        async with WorkerPool(ring, third):
            await ring.publish_events(fill, range(CAPACITY))
    assert first.values == [*range(3 * CAPACITY), *range(CAPACITY)]
    assert (second.values, third.values) == ([], [*range(CAPACITY)])


async def test_handlers_are_added_on_the_loop_of_the_others() -> None:
    first, second = Recorder(), Recorder()
    disruptor = small()
    group = disruptor.handle_events_with(first)

    async def add() -> None:
        group.then(second)

    async with disruptor as ring:
        await refused_elsewhere(add)
        with pytest.raises(RuntimeError, match="needs a running asyncio event loop"):
            await asyncio.to_thread(group.then, second)
        await ring.publish_events(fill, range(3 * ring.capacity))
    assert first.values == [*range(3 * ring.capacity)]
    assert second.values == []


def test_a_ring_without_consumers_goes_on_with_the_next_loop() -> None:
    ring, recorder = RingBuffer(Event, CAPACITY), Recorder()

    async def one_run() -> None:
        async with WorkerPool(ring, recorder):
            await ring.publish_events(fill, range(2 * CAPACITY))

    asyncio.run(one_run())
    asyncio.run(one_run())
    assert recorder.values == [*range(2 * CAPACITY)] * 2


def test_threads_come_in_by_the_next_loop_too() -> None:
    """Also where its `SyncRing` is made before its consumers start there."""
    ring, recorder = RingBuffer(Event, CAPACITY), Recorder()

    async def one_run() -> None:
        async with WorkerPool(ring, recorder):
            await ring.publish_events(fill, range(CAPACITY))

    async def with_a_thread() -> None:
        sync_ring = SyncRing(ring)
        async with WorkerPool(ring, recorder):
            published = sync_ring.publish_events
            assert await asyncio.to_thread(published, fill, [7], timeout=20) == 1

    asyncio.run(one_run())
    asyncio.run(with_a_thread())
    assert recorder.values == [*range(CAPACITY), 7]
