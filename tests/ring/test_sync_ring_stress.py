"""Threads and the loop, with timeouts, cancellations and a shutdown in the middle."""

from __future__ import annotations

import asyncio
import random

import pytest

from batchqueue_async.ring import ProducerType, RingBuffer, RingHalted, SyncRing
from tests.ring.events import Event, Recorder, fill, small, turns

pytestmark = pytest.mark.real_time

THREADS = 3


class Producers:
    """Publish until the ring closes, and remember what was accepted."""

    def __init__(self, seed: int) -> None:
        self.accepted: list[tuple[int, int]] = []
        self._seed = seed

    def on_thread(self, sync: SyncRing[Event], name: int) -> None:
        chance = random.Random(self._seed + name)
        for number in range(100_000):
            timeout = chance.choice([None, 0.0, 0.001])
            if sync.publish_event(fill, (name, number), timeout=timeout):
                self.accepted.append((name, number))
            elif timeout is None:
                return  # Closed.

    async def on_loop(self, ring: RingBuffer[Event]) -> None:
        chance = random.Random(self._seed)
        for number in range(100_000):
            task = asyncio.create_task(ring.publish_event(fill, (THREADS, number)))
            await turns(chance.randrange(4))
            if chance.random() < 0.3:
                task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                continue
            except RingHalted:
                return
            self.accepted.append((THREADS, number))


@pytest.mark.parametrize("seed", range(6))
async def test_what_was_accepted_is_handled_whatever_else_happens(seed: int) -> None:
    chance = random.Random(seed)
    handler = Recorder()
    disruptor = small(2 ** chance.randrange(5), list(ProducerType)[seed % 2])
    disruptor.handle_events_with(handler)
    producers = Producers(seed)

    ring = await disruptor.start()
    sync = SyncRing(ring)
    threads = (
        asyncio.to_thread(producers.on_thread, sync, name) for name in range(THREADS)
    )
    all_of_them = asyncio.gather(*threads, producers.on_loop(ring))
    await asyncio.sleep(0.1 + chance.random() / 10)
    await disruptor.shutdown()
    await all_of_them

    assert sorted(handler.values) == sorted(producers.accepted)
    for name in range(THREADS + 1):
        numbers = [number for who, number in handler.values if who == name]
        assert numbers == sorted(numbers)
