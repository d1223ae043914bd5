"""Adaptive limits beside fixed ones: python -m benchmarks.adaptive.

A PostgreSQL sink with as much to do as it can take: rows per second by the size of
batches, each in a queue of its own, and with "auto" from its start on and once it has
found its size; the same by the number of drain tasks, with batches of 50 rows. Medians
of turns, in which all take part. And a server that throttles, in virtual time, so that
it is exact: it refuses batches of more than 300 items for a minute, with `RetryAfter`,
and calls that come within 100 ms for another. Takes six minutes; a sketch: --quick.
"""

import argparse
import asyncio
import logging
import statistics
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueStats,
    DrainTaskPolicy,
    PartitionPolicy,
    Retry,
    RetryAfter,
    round_robin,
)
from batchqueue_async.testing import run_virtual
from benchmarks.postgres_sink import PostgresSink, postgres_sink
from benchmarks.table import Column, Table, show

SIZES = (10, 30, 100, 300, 1_000, 3_000)
BUFFER = 6_000
TURNS = 5
SECONDS = 3.0
LEARNING = 6.0
"""Seconds of "auto" before it is measured; these are a row of their own."""
COUNTS = (1, 2, 4, 8, 16)
LEARNING_COUNT = 15.0

MaxBatch = int | Literal["auto"]


async def rate(
    queue: BatchQueue[float], feed: AsyncIterator[None], seconds: float
) -> float:
    """Return items per second that a queue handles which is always full."""
    loop = asyncio.get_running_loop()
    began, before = loop.time(), queue.stats().handled
    async for _ in feed:
        if loop.time() - began >= seconds:
            break
    return (queue.stats().handled - before) / (loop.time() - began)


async def full(queue: BatchQueue[float]) -> AsyncIterator[None]:
    """Keep the queue full."""
    items = [0.5] * 500
    while True:
        await queue.produce_many(items)
        yield


async def measured(
    sink: PostgresSink,
    config: BatchQueueConfig[float],
    learning: float,
    seconds: float,
) -> tuple[float, float, BatchQueueStats]:
    """Return rows per second while learning, and afterwards; and final statistics."""
    await sink.clear()
    queue = BatchQueue("sweep", config)
    async with queue:
        feed = full(queue)
        first = await rate(queue, feed, learning) if learning else 0.0
        found = await rate(queue, feed, seconds)
        stats = queue.stats()
        await queue.shutdown(0.0)
    return first, found, stats


def of_size(sink: PostgresSink, size: MaxBatch) -> BatchQueueConfig[float]:
    """Return a queue's settings with one drain task."""
    return BatchQueueConfig(
        consumer=sink.consume, max_batch=size, buffer_size=BUFFER, shutdown_timeout=0.0
    )


def of_count(
    sink: PostgresSink, drain_tasks: DrainTaskPolicy
) -> BatchQueueConfig[float]:
    """Return settings with several drain tasks, and batches of 50."""
    return replace(
        of_size(sink, 50),
        drain_tasks=drain_tasks,
        partitions=PartitionPolicy.fixed(16),
        selector=round_robin,
        buffer_size=200,
    )


async def sizes(turns: int, seconds: float) -> Table:
    """Compare sizes of batches."""
    table = Table(
        "adaptive sizes",
        f"PostgreSQL, always something to write; medians of {turns} turns",
        [Column("max_batch"), Column("rows/s", "count"), Column("of best", "percent")],
    )
    rates: dict[str, list[float]] = {}
    came_to = []
    async with postgres_sink(connections=2) as sink:
        for _ in range(turns):
            for size in SIZES:
                _, found, _ = await measured(sink, of_size(sink, size), 0.0, seconds)
                rates.setdefault(f"{size:,}", []).append(found)
            first, found, stats = await measured(
                sink, of_size(sink, "auto"), LEARNING, seconds
            )
            rates.setdefault("auto, its first 6 s", []).append(first)
            rates.setdefault("auto, after that", []).append(found)
            limit = stats.handlers[0].limit
            assert limit is not None
            came_to.append(limit.max_batch)
    _fill(table, rates, came_to)
    return table


