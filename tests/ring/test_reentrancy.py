"""Handlers that publish into their own ring, and code that runs in the middle of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from batchqueue_async.ring import (
    InsufficientCapacity,
    ProducerType,
    RingBuffer,
    RingError,
    Sequence,
    SyncRing,
)
from batchqueue_async.ring.sequencer import MultiProducerSequencer
from tests.ring.events import Event, fill, small
from tests.support.meddling import Once, before_each_line_of

Publishing = Callable[[RingBuffer[Event]], Coroutine[Any, Any, object]]


async def in_a_task(ring: RingBuffer[Event]) -> None:
    await asyncio.create_task(ring.publish_event(fill, 1))


async def in_a_group(ring: RingBuffer[Event]) -> None:
    await asyncio.gather(ring.publish_event(fill, 1), ring.publish_event(fill, 2))


async def in_a_block(ring: RingBuffer[Event]) -> None:
    async with ring.claim():
        pass


@pytest.mark.parametrize("publish", [in_a_task, in_a_group, in_a_block])
async def test_a_wait_that_only_its_return_can_end_is_refused(
    publish: Publishing, producer: ProducerType
) -> None:
    disruptor = small(1, producer=producer)
    refused = asyncio.Event()

    async def handler(event: Event, sequence: int, end_of_batch: bool) -> None:
        with pytest.raises(RingError, match="only after it returns"):
            await publish(disruptor.ring)
        refused.set()

    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        await ring.publish_event(fill, 0)
        await refused.wait()


@pytest.mark.real_time
async def test_so_it_is_on_a_thread() -> None:
    disruptor = small(1)
    refused = asyncio.Event()

    async def handler(event: Event, sequence: int, end_of_batch: bool) -> None:
        with pytest.raises(RingError, match="only after it returns"):
            await asyncio.to_thread(sync.publish_event, fill, 1)
        in_time = partial(sync.publish_event, fill, 1, timeout=0.01)
        assert not await asyncio.to_thread(in_time)
        refused.set()

    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        sync = SyncRing(ring)
        await ring.publish_event(fill, 0)
        await refused.wait()


async def test_what_a_handler_does_not_wait_for_may_wait() -> None:
    disruptor = small(2)
    seen: list[int] = []
    tasks = []
    all_seen = asyncio.Event()

    def handler(event: Event, sequence: int, end_of_batch: bool) -> None:
        seen.append(event.value)
        if event.value < 40:
            task = disruptor.ring.publish_event(fill, event.value + 2)
            tasks.append(asyncio.create_task(task))
        if len(seen) == 42:
            all_seen.set()

    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        await ring.publish_events(fill, [0, 1])
        await all_seen.wait()
    await asyncio.gather(*tasks)
    assert sorted(seen) == [*range(42)]


async def test_what_a_hook_starts_may_wait_when_the_hook_has_returned() -> None:
    disruptor = small(2)
    seen: list[int] = []

    class Handler:
        async def on_start(self) -> None:
            publishing = disruptor.ring.publish_events(fill, range(20))
            self.task = asyncio.create_task(publishing)

        async def on_event(self, event: Event, sequence: int, is_end: bool) -> None:
            await asyncio.sleep(0.01)
            seen.append(event.value)

    handler = Handler()
    disruptor.handle_events_with(handler)
    async with disruptor:
        await asyncio.sleep(0.01)
        await handler.task
    assert seen == [*range(20)]


class Meddling(Sequence):
    """Claims whenever it is looked at, as a `__del__` might by accident."""

    __slots__ = ("meddle",)

    def __init__(self) -> None:
        super().__init__()
        self.meddle: Callable[[], object] | None = None

    @property
    def value(self) -> int:
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            meddle()
        return self._value

    @value.setter
    def value(self, value: int) -> None:
        self._value = value


async def test_a_claim_in_the_middle_of_a_claim_takes_nothing_away(
    producer: ProducerType,
) -> None:
    ring = RingBuffer(Event, 4, producer=producer)
    consumer = Meddling()
    ring.add_gating_sequences(consumer)
    high = ring.try_claim(4)
    ring.publish(0, high)
    consumer.value = 0
    got = []

    consumer.meddle = lambda: got.append(ring.try_claim())
    with pytest.raises(InsufficientCapacity):
        ring.try_claim()
    assert got == [4]


@pytest.mark.parametrize("last", [1, 3])
def test_a_publication_in_the_middle_of_a_later_one_hides_nothing(
    producer: ProducerType, last: int
) -> None:
    points = 0
    while True:
        ring = RingBuffer(Event, 4, producer=producer)
        ring.try_claim(last + 1)
        strike = Once(points, partial(ring.publish, 0))
        publish = MultiProducerSequencer.publish
        with before_each_line_of(publish, act=strike):
            ring.publish(1, last)
        if not strike.has_acted:
            break
        points += 1
        assert ring.sequencer.published == last
    assert points > 2


def test_a_pool_of_threads_is_no_task_of_a_handler() -> None:
    """Only what inherits a handler's context is known to be its doing."""

    async def main() -> list[bool]:
        disruptor = small(1)
        done: list[bool] = []

        async def handler(event: Event, sequence: int, end_of_batch: bool) -> None:
            publish = partial(sync.publish_event, fill, 1, timeout=0.01)
            with ThreadPoolExecutor(1) as threads:
                wrapped = asyncio.wrap_future(threads.submit(publish))
                done.append(await wrapped)

        disruptor.handle_events_with(handler)
        async with disruptor as ring:
            sync = SyncRing(ring)
            await ring.publish_event(fill, 0)
        return done

    assert asyncio.run(main()) == [False]
