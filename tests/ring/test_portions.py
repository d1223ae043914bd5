"""Publishing what an iterable gives: one that raises, has no end, or comes late."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator

import pytest

from batchqueue_async.ring import InvalidArgument, RingBuffer, SyncRing
from tests.ring.events import Event, Recorder, fill, small, turns


class Refused(Exception):
    pass


def failing(count: int) -> Iterator[int]:
    """Give so many numbers, then raise."""
    yield from range(count)
    raise Refused


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 11])
async def test_what_comes_before_an_error_is_published(count: int) -> None:
    disruptor = small(4)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        with pytest.raises(Refused):
            await ring.publish_events(fill, failing(count))
    assert handler.values == [*range(count)]


@pytest.mark.real_time
async def test_so_it_is_from_a_thread() -> None:
    disruptor = small(4)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        with pytest.raises(Refused):
            await asyncio.to_thread(SyncRing(ring).publish_events, fill, failing(11))
    assert handler.values == [*range(11)]


async def test_an_endless_iterable_can_be_cancelled() -> None:
    disruptor = small(4)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        endless = asyncio.create_task(ring.publish_events(fill, itertools.count()))
        await turns(200)
        assert len(handler.seen) > 20
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
    assert handler.values == [*range(len(handler.values))]


@pytest.mark.real_time
async def test_a_timeout_ends_an_endless_iterable_though_there_is_room() -> None:
    ring = RingBuffer(Event, 1 << 16)
    sync = SyncRing(ring)

    def late() -> Iterator[int]:
        for number in range(1 << 17):
            if number == 1 << 16:
                time.sleep(0.06)
            yield number

    published = await asyncio.to_thread(sync.publish_events, fill, late(), 0.05)
    assert published <= 1 << 16


def test_no_events_are_given_for_no_sequences() -> None:
    ring = RingBuffer(Event, 8)
    assert ring.events(5, 4) == ring.events(0, -1) == []
    assert len(ring.events(5, 12)) == 8
    with pytest.raises(InvalidArgument, match="5 to 13"):
        ring.events(5, 13)
