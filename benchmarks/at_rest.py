"""What it costs when nothing happens: idle queues, waiting items, handlers."""

import asyncio
import gc
import statistics
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from typing import Any

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
)
from benchmarks.scale import Scale
from benchmarks.table import Column, Table

IDLE = (1, 1_000, 10_000)
WEIGHTS = [1.0] * 642 + [0.05] * 1_247
"""The original's handlers: 1,889, whose weights say how many partitions they need."""


async def handle(batch: list[Any]) -> None:
    """Do nothing."""


class Memory:
    """How many bytes were allocated and not freed in a block."""

    grown = 0


@contextmanager
def allocated() -> Iterator[Memory]:
    """Measure what the block leaves in memory."""
    memory = Memory()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield memory
        gc.collect()
        memory.grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def idle_table(scale: Scale) -> Table:
    """Measure idle queues with a handler each."""
    table = Table(
        "idle",
        "Idle queues, one handler each",
        [
            Column("queues"),
            Column("CPU of a core", "percent"),
            Column("bytes each", "bytes"),
        ],
    )
    for count in IDLE[: scale.of(3, 2)]:
        cpu, size = asyncio.run(_idle(count, scale.of(4.0, 0.5)))
        table.add(f"{count:,}", cpu, size)
    return table


async def _idle(count: int, seconds: float) -> tuple[float, float]:
    async with AsyncExitStack() as stack:
        with allocated() as memory:
            for number in range(count):
                queue = BatchQueue[Any](f"idle {number}")
                await stack.enter_async_context(queue)
                queue.add_handler(int, handle)
            # Until all have had their first cycle, one after the other, and nap.
            await asyncio.sleep(max(0.1, count / 2000))
        cpu, started = time.process_time(), time.perf_counter()
        await asyncio.sleep(seconds)
        used = (time.process_time() - cpu) / (time.perf_counter() - started)
    return used, memory.grown / count


def waiting_table(scale: Scale) -> Table:
    """Measure what an item that waits takes beyond the item."""
    table = Table(
        "waiting",
        "A waiting item, beyond the item",
        [Column("produced"), Column("bytes each", "bytes")],
    )
    count = scale.of(200_000, 50_000)
    linger = BatchQueueConfig[Any](buffer_size=2 * count, linger=60.0)
    plain = replace(linger, linger=0.0)
    item = object()

    async def one_by_one(queue: BatchQueue[Any]) -> None:
        for _ in range(count):
            await queue.produce(item)

    async def in_chunks(queue: BatchQueue[Any]) -> None:
        for _ in range(count // 1000):
            await queue.produce_many([item] * 1000)

    for name, config, produce in (
        ("one by one", plain, one_by_one),
        ("one by one, linger", linger, one_by_one),
        ("in chunks of 1000", plain, in_chunks),
        ("in chunks of 1000, linger", linger, in_chunks),
    ):
        table.add(name, asyncio.run(_waiting(config, produce)) / count)
    return table


async def _waiting(
    config: BatchQueueConfig[Any], produce: Callable[[BatchQueue[Any]], Awaitable[None]]
) -> float:
    async with BatchQueue("waiting", config) as queue:
        queue.add_handler(object, handle)
        await asyncio.sleep(0.01)
        with allocated() as memory:
            await produce(queue)
        assert queue.stats().waiting
        await queue.shutdown(timeout=0)
    return memory.grown


def handlers_table(scale: Scale) -> Table:
    """Measure the registration of as many handlers as the original has."""
    types = [type(f"Type{n}", (), {}) for n in range(len(WEIGHTS))]
    seconds = [asyncio.run(_register(types))[0] for _ in range(scale.of(7, 5))]
    with_memory = asyncio.run(_register(types, is_traced=True))
    table = Table(
        "handlers",
        f"{len(WEIGHTS):,} handlers, adaptive partitions, 8 drain tasks",
        [
            Column("what"),
            Column("milliseconds", "millis"),
            Column("bytes each", "bytes"),
            Column("partitions", "count"),
        ],
    )
    _, size, partitions = with_memory
    table.add("add_handler", statistics.median(seconds), size, partitions)
    return table


async def _register(
    types: list[type], *, is_traced: bool = False
) -> tuple[float, float, float]:
    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(8), partitions=PartitionPolicy.adaptive()
    )

    def register() -> float:
        started = time.perf_counter()
        for item_type, weight in zip(types, WEIGHTS, strict=True):
            queue.add_handler(item_type, handle, weight)
        return time.perf_counter() - started

    async with BatchQueue("handlers", config) as queue:
        if not is_traced:
            return register(), 0.0, 0.0
        with allocated() as memory:
            seconds = register()
        size = memory.grown / len(types)
        return seconds, size, len(queue.stats().partitions)
