"""Threads publish into a ring on an event loop, and three handlers see all of it.

`SyncRing` is the ring as other threads see it: it blocks while the ring is full, so
that threads go no faster than the slowest handler. What one thread publishes stays in
its order. The events were made once, at the start; the threads fill them in place.

    python examples/ring_threads.py
"""

import asyncio
from collections import Counter

from batchqueue_async.ring import Disruptor, SyncRing

SENSORS = 3
READINGS = 10_000


class Reading:
    """An event: what one sensor measured."""

    __slots__ = ("degrees", "sensor")

    def __init__(self) -> None:
        self.sensor = 0
        self.degrees = 0.0


def fill(reading: Reading, sequence: int, sensor: int, degrees: float) -> None:
    reading.sensor = sensor
    reading.degrees = degrees


def measure(ring: SyncRing[Reading], sensor: int) -> int:
    """Publish one sensor's readings; runs on a thread of its own."""
    published = 0
    for number in range(READINGS):
        degrees = 20 + sensor + number % 7
        # True: it is in the ring. False would mean that the ring was closed.
        published += ring.publish_event(fill, sensor, degrees)
    return published


async def main() -> None:
    counts: Counter[int] = Counter()
    hottest: dict[int, float] = {}
    batches: list[int] = []

    def count(reading: Reading, sequence: int, end_of_batch: bool) -> None:
        counts[reading.sensor] += 1

    def watch(reading: Reading, sequence: int, end_of_batch: bool) -> None:
        hottest[reading.sensor] = max(hottest.get(reading.sensor, 0), reading.degrees)

    class Store:
        async def on_batch(self, readings: list[Reading], first_sequence: int) -> None:
            await asyncio.sleep(0.001)  # A database, for instance.
            batches.append(len(readings))

    disruptor = Disruptor(Reading, 1024)
    disruptor.handle_events_with(count, watch).then(Store())
    async with disruptor as ring:
        sync_ring = SyncRing(ring)  # Made on the loop, used on threads.
        published = await asyncio.gather(
            *(asyncio.to_thread(measure, sync_ring, each) for each in range(SENSORS))
        )

    print("published:", published)
    print("counted:", dict(sorted(counts.items())))
    print("hottest:", dict(sorted(hottest.items())))
    print(f"stored: {sum(batches)}, at most {max(batches)} at a time")


if __name__ == "__main__":
    asyncio.run(main())
