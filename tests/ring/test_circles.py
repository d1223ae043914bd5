"""Rings whose handlers publish into each other: none stands still, none is refused.

That is: nobody waits for ever for what only his own return makes free, over however
many rings; and what others make free may be waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from batchqueue_async.ring import (
    Disruptor,
    ProducerType,
    RingBuffer,
    RingError,
    SyncRing,
)
from tests.engine.until import until
from tests.ring.events import Event, fill, small

Errors = list[Exception]


class Forward:
    """Publishes each event `times` into the next ring; its value says how often yet."""

    def __init__(self, errors: Errors, times: int = 2) -> None:
        self.next: RingBuffer[Event] | None = None
        self.errors = errors
        self.times = times
        self.handled = 0

    async def on_event(self, event: Event, sequence: int, end_of_batch: bool) -> None:
        left = event.value
        for _ in range(self.times if left else 0):
            assert self.next is not None
            try:
                await self.next.publish_event(fill, left - 1)
            except RingError as error:
                self.errors.append(error)
        self.handled += 1


def in_a_circle(
    count: int,
    errors: Errors,
    producer: ProducerType,
    consume: Callable[[Disruptor[Event], Forward], object],
) -> tuple[list[Disruptor[Event]], list[Forward]]:
    rings = [small(2, producer=producer) for _ in range(count)]
    handlers = [Forward(errors) for _ in range(count)]
    for index, (ring, handler) in enumerate(zip(rings, handlers, strict=True)):
        handler.next = rings[(index + 1) % count].ring
        consume(ring, handler)
    return rings, handlers


def are_empty(rings: list[Disruptor[Event]]) -> bool:
    return all(
        each.ring.remaining_capacity() == each.ring.capacity
        and not each.ring.sequencer.claims_waiting
        for each in rings
    )


def alone(ring: Disruptor[Event], handler: Forward) -> None:
    ring.handle_events_with(handler)


def ahead_of_another(ring: Disruptor[Event], handler: Forward) -> None:
    """What gates the ring is idle: it waits for the one that publishes."""
    ring.handle_events_with(handler).then(Forward([], times=0))


def behind_another(ring: Disruptor[Event], handler: Forward) -> None:
    ring.handle_events_with(Forward([], times=0)).then(handler)


def as_a_worker(ring: Disruptor[Event], handler: Forward) -> None:
    ring.handle_events_with_worker_pool(handler, Forward([], times=0))


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize(
    "consume", [alone, ahead_of_another, behind_another, as_a_worker]
)
async def test_full_rings_in_a_circle_do_not_stand_still(
    count: int,
    consume: Callable[[Disruptor[Event], Forward], object],
    producer: ProducerType,
) -> None:
    errors: Errors = []
    rings, handlers = in_a_circle(count, errors, producer, consume)
    async with AsyncExitStack() as stack:
        for each in rings:
            await stack.enter_async_context(each)
        for each in rings:
            await each.ring.publish_event(fill, 12)
        # Each event becomes two, so in the end all rings are full.
        await until(lambda: are_empty(rings))
    assert "wait until it returns" in str(errors[0])
    assert sum(each.handled for each in handlers) > 3 * count


async def test_a_chain_that_leads_nowhere_back_is_never_refused() -> None:
    """Its end is slow: so all rings are full, and all wait for it."""
    errors: Errors = []
    rings = [small(2) for _ in range(4)]
    handlers = [Forward(errors) for _ in range(4)]
    for index, (ring, handler) in enumerate(zip(rings, handlers, strict=True)):
        if index < 3:
            handler.next = rings[index + 1].ring
        ring.handle_events_with(handler)
    seen = 0

    async def end(event: Event, sequence: int, end_of_batch: bool) -> None:
        nonlocal seen
        await asyncio.sleep(0.01)
        seen += 1

    last = small(2)
    handlers[3].next = last.ring
    last.handle_events_with(end)
    async with AsyncExitStack() as stack:
        for each in [last, *reversed(rings)]:
            await stack.enter_async_context(each)
        for _ in range(20):
            await rings[0].ring.publish_event(fill, 4)
        await until(lambda: seen == 20 * 2**4)
    assert errors == []


@pytest.mark.real_time
async def test_a_circle_through_threads() -> None:
    errors: Errors = []
    first, second = small(1), small(1)
    full = asyncio.Event()

    async def from_thread(event: Event, sequence: int, end_of_batch: bool) -> None:
        if event.value:
            await full.wait()
            try:
                await asyncio.to_thread(sync.publish_event, fill, 0)
            except RingError as error:
                errors.append(error)

    async def on_loop(event: Event, sequence: int, end_of_batch: bool) -> None:
        if event.value:
            full.set()
            try:
                await first.ring.publish_event(fill, 0)
            except RingError as error:
                errors.append(error)

    first.handle_events_with(from_thread)
    second.handle_events_with(on_loop)
    async with second, first:
        sync = SyncRing(second.ring)
        await first.ring.publish_event(fill, 1)
        await second.ring.publish_event(fill, 1)
        await until(lambda: bool(errors))
    assert len(errors) == 1, "the other one goes on"


@pytest.mark.parametrize("seed", range(20))
async def test_random_graphs_of_rings_never_stand_still(seed: int) -> None:
    chance = random.Random(seed)
    errors: Errors = []
    rings = [small(chance.choice([1, 2, 4])) for _ in range(4)]
    handlers = []
    for ring in rings:
        for _ in range(chance.randint(1, 2)):
            handler = Forward(errors, times=chance.randint(1, 3))
            handler.next = chance.choice(rings).ring
            handlers.append(handler)
            ring.handle_events_with(handler)
    async with AsyncExitStack() as stack:
        for each in rings:
            await stack.enter_async_context(each)
        for each in rings * 3:
            with contextlib.suppress(RingError):
                await each.ring.publish_event(fill, 5)
        await until(lambda: are_empty(rings))
