"""One drain task: take what its partitions hold, deliver it, nap.

Invariant: a cycle is everything between two naps' ends and starts; handlers and hooks
are called inside of one only, so a handoff waits for the end of the old owner's cycle.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from batchqueue_async._engine.capacity import Permit
from batchqueue_async._engine.delivery import Delivery
from batchqueue_async._engine.doom import is_doomed, survive
from batchqueue_async._engine.gathering import Gathering
from batchqueue_async._engine.hooks import Hooks
from batchqueue_async._engine.log import logger
from batchqueue_async._engine.loop_turn import LoopTurn
from batchqueue_async._engine.nap import Nap
from batchqueue_async._engine.own_work import OwnWork
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.registration import Registration
from batchqueue_async._engine.schedule import Pace, Schedule, Share
from batchqueue_async._engine.taken import Taken

T = TypeVar("T")


# How long it waits before it tries again what failed for want of memory.
_RECOVERY = 1.0


@dataclass(slots=True, eq=False, repr=False)
class Work(Generic[T]):
    """What a drain task works with."""

    delivery: Delivery[T]
    hooks: Hooks
    own_work: OwnWork
    permit: Permit | None
    """Held during a cycle, where queues share drain tasks."""


class DrainTask(Generic[T]):
    """Empties the partitions that it owns; `run` is the task's body."""

    __slots__ = (
        "_cycle_ends",
        "_gathering",
        "_hooks",
        "_loop",
        "_max_batch",
        "_nap",
        "_permit",
        "_repeats",
        "_schedule",
        "_share",
        "_turn",
        "busy",
        "cycles",
        "index",
        "is_closing",
        "is_finished",
        "is_in_cycle",
        "is_paused",
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
        # Whether it is to end now, and may be run again later.
        self.is_paused = False
        self._share = share
        self._max_batch = pace.max_batch
        self._schedule = Schedule(share, index, pace)
        self._hooks = work.hooks
        self._repeats = work.hooks.repeats
        self._permit = work.permit
        self._loop = asyncio.get_running_loop()
        self._turn = LoopTurn.of(self._loop)
        self.taken = Taken(work.delivery, index, self._turn)
        self._nap = Nap(self._loop)
        self._gathering = Gathering(pace.idle.shortest)
        self._cycle_ends: list[asyncio.Future[None]] | None = None

    async def run(self) -> None:
        """Drain until the queue closes and nothing of it is left here.

        May be run again where it was cancelled: what was taken is still known.
        """
        pause = 0.0
        task = asyncio.current_task()
        assert task is not None
        self.taken.task = task
        self._turn.join()
        self.taken.was_cut_short = self.taken.is_open
        try:
            while not (self.is_finished or self.is_paused):
                try:
                    # An eager task gets here before those who start it know of it:
                    # handlers that produce, or shut the queue down, come after.
                    if pause:
                        await asyncio.sleep(pause)
                    await self._turn.next()
                    await self._drain()
                except asyncio.CancelledError:
                    if self.taken.is_stopped or is_doomed():
                        raise
                    # What was taken is still known, so draining just goes on.
                    survive()
                    pause = 0.0
                except Exception:  # noqa: BLE001 - nor was there memory for each step
                    self._log_going_on()
                    pause = _RECOVERY
        finally:
            self._turn.leave()

    async def _drain(self) -> None:
        empty_cycles = 0
        now = self._loop.time()
        while True:
            if self._permit is not None:
                await self._permit.acquire()
            # Before anything is taken: who stands in line does not hold up a handoff.
            if self._turn.is_over():
                await self._turn.next()
            started = now = max(now, self._loop.time())
            self.is_in_cycle = True
            try:
                found, items = await self._cycle(now)
            finally:
                # Cut short, it goes on in the next one, before any handoff.
                if not self.taken.is_open:
                    self._end_cycle()
                if self._permit is not None:
                    self._permit.lend()
            self.is_finished = self._is_over()
            if self.is_finished or self.is_paused:
                return
            if found:
                empty_cycles = 0
                self._gathering.delivered(items, started)
                waiting = await self._after(items)
                # Hooks are called in a cycle that finds nothing.
                if waiting or self._share.have_hooks or self.is_closing:
                    now = await self._gather(waiting, started)
                    continue
            else:
                waiting = self._look()
            until = self._schedule.nap_until(
                waiting, self.taken.parked.dues(), empty_cycles, self._loop.time()
            )
            now = await self._nap.sleep(until)
            empty_cycles += not found

    def _log_going_on(self) -> None:
        task = asyncio.current_task()
        logger.exception("%s goes on", task.get_name() if task else self.index)

    def wake(self) -> None:
        """End a nap: something is to be done that cannot linger."""
        self._nap.wake()

    def notice(self, partition: Partition[T], coming: int) -> None:
        """Items, or a waiting producer, came or come to one of its partitions.

        Args:
            partition: Where.
            coming: How many items will be there in a moment, and are not yet.
        """
        if self._nap.sleeper is None:
            # It may be too late to be seen: a `__del__` or a signal handler puts in
            # also between the look for what waits and the nap.
            self._nap.has_news = True
            return
        now, since = self._loop.time(), self._gathering_since()
        if partition.is_due(coming):
            until = now
        elif partition.items:
            until = self._schedule.arrival_ends_nap(partition, since, now)
        else:
            until = self._schedule.arrivals_end_nap(since, now)
        self._nap.end_by(until)

    def expect(self, *, is_due: bool) -> None:
        """Items come now to some of its partitions, which were empty or are due."""
        if self._nap.sleeper is None:
            self._nap.has_news = True
            return
        now, since = self._loop.time(), self._gathering_since()
        self._nap.end_by(now if is_due else self._schedule.arrivals_end_nap(since, now))

    def _gathering_since(self) -> float:
        # Of a nap its first part is kept, where that makes batches.
        return self._nap.started if self._gathering.pays else -math.inf

    def stop(self) -> None:
        """Deliver nothing more: the deadline has come, and all that is left returns."""
        self.is_paused = False
        self.taken.is_stopped = True

    def pause(self) -> None:
        """End after the handler call that runs: all tasks of the loop are cancelled.

        A handler that swallows its cancellation would keep the loop from ending.
        """
        if not self.taken.is_stopped:
            self.is_paused = self.taken.is_stopped = True

    def resume(self) -> None:
        """Undo `pause`: the loop lives on, or the queue is shut down first."""
        if self.is_paused:
            self.is_paused = self.taken.is_stopped = False

    @property
    def is_dead(self) -> bool:
        """Whether `run` has work left, for when its task has ended."""
        return not self.is_finished and (self.is_paused or not self.taken.is_stopped)

    def cycle_end(self) -> asyncio.Future[None]:
        """Return a future that is done when the cycle that runs now has ended."""
        end: asyncio.Future[None] = self._loop.create_future()
        if self.is_in_cycle:
            self._cycle_ends = [*(self._cycle_ends or ()), end]
        else:
            end.set_result(None)
        return end

    async def _cycle(self, now: float) -> tuple[bool, int]:
        """Do one round; returns whether anything was delivered, and items taken."""
        called: set[Registration | None] | None = None
        if self._share.have_hooks:
            called = set()
        found, items, taken = False, 0, self.taken
        for due in self._due(now):
            items += taken.take(due, self._share.grouping(), self._max_batch, now)
            if taken.is_open:
                # With many partitions: not the first part of what this cycle takes.
                if found and self._turn.is_over():
                    await self._turn.next()
                found = True
                if called is not None:
                    called.update(taken.registrations())
                await taken.deliver()
            if taken.is_stopped:
                self.cycles += found
                return found, items
        self.cycles += found
        if self._repeats.owed_at <= now:
            self._repeats.tell(now)
        if retired := self._share.take_retired():
            await self._close(retired)
        handlers = self._share.handlers_of(self.index)
        if handlers and not self.is_closing and (found or not self._is_waited_for()):
            idle = [
                each
                for each in handlers
                if each not in (called or ()) and not self._share.lingers_for(each)
            ]
            await self._hooks.idle(idle, max(now, self._loop.time()), self.index)
        self.busy += max(0.0, self._loop.time() - now)
        return found, items

    async def _close(self, retired: list[Registration]) -> None:
        try:
            for registration in retired:
                await self._hooks.close(registration, self.index, self._share.is_in_use)
        finally:
            # Cut short, it is still owed to those who have not got it.
            self._share.put_back(retired)

    def _due(self, now: float) -> Iterable[list[Partition[T]]]:
        """Return the partitions to take from, those together that are taken at once."""
        return ([],) if self.taken.is_open else self._schedule.due(now)

    def _is_waited_for(self) -> bool:
        return bool(self.taken.parked) or bool(self._schedule.waiting())

    async def _after(self, items: int) -> list[Partition[T]]:
        """Give the loop its turn after a cycle; returns what waits by then.

        Producers that were waiting for room use it. A lone item's cycle ends in a nap,
        which is a turn, too.
        """
        if items <= 1:
            waiting = self._look()
            if not waiting:
                return waiting
        self._turn.yields()
        await asyncio.sleep(0)
        self._turn.resumes()
        return self._look()

    def _look(self) -> list[Partition[T]]:
        """Return what waits; what comes after this look is news, and ends the nap."""
        self._nap.has_news = False
        return self._schedule.waiting()

    async def _gather(self, waiting: list[Partition[T]], started: float) -> float:
        """Let more gather where that makes batches; returns the time."""
        now = self._loop.time()
        if not waiting or not self._gathering.pays:
            return now
        until = self._schedule.gather_until(waiting, started, now)
        return now if until <= now else await self._nap.sleep(until)

    def _is_over(self) -> bool:
        if self.taken.is_stopped:
            return not self.is_paused
        if not self.is_closing or self.taken.parked:
            return False
        return not any(
            partition.items for partition in self._share.partitions_of(self.index)
        )

    def _end_cycle(self) -> None:
        self.is_in_cycle = False
        ends, self._cycle_ends = self._cycle_ends, None
        for end in ends or ():
            if not end.done():
                end.set_result(None)
