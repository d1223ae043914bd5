"""What one drain task has taken and not settled: to be delivered now, or later.

Invariants:
* What was taken is here until it is settled, so nothing is lost when the drain task is
  cancelled, and a restarted one goes on with it.
* No batch is delivered while one that was taken before it, for the same handler and
  from one of the same partitions, waits for its retry or has a handler at work that
  cannot be stopped (promises B1 and B3).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from types import coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from batchqueue_async._engine.draining.batch import Batch, grouping_of
from batchqueue_async._engine.draining.cut_causes import causes_of, note_cuts
from batchqueue_async._engine.draining.failed_batch import fail, report_retry
from batchqueue_async._engine.runtime.cancellation import absorb_cancellation
from batchqueue_async._policies.fairness import FairSelector

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.registry import Registration
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.parts import Parts
    from batchqueue_async._engine.runtime.loop_turn import LoopTurn

T = TypeVar("T")

BuffersToTake: TypeAlias = (
    "Callable[[Sequence[Partition[T]], int | None], list[Partition[T]]]"
)

# What waits in more partitions than these does not stay in the processor's caches.
MANY = 64


class InFlight(Generic[T]):
    """Takes from partitions, and delivers what it took, oldest first."""

    __slots__ = (
        "_buffers_to_take",
        "_delivery",
        "_drain_task",
        "_grouping",
        "_is_measured",
        "_is_plain",
        "_parts",
        "_turn",
        "is_stopped",
        "retries",
        "task",
        "undelivered",
        "was_cut_short",
    )

    task: asyncio.Task[Any]
    """In which it is delivered now: the drain task's, which may be run again."""

    def __init__(self, parts: Parts[T], drain_task: int, turn: LoopTurn) -> None:
        self._parts = parts
        self._delivery = parts.delivery
        self._grouping = grouping_of(parts)
        self._drain_task = drain_task
        self._turn = turn
        # Where keys share partitions, these are taken from buffer by buffer.
        self._buffers_to_take: BuffersToTake[T] | None = None
        if isinstance(parts.config.selector, FairSelector):
            # Here, since few programs need it.
            from batchqueue_async._engine.partitions.fair_partition import (  # noqa: PLC0415
                buffers_to_take,
            )

            self._buffers_to_take = buffers_to_take
        # Whether anybody asks why batches are cut.
        self._is_measured = parts.config.measure_handlers
        # Whether a take need not ask what few queues have.
        self._is_plain = not (self._buffers_to_take or self._is_measured or parts.room)
        # To be delivered now: in a cycle, or if one was cut short. What that took comes
        # before anything else. The next one last: a stack takes a tenth of a deque's
        # memory.
        self.undelivered: list[Batch[T]] = []
        self.retries: RetryQueue[T] = RetryQueue(drain_task)
        # At the deadline nothing more is delivered: all that is left returns.
        self.is_stopped = False
        # Whether a delivery was cancelled for good since, and nobody has looked at the
        # batch that was in its hands.
        self.was_cut_short = False

    def registrations(self) -> list[Registration | None]:
        """Return whose batches are to be delivered now."""
        return [batch.registration for batch in self.undelivered]

    def unsettled(self) -> Iterator[Batch[T]]:
        """Return what was taken and has not ended, oldest first."""
        yield from (
            batch for batch in reversed(self.undelivered) if not batch.is_settled
        )
        yield from (batch for batch in self.retries if not batch.is_settled)

    def take(
        self,
        partitions: list[Partition[T]],
        most: int | None,
        now: float,
    ) -> int:
        """Take what is due: batches to retry first, then from each of the partitions.

        Returns:
            How many items came out of the partitions.
        """
        if len(partitions) == 1 and self._is_plain and not self.retries.batches:
            return self._take_from(partitions[0], most)
        count, grouping = 0, self._grouping
        collected: list[Batch[T]] = []
        if self.retries.batches and not self.undelivered:
            collected = self.retries.take_due(now)
        is_far = len(partitions) > MANY
        if self._buffers_to_take is not None:
            partitions = self._buffers_to_take(partitions, most)
        causes = causes_of(partitions) if self._is_measured else None
        try:
            for partition in partitions:
                items = partition.take(most)
                count += len(items)
                if is_far:
                    _fetch(items)
                grouping.add(partition, items)
        finally:
            # Without the memory for the rest, what was taken is known all the same.
            batches = grouping.batches(most)
            if causes is not None:
                note_cuts(batches, causes)
            collected += batches
            # Whatever a cancellation left there comes first.
            self.undelivered[:0] = reversed(collected)
            for partition in partitions:
                # Items may have been displaced on a thread, which must not tell.
                if partition.accounts.watchers is not None:
                    partition.accounts.tell_watchers()
        return count

    def _take_from(self, partition: Partition[T], most: int | None) -> int:
        """Take from the only one: nearly always all of it is one batch."""
        items = partition.take(most)
        batch = self._grouping.sole_batch(partition, items)
        if batch is not None:
            self.undelivered.append(batch)
        else:
            try:
                self._grouping.add(partition, items)
            finally:
                self.undelivered[:0] = reversed(self._grouping.batches(most))
        if partition.accounts.watchers is not None:
            partition.accounts.tell_watchers()
        return len(items)

    @coroutine
    def deliver(self) -> Generator[Any, None, None]:
        """Have all that was taken handled, or deferred, or failed for good."""
        settled: list[Batch[T]] = []
        try:
            if self.was_cut_short:
                yield from self._resume(settled)
            while self.undelivered and not self.is_stopped:
                batch = self.undelivered[-1]
                registration = batch.registration
                if registration is None:
                    self._delivery.settle_unhandled(batch)
                    error = None
                elif (
                    self.retries.batches or registration.lock.stuck
                ) and self._is_deferred(batch):
                    del batch
                    continue
                else:
                    error = yield from self._delivery.deliver(
                        batch, registration, self._drain_task
                    )
                if error is None:
                    self.undelivered.pop()
                    if batch.is_deferred:
                        settled.append(batch)
                else:
                    yield from self._fail(batch, error, settled)
                # An error that is kept may keep this frame, as that of its callers.
                del batch, error
                if self.task.cancelling():
                    # By a handler, of the task it ran in.
                    yield from absorb_cancellation()
                # After the last one the cycle's end sees to it.
                if self.undelivered and self._turn.is_over():
                    yield from self._turn.next()
        finally:
            # Not before its halves are through: a handoff would let items overtake.
            _resume_partitions(settled)

    def _is_deferred(self, batch: Batch[T]) -> bool:
        """Whether it must not be delivered now; then it is among the retries."""
        if not self.retries.defer_if_blocked(batch):
            return False
        self.retries.add(self.undelivered.pop())
        return True

    async def _resume(self, settled: list[Batch[T]]) -> None:
        """Decide on the batch whose delivery was cancelled with the drain task."""
        self.was_cut_short = False
        batch = self.undelivered[-1]
        if batch.is_settled:
            # In its `on_error`, or in the moment after its handler had returned.
            self.undelivered.pop()
            if batch.is_deferred:
                settled.append(batch)
        elif error := self._delivery.take_cut_off(batch):
            await self._fail(batch, error, settled)

    async def _fail(
        self, batch: Batch[T], error: BaseException, settled: list[Batch[T]]
    ) -> None:
        if self.task.cancelling():
            await absorb_cancellation()
        rest = await fail(self._parts, batch, error, self._drain_task)
        self.undelivered.pop()
        if rest and rest[0] is batch:
            self.retries.add(batch)
            await report_retry(self._parts, batch, error, self._drain_task)
            return
        self.undelivered.extend(reversed(rest))
        if batch.is_deferred:
            settled.append(batch)


