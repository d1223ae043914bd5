"""No event is allocated per publication, nor anything else that stays."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

from batchqueue_async.ring import Disruptor, ProducerType
from tests.ring.events import Event, fill, small

COUNT = 500


class Counting(Event):
    """Counts how many were ever made."""

    made = 0

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1


async def test_no_event_is_made_after_the_start(producer: ProducerType) -> None:
    Counting.made = 0
    disruptor = Disruptor(Counting, 64, producer=producer)
    disruptor.handle_events_with(lambda *_: None)
    async with disruptor as ring:
        for number in range(COUNT):
            await ring.publish_event(fill, number)
        await ring.publish_events(fill, range(COUNT))
        async with ring.slot() as event:
            event.value = 1
    assert Counting.made == 64


async def test_memory_stays_level_in_steady_state(producer: ProducerType) -> None:
    disruptor = small(64, producer=producer)
    disruptor.handle_events_with(lambda *_: None).then(lambda *_: None)

    async def publish() -> None:
        for _ in range(COUNT):
            await ring.publish_event(fill, 1)
            ring.try_publish_event(fill, 1)
        await ring.publish_events(fill, [1] * COUNT)
        await asyncio.sleep(0)

    async with disruptor as ring:
        await publish()
        tracemalloc.start()
        try:
            await publish()
            gc.collect()
            before = tracemalloc.take_snapshot()
            await publish()
            gc.collect()
            after = tracemalloc.take_snapshot()
        finally:
            tracemalloc.stop()
    ring_code = [tracemalloc.Filter(inclusive=True, filename_pattern="*/ring/*")]
    grown = after.filter_traces(ring_code).compare_to(
        before.filter_traces(ring_code), "lineno"
    )
    # Some ints and futures of this moment; nothing per event.
    assert sum(each.count_diff for each in grown) < 100
