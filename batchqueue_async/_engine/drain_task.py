"""One drain task: take what its partitions hold, deliver it, nap.

Invariants:
* A cycle is everything between two naps' ends and starts: handlers and hooks are only
  called inside of one, so a handoff waits for the end of the old owner's cycle.
* What was taken is in `_open` or `_parked` until it is settled, so nothing is lost
  when the drain task is cancelled, and a restarted one goes on with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from batchqueue_async._engine.batch import Batch
from batchqueue_async._engine.delivery import Delivery
from batchqueue_async._engine.grouping import Grouping
from batchqueue_async._engine.hooks import Hooks
from batchqueue_async._engine.nap import Nap
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.registration import Registration
from batchqueue_async._policies.backoff import IdleBackoff

T = TypeVar("T")


class Share(Protocol[T]):
    """What a drain task sees of its queue; asked anew in every cycle."""

    def partitions_of(self, drain_task: int) -> list[Partition[T]]:
        """Return the partitions that it owns now."""

    def handlers_of(self, drain_task: int) -> list[Registration]:
        """Return the handlers whose hooks it calls now."""

    def retired_of(self, drain_task: int) -> list[Registration]:
        """Take the handlers that are out of use and owed their `on_close`."""

    def grouping(self) -> Grouping[T]:
        """Return an empty grouping."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a drain task batches and naps."""

    idle: IdleBackoff
    linger: float
    max_batch: int | None
    # One batch for all partitions: when one is due, all are.
    is_one_batch: bool


@dataclass(frozen=True, slots=True)
class Work(Generic[T]):
    """What a drain task works with."""

    delivery: Delivery[T]
    hooks: Hooks
    permit: AbstractAsyncContextManager[object]
    """Held during a cycle: the capacity that queues share, or nothing at all."""