def _resume_partitions(settled: list[Batch[T]]) -> None:
    for batch in settled:
        batch.is_deferred = False
        batch.resume_partitions()
    settled.clear()


def _fetch(items: Sequence[object]) -> None:
    # They came long ago, among the others'. A copy fetches them into the processor's
    # caches all at once; sorting would wait for one by one.
    with contextlib.suppress(MemoryError):
        list(items)


class RetryQueue(Generic[T]):
    """Batches that wait for a next attempt, or behind one that does.

    In the order in which they came; their partitions are paused meanwhile.
    """

    __slots__ = ("_drain_task", "batches")

    def __init__(self, drain_task: int) -> None:
        self._drain_task = drain_task
        self.batches: list[Batch[T]] = []

    def __bool__(self) -> bool:
        return bool(self.batches)

    def __iter__(self) -> Iterator[Batch[T]]:
        return iter(self.batches)

    def add(self, batch: Batch[T]) -> None:
        if not batch.is_deferred:
            batch.is_deferred = True
            batch.pause_partitions()
        self.batches.append(batch)

    def defer_if_blocked(self, batch: Batch[T]) -> bool:
        """Whether it must not be delivered now; its `due` is when to look again."""
        ahead = [each.due for each in self.batches if batch.follows(each)]
        batch.due = max(ahead, default=batch.due)
        return bool(ahead) or batch.is_kept_out(self._drain_task)

    def take_due(self, now: float) -> list[Batch[T]]:
        """Take out what may be delivered now; its partitions stay paused."""
        staying: list[Batch[T]] = []
        due: list[Batch[T]] = []
        for batch in self.batches:
            stays = batch.due > now or batch.is_kept_out(self._drain_task)
            stays = stays or any(map(batch.follows, staying))
            (staying if stays else due).append(batch)
        self.batches = staying
        return [piece for each in due for piece in each.as_limited()]

    def dues(self) -> list[float]:
        """Return when to look again.

        What a stuck handler keeps out has no such time: the call's end wakes.
        """
        dues: list[float] = []
        kept_out: list[Batch[T]] = []
        for batch in self.batches:
            if batch.is_kept_out(self._drain_task) or any(map(batch.follows, kept_out)):
                kept_out.append(batch)
            else:
                dues.append(batch.due)
        return dues
