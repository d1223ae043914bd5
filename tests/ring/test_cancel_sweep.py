"""A claim is cancelled after every possible number of steps: nothing is ever lost."""

from __future__ import annotations

import asyncio

import pytest

from batchqueue_async.ring import ProducerType, RingBuffer, WaitStrategy
from tests.ring.events import Event, Recorder, fill, small, turns

STEPS = 14


async def by_event(ring: RingBuffer[Event]) -> None:
    await ring.publish_event(fill, "victim")


async def by_slot(ring: RingBuffer[Event]) -> None:
    async with ring.slot() as event:
        await asyncio.sleep(0)
        event.value = "victim"


async def by_many(ring: RingBuffer[Event]) -> None:
    await ring.publish_events(fill, ["victim"] * 5)


async def by_hand(ring: RingBuffer[Event]) -> None:
    high = await ring.claim(2)
    for event in ring.events(high - 1, high):
        event.value = "victim"
    ring.publish(high - 1, high)


@pytest.mark.parametrize("victim", [by_event, by_slot, by_many, by_hand])
@pytest.mark.parametrize("steps", range(STEPS))
async def test_a_producer_cancelled_at_any_step(
    victim: object, steps: int, producer: ProducerType
) -> None:
    disruptor = small(2, producer=producer)
    slow, last = Recorder("slow"), Recorder("last")

    async def slowly(event: Event, sequence: int, end_of_batch: bool) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        slow._record(event, sequence, end_of_batch)

    disruptor.handle_events_with(slowly).then(last)
    async with disruptor as ring:
        await ring.publish_events(fill, ["before"] * 2)
        task = asyncio.create_task(victim(ring))  # type: ignore[operator]
        await asyncio.sleep(0)
        behind = [
            asyncio.create_task(ring.publish_event(fill, number)) for number in range(3)
        ]
        await turns(steps)
        task.cancel()
        result = await asyncio.gather(task, return_exceptions=True)
        await asyncio.gather(*behind)

    values = last.values
    assert slow.values == values
    assert values[:2] == ["before"] * 2
    assert [value for value in values if isinstance(value, int)] == [0, 1, 2]
    if isinstance(result[0], asyncio.CancelledError):
        assert values.count("victim") < (5 if victim is by_many else 2)
    assert disruptor.ring.sequencer.claims_waiting == 0
    assert not disruptor.ring.sequencer._queue._granted


@pytest.mark.parametrize("steps", range(STEPS))
async def test_a_shutdown_cancelled_at_any_step(steps: int, wait: WaitStrategy) -> None:
    disruptor = small(4, wait=wait)
    a, b = Recorder("a"), Recorder("b")
    disruptor.handle_events_with(a).then(b)
    ring = await disruptor.start()
    await ring.publish_events(fill, range(4))
    closing = asyncio.create_task(disruptor.shutdown())
    await turns(steps)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    await disruptor.shutdown()
    assert a.values == b.values == [*range(4)]
    assert a.log == b.log == ["start", "shutdown"]
