"""The library as a contender, and the floors that it is measured against."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    SyncBatchQueue,
    by_key,
)
from benchmarks.contender import BOUND, BlockingFeed, Feed, Handlers
from benchmarks.floor import FloorBridge, FloorQueue

Q = TypeVar("Q")

ONE_PARTITION = BatchQueueConfig[Any](
    buffer_size=BOUND, partitions=PartitionPolicy.fixed(1)
)


DRAIN_TASKS = 4


def adaptive(kinds: int) -> BatchQueueConfig[Any]:
    """Return what the main uses configure; all partitions together hold the bound."""
    partitions = PartitionPolicy.adaptive()
    return BatchQueueConfig(
        drain_tasks=DrainTaskPolicy.fixed(DRAIN_TASKS),
        buffer_size=BOUND // partitions.resolve(DRAIN_TASKS, kinds),
        partitions=partitions,
    )


def keyed(key: Callable[[Any], Any]) -> BatchQueueConfig[Any]:
    """Return settings by which equal keys share one of a few partitions."""
    return BatchQueueConfig(
        drain_tasks=DrainTaskPolicy.fixed(DRAIN_TASKS),
        buffer_size=BOUND // DRAIN_TASKS,
        partitions=PartitionPolicy.fixed(DRAIN_TASKS),
        selector=by_key(key),
    )


@asynccontextmanager
async def beside(drain: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a hand-written drain task until the end of the block."""
    task = asyncio.ensure_future(drain)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def each_awaited(put: Callable[[Any], Any], portions: Sequence[Any]) -> None:
    """Await one call for each portion."""
    for portion in portions:
        await put(portion)


def each_called(put: Callable[[Any], Any], portions: Sequence[Any]) -> None:
    """Make one call for each portion, on a thread."""
    for portion in portions:
        put(portion)


async def each_at_once(
    put_nowait: Callable[[Any], bool],
    put: Callable[[Any], Any],
    portions: Sequence[Any],
) -> None:
    """Await only where there is no room."""
    for portion in portions:
        if not put_nowait(portion):
            await put(portion)


def batch_queue(
    config: BatchQueueConfig[Any], feed_of: Callable[[BatchQueue[Any]], Any]
) -> Callable[[Handlers], Any]:
    """Return what opens the library's queue with these settings."""

    @asynccontextmanager
    async def opened(handlers: Handlers) -> AsyncIterator[Any]:
        async with BatchQueue("benchmark", config) as queue:
            for item_type, handle in handlers.items():
                queue.add_handler(item_type, handle)
            yield feed_of(queue)

    return opened


def consumer_queue(
    config: BatchQueueConfig[Any], feed_of: Callable[[BatchQueue[Any]], Any]
) -> Callable[[Handlers], Any]:
    """Return what opens the library's queue with the only handler as its consumer."""

    @asynccontextmanager
    async def opened(handlers: Handlers) -> AsyncIterator[Any]:
        (consumer,) = handlers.values()
        async with BatchQueue("benchmark", replace(config, consumer=consumer)) as queue:
            yield feed_of(queue)

    return opened


def floor(
    queue_type: Callable[[int, Handlers], Any], feed_of: Callable[[Any], Any]
) -> Callable[[Handlers], Any]:
    """Return what opens a floor."""

    @asynccontextmanager
    async def opened(handlers: Handlers) -> AsyncIterator[Any]:
        queue = queue_type(BOUND, handlers)
        async with beside(queue.drain()):
            yield feed_of(queue)

    return opened


def produce(queue: BatchQueue[Any]) -> Feed:
    """Feed item by item."""
    return lambda portions: each_awaited(queue.produce, portions)


def produce_nowait(queue: BatchQueue[Any]) -> Feed:
    """Feed item by item, without waiting where there is room."""
    return lambda portions: each_at_once(queue.produce_nowait, queue.produce, portions)


def produce_many(queue: BatchQueue[Any]) -> Feed:
    """Feed chunk by chunk."""
    return lambda portions: each_awaited(queue.produce_many, portions)


def bridge_produce(queue: BatchQueue[Any]) -> BlockingFeed:
    """Feed item by item from a thread."""
    put = SyncBatchQueue(queue).produce
    return lambda portions: each_called(put, portions)


def bridge_produce_many(queue: BatchQueue[Any]) -> BlockingFeed:
    """Feed chunk by chunk from a thread."""
    put = SyncBatchQueue(queue).produce_many
    return lambda portions: each_called(put, portions)


def floor_put(queue: FloorQueue) -> Feed:
    """Feed the floor item by item."""
    return lambda portions: each_awaited(queue.put, portions)


def floor_put_nowait(queue: FloorQueue) -> Feed:
    """Feed the floor item by item, without waiting where there is room."""
    return lambda portions: each_at_once(queue.put_nowait, queue.put, portions)


def floor_put_many(queue: FloorQueue) -> Feed:
    """Feed the floor chunk by chunk."""
    return lambda portions: each_awaited(queue.put_many, portions)


def floor_bridge_put(bridge: FloorBridge) -> BlockingFeed:
    """Feed the bridge's floor item by item."""
    return lambda portions: each_called(bridge.put, portions)


def floor_bridge_put_many(bridge: FloorBridge) -> BlockingFeed:
    """Feed the bridge's floor chunk by chunk."""
    return lambda portions: each_called(bridge.put_many, portions)
