"""One drain task: take what its partitions hold, deliver it, nap.

Invariant: a cycle is everything between two naps' ends and starts; handlers and hooks
are called inside of one only, so a handoff waits for the end of the old owner's cycle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

from batchqueue_async._engine.delivery import Delivery
from batchqueue_async._engine.doom import is_doomed, survive
from batchqueue_async._engine.hooks import Hooks
from batchqueue_async._engine.log import logger
from batchqueue_async._engine.nap import Nap
from batchqueue_async._engine.own_work import OwnWork
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.registration import Registration
from batchqueue_async._engine.schedule import Pace, Schedule, Share
from batchqueue_async._engine.taken import Taken

T = TypeVar("T")


# How long it waits before it tries again what failed for want of memory.
_RECOVERY = 1.0


@dataclass(frozen=True, slots=True)
class Work(Generic[T]):
    """What a drain task works with."""

    delivery: Delivery[T]
    hooks: Hooks
    own_work: OwnWork
    permit: AbstractAsyncContextManager[object]
    """Held during a cycle: the capacity that queues share, or nothing at all."""


class DrainTask(Generic[T]):
    """Empties the partitions that it owns; `run` is the task's body."""

    __slots__ = (
        "_cycle_ends",
        "_hooks",
        "_loop",
        "_max_batch",
        "_nap",
        "_permit",
        "_schedule",
        "_share",
        "busy",
        "cycles",
        "index",
        "is_closing",
        "is_finished",
        "is_in_cycle",
        "taken",
    )

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
        # Whether `run` came to its end by itself, and was not just cancelled.
        self.is_finished = False
        self._share = share
        self._max_batch = pace.max_batch
        self._schedule = Schedule(share, index, pace)
        self._hooks = work.hooks
        self._permit = work.permit
        self.taken = Taken(work.delivery, index)
        self._loop = asyncio.get_running_loop()
        self._nap = Nap(self._loop)
        self._cycle_ends: list[asyncio.Future[None]] = []

    async def run(self) -> None:
        """Drain until the queue closes and nothing of it is left here."""
        pause = 0.0
        while not self.is_finished:
            try:
                # An eager task gets here before those who start it know of it: handlers
                # that produce, or shut the queue down, come after.
                await asyncio.sleep(pause)
                await self._drain()
            except asyncio.CancelledError:
                if self.taken.is_stopped or is_doomed():
                    raise
                # What was taken is still known, so draining just goes on.
                survive()
                pause = 0.0
            except Exception:  # noqa: BLE001 - nor was there memory for each step
                task = asyncio.current_task()
                logger.exception("%s goes on", task.get_name() if task else self.index)
                pause = _RECOVERY

    async def _drain(self) -> None:
        empty_cycles = 0
        now = self._loop.time()
        while True:
            async with self._permit:
                started = now = max(now, self._loop.time())
                self.is_in_cycle = True
                try:
                    found = await self._cycle(now)
                finally:
                    # Cut short, it goes on in the next one, before any handoff.
                    if not self.taken.is_open:
                        self._end_cycle()
            self.is_finished = self.taken.is_stopped or self._has_drained()
            if self.is_finished:
                return
            if found:
                empty_cycles = 0
                now = await self._gather(started)
            else:
                self._nap.has_news = False
                until = self._schedule.nap_until(
                    self.taken.parked.dues(), empty_cycles, self._loop.time()
                )
                now = await self._nap.sleep(until)
                empty_cycles += 1

    def wake(self) -> None:
        """End a nap: something is to be done that cannot linger."""
        self._nap.wake()

    def notice(self, partition: Partition[T]) -> None:
        """An item, or a waiting producer, came to one of its partitions."""
        if self._nap.is_on:
            now = self._loop.time()
            self._nap.end_by(
                self._schedule.arrival_ends_nap(partition, self._nap.started, now)
            )
        else:
            # It may be too late to be seen: a `__del__` or a signal handler puts in
            # also between the look for what waits and the nap.
            self._nap.has_news = True

    def stop(self) -> None:
        """Deliver nothing more: the deadline has come, and all that is left returns."""
        self.taken.is_stopped = True

    def cycle_end(self) -> asyncio.Future[None]:
        """Return a future that is done when the cycle that runs now has ended."""
        end: asyncio.Future[None] = self._loop.create_future()
        if self.is_in_cycle:
            self._cycle_ends.append(end)
        else:
            end.set_result(None)
        return end

    async def _cycle(self, now: float) -> bool:
        """Do one round; returns whether anything was delivered."""
        started = self._loop.time()
        called: set[Registration | None] = set()
        found = False
        for due in self._due(now):
            self.taken.take(due, self._share.grouping(), self._max_batch, now)
            if self.taken.is_open:
                found = True
                if self._share.have_hooks:
                    called.update(self.taken.registrations())
                await self.taken.deliver()
            if self.taken.is_stopped:
                break
        self.cycles += found
        if self.taken.is_stopped:
            return found
        for registration in self._share.take_retired():
            await self._hooks.close(registration, self.index, self._share.is_in_use)
        handlers = self._share.handlers_of(self.index)
        if handlers and not self.is_closing and (found or not self._is_waited_for()):
            idle = [
                each
                for each in handlers
                if each not in called and not self._share.lingers_for(each)
            ]
            await self._hooks.idle(idle, max(now, self._loop.time()), self.index)
        self.busy += self._loop.time() - started
        return found

    def _due(self, now: float) -> Iterable[list[Partition[T]]]:
        """Return the partitions to take from, those together that are taken at once."""
        return ([],) if self.taken.is_open else self._schedule.due(now)

    def _is_waited_for(self) -> bool:
        return bool(self.taken.parked) or bool(self._schedule.waiting())

    async def _gather(self, started: float) -> float:
        now = self._loop.time()
        self._nap.has_news = False
        until = self._schedule.gather_until(started, now)
        return now if until <= now else await self._nap.sleep(until)

    def _has_drained(self) -> bool:
        if not self.is_closing or self.taken.parked:
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
