"""What one drain task has taken and not settled: to be delivered, or parked.

Invariant: what was taken is here until it is settled, so nothing is lost when the drain
task is cancelled, and a restarted one goes on with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Iterator, Sequence
from types import coroutine
from typing import Any, Generic, TypeVar

from batchqueue_async._engine.attempt import absorb_cancellation
from batchqueue_async._engine.batch import Batch
from batchqueue_async._engine.delivery import Delivery
from batchqueue_async._engine.grouping import Grouping
from batchqueue_async._engine.loop_turn import LoopTurn
from batchqueue_async._engine.parked import Parked
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.registration import Registration

T = TypeVar("T")

# What waits in more partitions than these does not stay in the processor's caches.
MANY = 64


class Taken(Generic[T]):
    """Takes from partitions, and delivers what it took, oldest first."""

    __slots__ = (
        "_delivery",
        "_drain_task",
        "_open",
        "_turn",
        "is_stopped",
        "parked",
        "task",
        "was_cut_short",
    )

    task: asyncio.Task[Any]
    """In which it is delivered now: the drain task's, which may be run again."""

    def __init__(self, delivery: Delivery[T], drain_task: int, turn: LoopTurn) -> None:
        self._delivery = delivery
        self._drain_task = drain_task
        self._turn = turn
        # The next one last: a stack takes a tenth of a deque's memory.
        self._open: list[Batch[T]] = []
        self.parked: Parked[T] = Parked(drain_task)
        # At the deadline nothing more is delivered: all that is left returns.
        self.is_stopped = False
        # Whether a delivery was cancelled for good since, and nobody has looked at the
        # batch that was in its hands.
        self.was_cut_short = False

    @property
    def is_open(self) -> bool:
        """Whether anything is to be delivered now: in a cycle, or if one was cut short.

        What a cycle that was cut short took comes before anything else.
        """
        return bool(self._open)

    def registrations(self) -> list[Registration | None]:
        """Return whose batches are to be delivered now."""
        return [batch.registration for batch in self._open]

    def unsettled(self) -> Iterator[Batch[T]]:
        """Return what was taken and has not ended, oldest first."""
        yield from (batch for batch in reversed(self._open) if not batch.is_settled)
        yield from (batch for batch in self.parked if not batch.is_settled)

    def take(
        self,
        partitions: list[Partition[T]],
        grouping: Grouping[T],
        most: int | None,
        now: float,
    ) -> int:
        """Take what is due: parked batches first, then from each of the partitions.

        Returns:
            How many items came out of the partitions.
        """
        count = 0
        collected = [] if self._open else self.parked.take_due(now)
        is_far = len(partitions) > MANY
        try:
            for partition in partitions:
                items = partition.take(most)
                count += len(items)
                if is_far:
                    _fetch(items)
                grouping.add(partition, items)
        finally:
            # Without the memory for the rest, what was taken is known all the same.
            collected.extend(grouping.batches(most))
            # Whatever a cancellation left there comes first.
            self._open[:0] = reversed(collected)
            for partition in partitions:
                # Items may have been displaced on a thread, which must not tell.
                partition.accounts.tell_watchers()
        return count

    async def deliver(self) -> None:
        """Have all that was taken handled, or parked, or failed for good."""
        settled: list[Batch[T]] = []
        try:
            if self.was_cut_short:
                self.was_cut_short = False
                await self._resume(settled)
            await self._deliver_open(settled)
        finally:
            # Not before its halves are through: a handoff would let items overtake.
            for batch in settled:
                batch.is_parked = False
                batch.release()
            settled.clear()

    async def _resume(self, settled: list[Batch[T]]) -> None:
        """Decide on the batch whose delivery was cancelled with the drain task."""
        batch = self._open[-1]
        if batch.is_settled:
            # In its `on_error`, or in the moment after its handler had returned.
            self._open.pop()
            if batch.is_parked:
                settled.append(batch)
        elif error := self._delivery.take_cut_off(batch):
            await self._fail(batch, error, settled)

    @coroutine
    def _deliver_open(self, settled: list[Batch[T]]) -> Generator[Any, None, None]:
        while self._open and not self.is_stopped:
            batch = self._open[-1]
            registration = batch.registration
            is_stuck = registration is not None and registration.gate.stuck
            if (is_stuck or self.parked.batches) and self.parked.must_wait(batch):
                self.parked.add(self._open.pop())
                del batch
                continue
            error = yield from self._delivery.deliver(batch, self._drain_task)
            if error is not None:
                yield from self._fail(batch, error, settled)
            else:
                self._open.pop()
                if batch.is_parked:
                    settled.append(batch)
            # An error that is kept may keep this frame, as that of its callers.
            del batch, error
            if self.task.cancelling():
                # By a handler, of the task it ran in.
                yield from absorb_cancellation()
            # After the last one the cycle's end sees to it.
            if self._open and self._turn.is_over():
                yield from self._turn.next()

    async def _fail(
        self, batch: Batch[T], error: BaseException, settled: list[Batch[T]]
    ) -> None:
        rest = await self._delivery.fail(batch, error, self._drain_task)
        self._open.pop()
        if rest and rest[0] is batch:
            self.parked.add(batch)
            return
        self._open.extend(reversed(rest))
        if batch.is_parked:
            settled.append(batch)


def _fetch(items: Sequence[object]) -> None:
    # They came long ago, among the others'. A copy fetches them into the processor's
    # caches all at once; sorting would wait for one by one.
    with contextlib.suppress(MemoryError):
        list(items)
