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
    HandlerGroup,
    ProducerType,
    RingBuffer,
    RingError,
    RingHalted,
    SyncRing,
)
from batchqueue_async.ring.handler_call import ConsumerSequence, HandlerCall
from tests.engine.until import until
from tests.ring.events import Event, Recorder, fill, function, small, turns
from tests.support.thorough import examples

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


class Meander:
    """Publishes into one ring or another, for as long as its events' values say."""

    def __init__(self, chance: random.Random, rings: list[Disruptor[Event]]) -> None:
        self.rings = chance.choices(rings, k=3)
        self.times = chance.randint(0, 2)
        self.pauses = [chance.choice([None, 0.0, 0.001]) for _ in range(3)]
        self.refused = 0

    async def on_event(self, event: Event, sequence: int, end_of_batch: bool) -> None:
        left = event.value
        for time in range(self.times if left else 0):
            ring = self.rings[(left + time) % 3].ring
            try:
                await ring.publish_event(fill, left - 1)
            except RingError:
                self.refused += 1
        pause = self.pauses[left % 3]
        if pause is not None:
            await asyncio.sleep(pause)


async def run_meanders(seed: int) -> int | None:
    """Return how many waits were refused; None if it stood still."""
    chance = random.Random(seed)
    rings = [small(chance.choice([1, 2, 4])) for _ in range(3)]
    handlers = [Meander(chance, rings) for _ in range(5)]
    for handler in handlers:
        group = chance.choice(rings).handle_events_with(handler)
        if chance.random() < 0.3:
            group.then(Forward([], times=0))
    feeds = [(chance.choice(rings), chance.randint(0, 3)) for _ in range(6)]
    try:
        async with AsyncExitStack() as stack:
            for each in rings:
                await stack.enter_async_context(each)
            async with asyncio.timeout(2):
                for ring, value in feeds:
                    await ring.ring.publish_event(fill, value)
                await until(lambda: are_empty(rings))
    except TimeoutError:
        return None
    return sum(each.refused for each in handlers)


@pytest.mark.parametrize("seed", range(examples(500)))
async def test_one_is_refused_exactly_where_all_would_stand_still(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = await run_meanders(seed)
    assert refused is not None
    monkeypatch.setattr(HandlerCall, "_refuse_circle", lambda *_: None)
    stood_still = await run_meanders(seed) is None
    assert bool(refused) == stood_still


async def test_who_was_granted_and_has_not_run_yet_waits_for_nobody() -> None:
    """Else whoever it is to wait for now would seem to wait for itself."""
    ring = RingBuffer(Event, 1)
    gate, own = (ConsumerSequence(ring.new_barrier()) for _ in range(2))
    ring.add_gating_sequences(gate)
    ring.publish(await ring.claim())
    call = HandlerCall(own)
    claiming = asyncio.create_task(ring.claim())
    await asyncio.sleep(0)
    assert call.needs() == [(gate, 0)]
    gate.value = 0
    assert not claiming.done()
    assert call.needs() == []
    ring.publish(await claiming)
    # Nor does who is refused, or told that the ring is closed.
    refused = HandlerCall(gate)
    with pytest.raises(RingError):
        await ring.claim()
    assert refused.needs() == []
    ring.halt()
    with pytest.raises(RingHalted):
        await ring.claim()
    assert refused.needs() == []
    assert refused._waits == call._waits == {}


async def test_what_those_behind_want_is_not_waited_for() -> None:
    ring = RingBuffer(Event, 4)
    slow, fast, own, others = (ConsumerSequence(ring.new_barrier()) for _ in range(4))
    ring.add_gating_sequences(slow, fast)
    ring.publish(0, await ring.claim(4))
    fast.value = 1
    call = HandlerCall(own)
    first = asyncio.create_task(ring.claim(1))
    second = HandlerCall(others)
    behind = asyncio.create_task(ring.claim(3))
    await asyncio.sleep(0)
    assert call.needs() == [(slow, 0)]
    assert second.needs() == [(slow, 3), (fast, 3)]
    slow.value = fast.value = 3
    assert (await first, await behind) == (4, 7)


class FollowUp(Recorder):
    """Publishes an event into its own ring for each that asks for it."""

    def __init__(self, ring: RingBuffer[Event]) -> None:
        super().__init__("follow-up")
        self.ring = ring
        self.errors: Errors = []

    async def on_event(self, event: Event, sequence: int, end_of_batch: bool) -> None:
        self._record(event, sequence, end_of_batch)
        if event.value == "asks":
            try:
                await self.ring.publish_event(fill, "follow-up")
            except RingError as error:
                self.errors.append(error)


@pytest.mark.parametrize("later", [1, 2, 3])
async def test_who_waits_for_room_is_not_waited_for_by_those_behind_it_later(
    later: int,
) -> None:
    """The last one still has an event to handle, and then it waits for the first."""
    disruptor = small(4)
    first, seen = FollowUp(disruptor.ring), list[object]()

    async def slow(event: Event, sequence: int, end_of_batch: bool) -> None:
        await asyncio.sleep(0.01)
        seen.append(event.value)

    group = disruptor.handle_events_with(first)
    for _ in range(later - 1):
        group = group.then(function("between"))
    group.then(slow)
    async with disruptor as ring:
        await ring.publish_event(fill, "early")
        await turns()
        await ring.publish_events(fill, ["a", "asks", "b", "c", "d"])
    assert len(first.errors) == 1
    assert "until it returns" in str(first.errors[0])
    assert seen == first.values == ["early", "a", "asks", "b", "c", "d"]


@pytest.mark.parametrize("seed", range(40))
async def test_pipelines_that_feed_themselves_never_stand_still(seed: int) -> None:
    chance = random.Random(seed)
    rings = [small(chance.choice([1, 2, 4])) for _ in range(2)]
    errors: Errors = []

    class Stage(Forward):
        async def on_event(self, event: Event, sequence: int, is_end: bool) -> None:
            await asyncio.sleep(chance.choice([0, 0, 0.01, 0.05]))
            if event.value and chance.random() < 0.3:
                self.next = chance.choice(rings).ring
                await super().on_event(event, sequence, is_end)

    for disruptor in rings:
        group: HandlerGroup[Event] = disruptor
        for _ in range(chance.randint(1, 3)):
            stage = Stage(errors, times=1)
            limit = chance.choice([None, 1])
            if chance.random() < 0.3:
                pool = stage, Stage(errors, times=1)
                group = group.handle_events_with_worker_pool(*pool)
            else:
                group = group.handle_events_with(stage, max_batch=limit)
    async with AsyncExitStack() as stack:
        for each in rings:
            await stack.enter_async_context(each)
        published = (
            each.ring.publish_events(fill, [3] * 4) for each in rings for _ in range(3)
        )
        await asyncio.gather(*published)
        await until(lambda: are_empty(rings))


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
