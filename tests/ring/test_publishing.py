"""The verbs of producers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NoReturn

import pytest

from batchqueue_async.ring import (
    InvalidArgument,
    ProducerType,
    RingBuffer,
    RingError,
    RingHalted,
    SyncRing,
)
from tests.ring.events import Event, Recorder, fill, gated_ring, mark, small, turns


class Refused(Exception):
    pass


def refuse(event: Event, sequence: int, *_: object) -> NoReturn:
    raise Refused


async def test_the_factory_is_called_once_per_slot_and_never_again() -> None:
    made: list[Event] = []

    def factory() -> Event:
        made.append(Event())
        return made[-1]

    disruptor = small()
    ring = RingBuffer(factory, 8)
    for number in range(100):
        await ring.publish_event(fill, number)
    await ring.publish_events(fill, range(100))
    assert len(made) == 8
    assert [ring[sequence] for sequence in range(8)] == made
    assert ring[8] is ring[0]
    assert disruptor.ring.capacity == ring.capacity == 8


def test_events_are_given_across_the_end_of_the_ring() -> None:
    ring = RingBuffer(Event, 4)
    assert ring.events(2, 5) == [ring[2], ring[3], ring[0], ring[1]]
    assert ring.events(4, 7) == [ring[number] for number in range(4)]
    assert ring.events(3, 3) == [ring[3]]


async def test_claim_fill_publish(producer: ProducerType) -> None:
    disruptor = small(producer=producer)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        high = await ring.claim(3)
        for sequence in range(high - 2, high + 1):
            ring[sequence].value = sequence * 10
        await turns()
        assert not handler.seen, "claimed is not published"
        ring.publish(high - 2, high)
        sequence = ring.try_claim()
        ring[sequence].value = "last"
        ring.publish(sequence)

    assert handler.values == [0, 10, 20, "last"]


async def test_a_count_that_is_not_whole_claims_nothing() -> None:
    ring = RingBuffer(Event, 8)
    with pytest.raises(TypeError, match="float"):
        await ring.claim(3 / 2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="float"):
        ring.try_claim(3 / 2)  # type: ignore[arg-type]
    await ring.publish_event(fill, "a")
    assert ring.is_available(0)


async def test_a_slot_is_published_at_the_end_of_its_block() -> None:
    disruptor = small()
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        async with ring.slot() as event:
            event.value = "first"
            await turns()
            assert not handler.seen
        slot = ring.slot()
        async with slot as event:
            event.value = slot.sequence

    assert handler.seen == [(0, "first", False), (1, 1, True)]


async def test_a_slot_whose_block_is_cancelled_is_skipped() -> None:
    disruptor = small()
    handler = Recorder()
    disruptor.handle_events_with(handler)

    async def linger(ring: RingBuffer[Event]) -> None:
        async with ring.slot():
            await asyncio.Event().wait()

    async with disruptor as ring:
        producer = asyncio.create_task(linger(ring))
        await turns(3)
        await ring.publish_event(fill, "after")
        await turns()
        assert not handler.seen, "consumers see no gap"
        producer.cancel()
        await turns()
        assert handler.seen == [(1, "after", True)]


async def test_a_fill_that_raises_leaves_a_slot_that_is_skipped() -> None:
    disruptor = small()
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        with pytest.raises(Refused):
            await ring.publish_event(refuse)
        with pytest.raises(Refused):
            await ring.publish_event(refuse, 1)
        with pytest.raises(Refused):
            ring.try_publish_event(refuse, 1, 2)
        assert ring.try_publish_event(fill, "good")

    assert handler.seen == [(3, "good", True)]


async def test_fill_gets_the_event_its_sequence_and_the_arguments() -> None:
    ring = RingBuffer(Event, 4)
    calls: list[tuple[object, ...]] = []

    await ring.publish_event(lambda *args: calls.append(args))
    await ring.publish_event(lambda *args: calls.append(args), "a")
    await ring.publish_event(lambda *args: calls.append(args), "a", "b")
    assert ring.try_publish_event(lambda *args: calls.append(args), 1, 2, 3)
    assert calls == [
        (ring[0], 0),
        (ring[1], 1, "a"),
        (ring[2], 2, "a", "b"),
        (ring[3], 3, 1, 2, 3),
    ]


async def test_a_fill_may_publish() -> None:
    ring = RingBuffer(Event, 4)

    def twice(event: Event, sequence: int) -> None:
        assert ring.try_publish_event(fill, "inner")
        event.value = "outer"

    await ring.publish_event(twice)
    assert [event.value for event in ring.events(0, 1)] == ["outer", "inner"]
    assert ring.new_barrier().available() == 1


async def test_trying_says_no_instead_of_waiting() -> None:
    ring, consumer = gated_ring(2)
    assert ring.try_publish_event(mark)
    assert ring.try_publish_event(mark)
    assert not ring.try_publish_event(mark)
    assert ring.remaining_capacity() == 0

    consumer.value = 0
    assert ring.remaining_capacity() == 1
    assert ring.try_publish_event(mark)
    assert not ring.try_publish_event(mark)


async def test_many_events_are_published_in_portions_of_what_is_free() -> None:
    disruptor = small(8)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        assert await ring.publish_events(fill, iter(range(100))) == 100
        assert await ring.publish_events(fill, []) == 0
        assert await ring.publish_events(fill, [100]) == 1

    assert handler.values == [*range(101)]
    assert handler.sequences == [*range(101)]
    assert max(handler.sizes) <= 8


async def test_a_portion_that_fails_midway_keeps_what_was_filled() -> None:
    disruptor = small(8)
    handler = Recorder()
    disruptor.handle_events_with(handler)

    def picky(event: Event, sequence: int, item: int) -> None:
        if item == 3:
            raise Refused
        event.value = item

    async with disruptor as ring:
        with pytest.raises(Refused):
            await ring.publish_events(picky, range(6))
        with pytest.raises(Refused):
            await ring.publish_events(picky, [3])
        await ring.publish_event(fill, "after")

    assert handler.values == [0, 1, 2, "after"]


async def test_a_cancelled_producer_keeps_what_it_published() -> None:
    gate = asyncio.Event()
    handler = Recorder(gate=gate)
    disruptor = small(8)
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        producer = asyncio.create_task(ring.publish_events(fill, range(100)))
        await turns()
        producer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await producer
        gate.set()
        await ring.publish_event(fill, "after")

    assert handler.values == [*range(8), "after"]


async def test_after_the_end_every_verb_is_refused() -> None:
    disruptor = small()
    disruptor.handle_events_with(Recorder())
    async with disruptor as ring:
        pass
    for attempt in (
        ring.claim,
        lambda: ring.publish_event(mark),
        lambda: ring.publish_events(fill, [1]),
        lambda: ring.slot().__aenter__(),
    ):
        with pytest.raises(RingHalted, match=r"^the ring is closed$"):
            await attempt()
    with pytest.raises(RingHalted):
        ring.try_claim()
    with pytest.raises(RingHalted):
        ring.try_publish_event(mark)
    assert issubclass(RingHalted, RingError)


async def test_two_tasks_publish_through_slots_in_any_order() -> None:
    disruptor = small(8)
    handler = Recorder()
    disruptor.handle_events_with(handler)

    async def produce(ring: RingBuffer[Event], name: str, pauses: int) -> None:
        for number in range(30):
            async with ring.slot() as event:
                await turns(pauses)
                event.value = (name, number)

    async with disruptor as ring, asyncio.TaskGroup() as group:
        for pauses, name in enumerate("abc"):
            group.create_task(produce(ring, name, pauses))

    assert handler.sequences == [*range(90)]
    for name in "abc":
        assert [number for who, number in handler.values if who == name] == [*range(30)]


async def fills_later(event: Event, sequence: int, value: object) -> None:
    event.value = value


def fills_by_yield(event: Event, sequence: int, value: object) -> Iterator[None]:
    event.value = value
    yield


async def yields_later(
    event: Event, sequence: int, value: object
) -> AsyncIterator[None]:
    event.value = value
    yield


@pytest.mark.parametrize("wrong", [fills_later, fills_by_yield, yields_later])
async def test_what_fills_nothing_is_refused(
    wrong: Callable[[Event, int, object], object],
) -> None:
    """Handlers would get what was in the slot a lap before."""
    disruptor = small(producer=ProducerType.MULTI)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        threads = SyncRing(ring)
        rule = "^fill must be a plain function, none with await or yield, got the func"
        with pytest.raises(InvalidArgument, match=rule):
            await ring.publish_event(wrong, 1)
        with pytest.raises(InvalidArgument, match=rule):
            ring.try_publish_event(wrong, 1)
        with pytest.raises(InvalidArgument, match=rule):
            await ring.publish_events(wrong, [1, 2])
        with pytest.raises(InvalidArgument, match=rule):
            await asyncio.to_thread(threads.publish_event, wrong, 1)
        with pytest.raises(InvalidArgument, match=rule):
            await asyncio.to_thread(threads.publish_events, wrong, [1, 2])
        await ring.publish_event(fill, 7)
    assert [value for _, value, _ in handler.seen] == [7]
