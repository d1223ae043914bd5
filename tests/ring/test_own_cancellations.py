"""A handler that cancels its own task, not its loop's end, gets what follows.

Before Python 3.13 a task group leaves its task's count of cancellations at one when a
task of the group fails.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from batchqueue_async.ring import RingBuffer, WaitStrategy, WorkerPool
from tests.ring.events import Event, Recorder, fill, small, turns


async def fails_in_a_group() -> None:
    async def fail() -> None:
        raise OSError

    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(asyncio.sleep(60))


def cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def swallows() -> None:
    cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(60)


async def leaves_it_to_come() -> None:
    cancel()


WAYS = [fails_in_a_group, swallows, leaves_it_to_come]


class Meddling(Recorder):
    def __init__(self, way: Callable[[], Awaitable[None]]) -> None:
        super().__init__("meddles")
        self._way = way

    async def on_event(self, event: Event, sequence: int, is_end: bool) -> None:
        self._record(event, sequence, is_end)
        await self._way()


@pytest.mark.parametrize("way", WAYS)
async def test_it_gets_the_next_batch(
    way: Callable[[], Awaitable[None]], wait: WaitStrategy
) -> None:
    disruptor = small(4, wait=wait)
    first, last = Meddling(way), Recorder()
    # In batches of one: what is left to come would come in the next call.
    disruptor.handle_events_with(first, max_batch=1).then(last)
    async with disruptor as ring:
        await ring.publish_events(fill, range(10))
        await turns()
        await ring.publish_event(fill, 10)
    assert first.values == last.values == [*range(11)]
    assert first.log == last.log == ["start", "shutdown"]


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_cancelled_afterwards_is_no_cancellation_of_the_consumer(
    way: Callable[[], Awaitable[None]],
) -> None:
    """Else a handler that raises it would end the consumer, and halt the ring."""
    handled, failed = [], []

    async def meddles(event: Event, sequence: int, end_of_batch: bool) -> None:
        if sequence == 0:
            await way()
        elif sequence == 1:
            raise asyncio.CancelledError
        handled.append(sequence)

    disruptor = small(4)
    disruptor.handle_events_with(meddles, max_batch=1)
    disruptor.handle_exceptions_with(lambda _, sequence, __: failed.append(sequence))
    async with disruptor as ring:
        await ring.publish_events(fill, range(3))
    assert (handled, failed) == ([0, 2], [1])


@pytest.mark.parametrize("way", WAYS)
async def test_a_worker_gets_the_next_event(way: Callable[[], Awaitable[None]]) -> None:
    ring = RingBuffer(Event, 4)
    workers = [Meddling(way), Meddling(way)]
    async with WorkerPool(ring, *workers):
        await ring.publish_events(fill, range(10))
    assert sorted(value for each in workers for value in each.values) == [*range(10)]
