"""How other threads put where items have sizes: each is measured once, before all else.

On the thread that puts it, and without the guard: `size_of` may take its time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from batchqueue_async._bridge.thread_ingress import ThreadIngress, ThreadTally
from batchqueue_async._chunks import SIZED_LENGTH
from batchqueue_async._engine.partitions.byte_budget import (
    ByteBudget,
    measured,
    one_measured,
)
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.queue_parts import Parts
from batchqueue_async._engine.sized_intake import measured_runs
from batchqueue_async._policies.errors import with_accepted
from batchqueue_async._threads.guard import PAUSE

T = TypeVar("T")


class SizedIngress(ThreadIngress[T]):
    chunk_length = SIZED_LENGTH
    finds_partitions = True

    def __init__(
        self, parts: Parts, loop: asyncio.AbstractEventLoop, budget: ByteBudget
    ) -> None:
        super().__init__(parts, loop)
        self._measure = budget.measure
        self._lock = self.guard.lock
        self._sole = parts.placement.sole
        self._routes = parts.placement.routes
        self._has_selector = parts.placement.choose is not None

    def put_chunk(self, chunk: Sequence[T], tally: ThreadTally) -> int:
        self._refuse_dead()
        known, error = measured(chunk, self._measure)
        accepted = 0
        for partition, run in measured_runs(known, self.parts.placement):
            accepted += self._put_run(partition, run, tally)
        # If earlier items were refused, or late, the one that can't be measured may
        # never have had its turn: then its error isn't raised.
        is_reached = accepted == len(known) or not self._waits_when_full
        if error is not None and is_reached:
            raise error
        return accepted

    def put_one(
        self,
        partition: Partition[T] | None,
        item: T,
        timeout: float | None,
        patience: float,
    ) -> bool:
        try:
            sized: Any = self._sole or self._routes.get(type(item))
            if sized is None and self._has_selector:
                sized = self.parts.placement.partition_of(item)
            size = self._measure(item)
        except BaseException as error:
            with_accepted(error, 0)
            raise
        if type(size) is int and sized is not None:
            lock, is_in = self._lock, False
            # As `SyncBatchQueue.produce` does it.
            try:
                while not lock.acquire(False):  # noqa: FBT003
                    time.sleep(PAUSE)
                is_in = sized.put_one(item, size)
                lock.release()
                if is_in:
                    return True
            except BaseException as error:
                self.recover_guard()
                with_accepted(error, int(is_in))
                raise
        self._refuse_dead()
        return self._put_alone(sized, one_measured(item, size), timeout, patience)

    def _put_run(
        self, partition: Partition[T], run: Sequence[T], tally: ThreadTally
    ) -> int:
        placed = super()._put_run(partition, run, tally)
        if placed < len(run):
            # Wake the drain task: items that linger take the room that was missing.
            self.post(partition)
        return placed
