"""How other threads put where items have sizes: each is measured once, before all else.

On the thread that puts it, and without the guard: `size_of` may take its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar, cast

from batchqueue_async._bridge.thread_ingress import ThreadIngress, ThreadTally
from batchqueue_async._chunks import SIZED_LENGTH
from batchqueue_async._engine.partitions.byte_budget import (
    ByteBudget,
    measured,
    one_measured,
)
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.sized_partition import SizedPartition
from batchqueue_async._engine.queue_parts import Parts
from batchqueue_async._engine.sized_intake import measured_runs
from batchqueue_async._policies.errors import with_accepted

T = TypeVar("T")


class SizedIngress(ThreadIngress[T]):
    chunk_length = SIZED_LENGTH

    def __init__(
        self, parts: Parts, loop: asyncio.AbstractEventLoop, budget: ByteBudget
    ) -> None:
        super().__init__(parts, loop)
        self._budget = budget

    def put_chunk(self, chunk: Sequence[T], tally: ThreadTally) -> int:
        self._refuse_dead()
        known, error = measured(chunk, self._budget.measure)
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
        self._refuse_dead()
        try:
            size = self._budget.measure(item)
        except BaseException as error:
            with_accepted(error, 0)
            raise
        sized = cast("SizedPartition[T] | None", partition)
        if sized is not None and sized.put_one(item, size):
            return True
        run = one_measured(item, size)
        return self._put_alone(partition, run, timeout, patience)

    def _put_run(
        self, partition: Partition[T], run: Sequence[T], tally: ThreadTally
    ) -> int:
        placed = super()._put_run(partition, run, tally)
        if placed < len(run):
            # Wake the drain task: items that linger take the room that was missing.
            self.post(partition)
        return placed