async def counts(turns: int, seconds: float) -> Table:
    """Compare numbers of drain tasks."""
    table = Table(
        "adaptive drain tasks",
        f"PostgreSQL, 50 rows per batch; medians of {turns} turns",
        [
            Column("drain tasks"),
            Column("rows/s", "count"),
            Column("of best", "percent"),
        ],
    )
    rates: dict[str, list[float]] = {}
    came_to = []
    async with postgres_sink(connections=16) as sink:
        for _ in range(turns):
            for count in COUNTS:
                config = of_count(sink, DrainTaskPolicy.fixed(count))
                _, found, _ = await measured(sink, config, 0.0, seconds)
                rates.setdefault(f"{count}", []).append(found)
            config = of_count(sink, DrainTaskPolicy.adaptive(1, 16))
            first, found, stats = await measured(sink, config, LEARNING_COUNT, seconds)
            rates.setdefault("adaptive(1, 16), its first 15 s", []).append(first)
            rates.setdefault("adaptive(1, 16), after that", []).append(found)
            assert stats.drain_task_limit is not None
            came_to.append(stats.drain_task_limit.drain_tasks)
    _fill(table, rates, came_to)
    return table


def _fill(table: Table, rates: dict[str, list[float]], came_to: list[int]) -> None:
    medians = {name: statistics.median(each) for name, each in rates.items()}
    best = max(found for name, found in medians.items() if name[0].isdigit())
    for name, found in medians.items():
        table.add(name, found, found / best)
    table.notes.append(f"it came to {statistics.median(came_to):,.0f}")


class Throttled:
    """A server that takes 2 ms for a call and 10 us for an item, with its limits."""

    def __init__(self) -> None:
        self.largest = 10**9
        self.pause = 0.0
        self.allowed_at = 0.0
        self.refused = 0

    async def consume(self, batch: list[Any]) -> None:
        """Take a batch, or ask for a pause."""
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(0.001)
        if len(batch) > self.largest or now < self.allowed_at:
            self.refused += 1
            raise RetryAfter(max(0.05, self.allowed_at - now))
        self.allowed_at = now + self.pause
        await asyncio.sleep(0.001 + 1e-5 * len(batch))


async def throttling() -> Table:
    """Return how `max_batch="auto"` follows the server, minute by minute."""
    server = Throttled()
    retry = Retry(attempts=1_000, wait_initial=0.0)
    config = BatchQueueConfig[float](
        consumer=server.consume,
        max_batch="auto",
        buffer_size=BUFFER,
        retry=retry,
        shutdown_timeout=0.0,
    )
    table = Table(
        "throttled",
        'max_batch="auto" while a server throttles: minutes of virtual time',
        [
            Column("the server"),
            Column("items/s", "count"),
            Column("of what it allows", "percent"),
            Column("limit", "count"),
            Column("refused", "count"),
            Column("lowered by it", "count"),
        ],
    )
    async with BatchQueue("throttled", config) as queue:
        feed, before = full(queue), 0
        minutes = [
            ("takes anything", 10**9, 0.0, BUFFER / (0.002 + 1e-5 * BUFFER)),
            ("refuses more than 300", 300, 0.0, 300 / 0.005),
            ("takes anything again", 10**9, 0.0, BUFFER / (0.002 + 1e-5 * BUFFER)),
            ("takes 10 calls a second", 10**9, 0.1, BUFFER / 0.1),
            ("takes anything again", 10**9, 0.0, BUFFER / (0.002 + 1e-5 * BUFFER)),
        ]
        for name, server.largest, server.pause, allowed in minutes:
            server.refused = 0
            found = await rate(queue, feed, 60.0)
            limit = queue.stats().handlers[0].limit
            assert limit is not None
            lowered, before = limit.throttled - before, limit.throttled
            table.add(
                name, found, found / allowed, limit.max_batch, server.refused, lowered
            )
        await queue.shutdown(0.0)
    return table


def main(arguments: Sequence[str] = ()) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="adaptive", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one turn of 1 s each")
    quick = parser.parse_args(arguments).quick
    # Retries, and calls that a sweep's end cuts off, would hide the tables.
    logging.getLogger("batchqueue_async").setLevel(logging.CRITICAL)
    show(run_virtual(throttling()))
    turns, seconds = (1, 1.0) if quick else (TURNS, SECONDS)
    show(asyncio.run(sizes(turns, seconds)))
    show(asyncio.run(counts(turns, seconds)))


if __name__ == "__main__":
    main(sys.argv[1:])