class DrainTask(Generic[T]):
    """Empties the partitions that it owns; `run` is the task's body."""

    def __init__(
        self,
        index: int,
        share: Share[T],
        pace: Pace,
        work: Work[T],
    ) -> None:
        self.index = index
        self.cycles = 0
        self.busy = 0.0
        self.is_closing = False
        self.is_in_cycle = False
        self._share = share
        self._pace = pace
        self._delivery = work.delivery
        self._hooks = work.hooks
        self._permit = work.permit
        self._open: deque[Batch[T]] = deque()
        self._parked: list[Batch[T]] = []
        self._loop = asyncio.get_running_loop()
        self._nap = Nap(self._loop)
        self._cycle_ends: list[asyncio.Future[None]] = []

    async def run(self) -> None:
        """Drain until the queue closes and nothing of it is left here."""
        empty_cycles = 0
        now = self._loop.time()
        while True:
            async with self._permit:
                started = now = max(now, self._loop.time())
                self.is_in_cycle = True
                try:
                    found = await self._cycle(now)
                finally:
                    self._end_cycle()
            if self._is_finished():
                return
            if found:
                empty_cycles = 0
                now = await self._pause(started + self._pace.idle.shortest)
            else:
                now = await self._nap.sleep(self._nap_end(empty_cycles))
                empty_cycles += 1

    def wake(self) -> None:
        """End a nap: something is to be done that cannot linger."""
        self._nap.wake()

    def notice(self, partition: Partition[T]) -> None:
        """An item, or a waiting producer, came to one of its partitions."""
        if not self._nap.is_on:
            return
        if partition.is_due:
            self._nap.wake()
        elif self._pace.linger and partition.since is not None:
            self._nap.end_by(partition.since + self._pace.linger)
        else:
            # The nap's first part is kept: it is what makes batches under load.
            shortest = self._pace.idle.shortest
            self._nap.end_by(max(self._loop.time(), self._nap.started + shortest))

    def cycle_end(self) -> asyncio.Future[None]:
        """Return a future that is done when the cycle that runs now has ended."""
        end: asyncio.Future[None] = self._loop.create_future()
        if self.is_in_cycle:
            self._cycle_ends.append(end)
        else:
            end.set_result(None)
        return end

    def unsettled(self) -> Iterator[Batch[T]]:
        """Return what was taken and has not ended, oldest first."""
        yield from (batch for batch in self._open if not batch.is_settled)
        yield from (batch for batch in self._parked if not batch.is_settled)

    async def _cycle(self, now: float) -> bool:
        """Do one round; returns whether anything was delivered."""
        started = self._loop.time()
        handlers = self._share.handlers_of(self.index)
        self._collect(now)
        found = bool(self._open)
        called = {batch.registration for batch in self._open}
        if found:
            await self._deliver()
            self.cycles += 1
        if not self._parked:
            for registration in self._share.retired_of(self.index):
                await self._hooks.close(registration)
        if self._hooks.has_flushes:
            await self._hooks.flush(handlers, self.index)
        if handlers and not self.is_closing and (found or not self._has_waiting()):
            await self._hooks.idle(handlers, called, self.index)
        self.busy += self._loop.time() - started
        return found

    def _collect(self, now: float) -> None:
        """Take what is due: parked batches first, then from each partition."""
        for batch in [each for each in self._parked if each.due <= now]:
            # Its partitions stay held: one take at a time.
            self._parked.remove(batch)
            self._open.append(batch)
        grouping = self._share.grouping()
        for partition in self._due_partitions(now):
            grouping.add(partition, partition.take(self._pace.max_batch))
        self._open.extend(grouping.batches(self._pace.max_batch))

    def _due_partitions(self, now: float) -> list[Partition[T]]:
        waiting = self._waiting_partitions()
        if not self._pace.linger:
            return waiting
        due = [each for each in waiting if self._due_at(each, now) <= now]
        return waiting if due and self._pace.is_one_batch else due

    def _waiting_partitions(self) -> list[Partition[T]]:
        return [
            partition
            for partition in self._share.partitions_of(self.index)
            if partition.items and not partition.is_held
        ]

    def _has_waiting(self) -> bool:
        return bool(self._parked) or bool(self._waiting_partitions())

    def _due_at(self, partition: Partition[T], now: float) -> float:
        if partition.is_due:
            return now
        if partition.since is None:
            partition.since = now
        return partition.since + self._pace.linger

    async def _deliver(self) -> None:
        while self._open:
            batch = self._open[0]
            rest = await self._delivery.deliver(batch, self.index)
            self._open.popleft()
            if batch.is_parked:
                batch.is_parked = False
                batch.release()
            if rest == [batch]:
                batch.is_parked = True
                batch.hold()
                self._parked.append(batch)
            else:
                self._open.extendleft(reversed(rest))
            # Producers, on the loop or on threads, get their turn after every call.
            await asyncio.sleep(0)

    async def _pause(self, until: float) -> float:
        """Let items gather after a quick cycle, unless something is due.

        Nothing waits longer than the shortest nap for it: what waits now came after
        the cycle's start. Without it, fast producers on threads get tiny batches.
        """
        waiting = self._waiting_partitions()
        now = self._loop.time()
        if (
            not waiting
            or until <= now
            or self._pace.linger
            or any(each.is_due for each in waiting)
        ):
            return now
        return await self._nap.sleep(until)

    def _nap_end(self, empty_cycles: int) -> float | None:
        now = self._loop.time()
        ends = [batch.due for batch in self._parked]
        waiting = self._waiting_partitions()
        if waiting and self._pace.linger:
            ends.extend(self._due_at(each, now) for each in waiting)
        elif waiting:
            ends.append(now)
        if any(each.on_idle for each in self._share.handlers_of(self.index)):
            ends.append(now + self._pace.idle.delay(empty_cycles))
        return min(ends, default=None)

    def _is_finished(self) -> bool:
        if not self.is_closing or self._parked:
            return False
        return not any(
            partition.items for partition in self._share.partitions_of(self.index)
        )

    def _end_cycle(self) -> None:
        self.is_in_cycle = False
        for end in self._cycle_ends:
            if not end.done():
                end.set_result(None)
        self._cycle_ends.clear()
