"""What an event costs that a thread publishes through `SyncRing`; look at the spread.

A lock that threads block on costs little at first, and several times as much once a
convoy has formed: so each case is repeated, and the worst is shown, too.

Run it with `python -m benchmarks.ring_threads`; it takes half a minute.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import threading
import time

from batchqueue_async.ring import Disruptor, SyncRing

EVENTS = 80_000
REPEATS = 10


class Event:
    """A slot."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


def fill(event: Event, sequence: int, value: int) -> None:
    """Fill a slot."""
    event.value = value


def publish(sync: SyncRing[Event], count: int, portion: int) -> None:
    """Publish so many events, one by one or in portions."""
    for value in range(0, count, portion):
        if portion == 1:
            sync.publish_event(fill, value)
        else:
            sync.publish_events(fill, range(portion))


async def microseconds(threads: int, size: int, portion: int) -> float:
    """Return what an event takes from the first thread's start to its handler."""
    handled = 0

    def handler(event: Event, sequence: int, end_of_batch: bool) -> None:
        nonlocal handled
        handled += 1

    disruptor = Disruptor(Event, size)
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        args = (SyncRing(ring), EVENTS // threads, portion)
        producers = [
            threading.Thread(target=publish, args=args) for _ in range(threads)
        ]
        started = time.perf_counter()
        for producer in producers:
            producer.start()
        while handled < EVENTS:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        taken = time.perf_counter() - started
        for producer in producers:
            producer.join()
    return taken / EVENTS * 1e6


def main() -> None:
    """Measure all cases."""
    print(f"{EVENTS} events, {REPEATS} repeats, load {os.getloadavg()[0]:.1f}")
    print("threads   slots  portion    us per event: median, best, worst")
    for portion in (1, 1000):
        for threads in (1, 4):
            for size in (1024, 65536):
                taken = [
                    asyncio.run(microseconds(threads, size, portion))
                    for _ in range(REPEATS)
                ]
                print(
                    f"{threads:7} {size:7} {portion:8}    "
                    f"{statistics.median(taken):20.2f}, {min(taken):.2f}, "
                    f"{max(taken):.2f}"
                )


if __name__ == "__main__":
    main()
