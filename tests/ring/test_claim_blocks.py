"""`ring.claim()`: awaited, run as a task, or the head of a block that fills a slot."""

from __future__ import annotations

import asyncio

import pytest

from batchqueue_async.ring import (
    InvalidArgument,
    ProducerType,
    RingBuffer,
    RingError,
    RingHalted,
)
from tests.ring.events import Event, Recorder, gated_ring, small


class Refused(Exception):
    pass


@pytest.mark.parametrize("verb", ["claim", "slot"])
async def test_a_block_publishes_its_event_or_abandons_it(
    producer: ProducerType, verb: str
) -> None:
    disruptor = small(producer=producer)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        for number in range(20):
            try:
                async with getattr(ring, verb)() as event:
                    event.value = number
                    if number % 3 == 0:
                        raise Refused  # noqa: TRY301
            except Refused:
                pass

    assert handler.values == [number for number in range(20) if number % 3]
    assert handler.sequences == handler.values


async def test_a_claim_is_in_one_block_at_a_time(producer: ProducerType) -> None:
    """The other's event was never published, and consumers waited for it for ever."""
    disruptor = small(producer=producer)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        claim = ring.claim()

        async def fill_one(number: int) -> None:
            async with claim as event:
                await asyncio.sleep(0)
                event.value = number

        both = await asyncio.gather(fill_one(1), fill_one(2), return_exceptions=True)
        assert [type(each) for each in both] == [type(None), RingError]
        await fill_one(3)

    assert handler.values == [1, 3]


async def test_a_block_that_was_cancelled_as_it_waited_lets_others_in() -> None:
    ring, consumer = gated_ring(1)
    await ring.claim()
    ring.publish(0)
    claim = ring.claim()

    async def fill_one() -> None:
        async with claim as event:
            event.value = 1

    waiting = asyncio.create_task(fill_one())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    consumer.value = 0
    await fill_one()
    assert ring.is_available(1)


async def test_a_block_waits_for_room() -> None:
    ring, consumer = gated_ring(1)
    await ring.claim()

    async def fill_one() -> None:
        async with ring.claim() as event:
            event.value = 1

    waiting = asyncio.create_task(fill_one())
    await asyncio.sleep(0)
    assert ring.sequencer.claims_waiting == 1
    ring.publish(0)
    consumer.value = 0
    await waiting
    assert ring.is_available(1)


async def test_a_block_fills_one_event() -> None:
    ring = RingBuffer(Event, 8)
    with pytest.raises(InvalidArgument, match="one event, not 2"):
        async with ring.claim(2):
            pass
    assert ring.sequencer.claimed == -1


async def test_a_block_on_a_closed_ring_is_refused() -> None:
    ring = RingBuffer(Event, 8)
    ring.halt()
    with pytest.raises(RingHalted):
        async with ring.claim():
            pass


async def test_a_claim_is_a_coroutine() -> None:
    ring = RingBuffer(Event, 8)
    assert asyncio.iscoroutine(claim := ring.claim())
    assert await claim == 0
    task = asyncio.create_task(ring.claim(2))
    assert "claim()" in repr(task)
    assert await task == 2
    assert [*await asyncio.gather(ring.claim(), ring.claim(2))] == [3, 5]


async def test_a_claim_that_is_not_awaited_claims_nothing() -> None:
    ring = RingBuffer(Event, 8)
    claim = ring.claim()
    assert ring.try_claim() == 0
    claim.close()
    with pytest.raises(StopIteration):
        claim.send(None)
    assert await ring.claim() == 1


@pytest.mark.parametrize("behind", [0, 1])
async def test_a_claim_that_nobody_runs_any_more_leaves_the_line(behind: int) -> None:
    ring, consumer = gated_ring(2)
    await ring.claim(2)
    ring.publish(0, 1)
    claim = ring.claim()
    claim.send(None)
    after = [asyncio.create_task(ring.claim()) for _ in range(behind)]
    await asyncio.sleep(0)

    claim.close()
    assert ring.sequencer.claims_waiting == behind
    consumer.value = 1
    assert await asyncio.gather(*after) == [2, 3][:behind]
    assert ring.try_claim() == 2 + behind


async def test_a_claim_closed_after_its_grant_gives_it_back() -> None:
    ring, consumer = gated_ring(2)
    await ring.claim(2)
    ring.publish(0, 1)
    claim = ring.claim()
    claim.send(None)
    consumer.value = 0
    assert ring.sequencer.claimed == 2
    with pytest.raises(Refused):
        claim.throw(Refused())
    assert ring.sequencer.claimed == 1
