"""A handler that threads can stop and let go, and a queue that it has stalled."""

import asyncio
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    LoopThread,
    SyncBatchQueue,
    WhenFull,
)
from batchqueue_async._engine.partitions.partition import Partition
from tests.bridge.background import wait_until


class Gated:
    """Records each batch, then waits at its gate; open unless told otherwise."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self._passes: deque[None] = deque()
        self.batches: list[list[Any]] = []
        self.handled: list[Any] = []
        if is_open:
            self.gate.set()

    @property
    def items(self) -> list[Any]:
        return [item for batch in self.batches for item in batch]

    async def consume(self, batch: list[Any]) -> None:
        self.batches.append(list(batch))
        self.entered.set()
        # Without a time limit: some tests never let it go.
        while not self.gate.is_set() and not self._passes:  # noqa: ASYNC110 - by threads
            await asyncio.sleep(0.001)
        if self._passes:
            self._passes.popleft()
        self.handled += batch

    def let_one_batch_pass(self) -> None:
        """Let go the batch at the gate; return when the next one stands there."""
        self.entered.clear()
        self._passes.append(None)
        assert self.entered.wait(10)


@dataclass
class Stalled:
    """Item 0 is in the handler, items 1 to `buffer_size` fill the only partition."""

    sync_queue: SyncBatchQueue[Any]
    handler: Gated
    buffer_size: int

    def __post_init__(self) -> None:
        assert self.sync_queue.produce(0, timeout=5)
        assert self.handler.entered.wait(10)
        for item in range(1, self.buffer_size + 1):
            assert self.sync_queue.produce(item, timeout=0)

    @property
    def first_items(self) -> list[int]:
        return list(range(self.buffer_size + 1))

    @property
    def line_length(self) -> int:
        return len(partition_of(self.sync_queue).line)

    def wait_for_line(self, length: int) -> None:
        """Wait until so many producers stand in line."""
        wait_until(lambda: self.line_length == length)

    def release(self) -> None:
        self.handler.gate.set()


def stall(
    loop_thread: LoopThread,
    buffer_size: int = 2,
    *,
    name: str = "stalled",
    when_full: WhenFull = WhenFull.WAIT,
) -> Stalled:
    handler = Gated(is_open=False)
    config = BatchQueueConfig[Any](buffer_size=buffer_size, when_full=when_full)
    opened: SyncBatchQueue[Any] = loop_thread.open(name, config, {int: handler})
    return Stalled(opened, handler, buffer_size)


def partition_of(
    queue: SyncBatchQueue[Any] | BatchQueue[Any], index: int = 0
) -> Partition[Any]:
    """The partition itself: only inside of it one sees who stands in line."""
    inner = queue._queue if isinstance(queue, SyncBatchQueue) else queue
    return inner._parts.partitions[index]
