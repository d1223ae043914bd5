"""Threads produce into a queue on an event loop, and get a receipt.

The program has no event loop of its own: `LoopThread` runs one. `produce` blocks while
the queue is full. `flush` is the receipt: it returns when everything produced before
it has been handled, and raises `DeliveryError` if anything was not.

    python examples/from_threads.py
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from batchqueue_async import BatchQueueConfig, LoopThread, SyncBatchQueue

SENSORS = 4
READINGS = 25_000


class Reading(NamedTuple):
    """What one sensor measured."""

    sensor: int
    degrees: int


def measure(queue: SyncBatchQueue[Reading], sensor: int) -> None:
    """Produce one sensor's readings; runs on a thread of its own."""
    for number in range(READINGS):
        queue.produce(Reading(sensor, 20 + number % 7))


def main() -> None:
    """Run the threads, wait for the receipt, look at the result."""
    seen: Counter[int] = Counter()

    async def count(batch: list[Reading]) -> None:
        # Always on the loop's thread and never twice at once: no lock is needed.
        seen.update(reading.sensor for reading in batch)

    config = BatchQueueConfig[Reading](buffer_size=1000)
    with LoopThread() as loop_thread:
        queue = loop_thread.open("readings", config, handlers={Reading: count})
        with ThreadPoolExecutor(SENSORS) as threads:
            for sensor in range(SENSORS):
                threads.submit(measure, queue, sensor)
        queue.flush(timeout=10)
        print("handled:", dict(sorted(seen.items())))
        print(f"{queue.stats().drain_tasks[0].cycles} batches took them all")


if __name__ == "__main__":
    main()
