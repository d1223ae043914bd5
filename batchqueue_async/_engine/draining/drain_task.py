"""One drain task: take what its partitions hold, deliver it, nap.

Invariant: a cycle is everything from the end of a nap to the start of the next one.
`consume`, `on_idle` and `on_tick` are called only in a cycle, so a handoff waits for
the end of the old owner's cycle. `on_flush` and the last `on_close` run on tasks of
their own; the handler's lock keeps them apart from the calls of a cycle.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Generator
from enum import Enum
from types import coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from batchqueue_async._engine.draining.delivery import InFlight
from batchqueue_async._engine.draining.drops_and_unhandled import tell_counts
from batchqueue_async._engine.draining.linger_and_nap import Gathering, Nap, Schedule
from batchqueue_async._engine.handlers.hook_times import HookTimes
from batchqueue_async._engine.runtime.loop_end import is_cancelled_for_good, uncancel
from batchqueue_async._log import logger
from batchqueue_async._loop_time import LoopTurn, clock_of
from batchqueue_async._threads.clock import sleep

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.hook_times import HookKey
    from batchqueue_async._engine.handlers.registration import Registration
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.queue_parts import Parts

T = TypeVar("T")


# Seconds before a drain task goes on that has failed for want of memory.
_RECOVERY = 1.0
_NO_NAP = -math.inf


class Phase(Enum):
    """Where a drain task is in its life; it only goes on, never back."""

    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"
    FINISHED = "finished"


# Looked up once: on Python 3.11, enum access takes as long as a call does.
_RUNNING, _DRAINING = Phase.RUNNING, Phase.DRAINING
_STOPPED, _FINISHED = Phase.STOPPED, Phase.FINISHED


class DrainTask(Generic[T]):
    """Empties the partitions that it owns; `run` is the task's body."""

    __slots__ = (
        "_calls",
        "_clock",
        "_cycle_ends",
        "_gathering",
        "_hook_times",
        "_loop",
        "_parts",
        "_permit",
        "_phase",
        "_schedule",
        "_turn",
        "busy",
        "cycles",
        "in_flight",
        "index",
        "is_in_cycle",
        "is_suspended",
        "nap",
    )

    def __init__(self, index: int, parts: Parts) -> None:
        self.index = index
        self.cycles = 0
        self.busy = 0.0
        self.is_in_cycle = False
        self._phase = _RUNNING
        # Whether it is to end now, and may be run again later.
        self.is_suspended = False
        self._parts = parts
        self._schedule: Schedule[T] = Schedule(parts, index)
        # None until a handler has hooks: an idle queue is to be small.
        self._hook_times: HookTimes | None = None
        # Held during a cycle, where queues share drain tasks.
        self._permit = parts.detector.permit
        self._calls = parts.running_calls
        self._loop = asyncio.get_running_loop()
        self._clock = clock_of(self._loop)
        self._turn = LoopTurn.of(self._loop)
        self.in_flight: InFlight[T] = InFlight(parts, index, self._turn)
        self._gathering = Gathering(parts.config.idle.shortest)
        self.nap = Nap(self._loop, self._schedule, self._gathering)
        self._cycle_ends: list[asyncio.Future[None]] | None = None

    async def run(self) -> None:
        """Drain until the queue closes and nothing of it is left here.

        May be run again where it was cancelled: what was taken is still known.
        """
        pause = 0.0
        task = asyncio.current_task()
        assert task is not None
        self._turn.join()
        try:
            while not (self._phase is _FINISHED or self.is_suspended):
                try:
                    # An eager task gets here before the code that starts it knows it:
                    # yield before handlers produce, or shut the queue down.
                    await sleep(pause)
                    running = self._parts.tasks.running
                    if running[self.index : self.index + 1] != [task]:
                        # It was struck as it was started; another one is, or will be.
                        return
                    self.in_flight.task = task
                    self.in_flight.recover()
                    try:
                        await self._run_cycles()
                    except BaseException:
                        self._parts.hooks.recover(self.index)
                        raise
                except asyncio.CancelledError:
                    if self.in_flight.is_stopped or is_cancelled_for_good():
                        raise
                    # What was taken is still known, so draining just goes on.
                    uncancel()
                    pause = 0.0
                except BaseException:
                    if _ends_task(task):
                        raise
                    # No memory; a signal handler's; that of a task of a handler's.
                    self._log_going_on()
                    pause = _time_to_recover()
        finally:
            self._turn.leave()
            if self._calls.timer is not None:
                self._calls.stop_idle_timer()

    @coroutine
    def _run_cycles(self) -> Generator[Any, None, None]:
        now = self._clock()
        waiting: list[Partition[T]] | None = None
        began_turn = False
        while True:
            if self._permit is not None or (not began_turn and self._turn.is_over()):
                yield from self._wait_for_permit_and_turn()
                waiting = None
            # Not `max`, which takes as long as a call does: here it is one per batch.
            started = now = clock if (clock := self._clock()) > now else now
            waiting = self._waiting_now() if waiting is None else waiting
            self.is_in_cycle = True
            try:
                found, items = yield from self._cycle(waiting, now)
            finally:
                self._end_cycle()
            may_end = self._phase is not _RUNNING or self.in_flight.is_stopped
            if may_end and self._finish_if_done():
                return
            if found:
                self._gathering.delivered(items, started)
            # Producers that wait for room need a turn of the loop. The cycle of a lone
            # item ends in a nap, which is a turn, too.
            waiting, began_turn = (self._waiting_now() if items <= 1 else None), False
            if waiting is None or (found and waiting):
                self._turn.note_yield()
                self.nap.is_over_next_turn = True
                yield
                began_turn = self._turn.note_resume()
                waiting = self._waiting_now()
            until = self._nap_until(waiting, started, found=found)
            if until != _NO_NAP:
                if self._calls.timer is not None:
                    self._calls.stop_idle_timer()
                now = yield from self.nap.sleep(until)
                waiting, began_turn = None, False

    @coroutine
    def _wait_for_permit_and_turn(self) -> Generator[Any, None, None]:
        """Wait until it may work: nothing is taken before, so no handoff is held up."""
        if self._permit is not None:
            yield from self._permit.acquire()
        if self._turn.is_over():
            try:
                yield from self._turn.next()
            except BaseException:
                # The drain task may end here, so it lends its permit to others.
                if self._permit is not None:
                    self._permit.lend()
                raise

    def _nap_until(
        self, waiting: list[Partition[T]], started: float, *, found: bool
    ) -> float | None:
        """Return when the nap before the next cycle ends by itself, if it does."""
        if found:
            if waiting and self._gathering.pays and not waiting[0].is_due():
                now = self._clock()
                until = self._schedule.gather_until(waiting, started, now)
                return until if until > now else _NO_NAP
            if waiting or self._phase is _DRAINING:
                return _NO_NAP
        have_hooks = self._parts.handlers.have_hooks and self.is_running
        retries = self.in_flight.retries
        if not (waiting or have_hooks or retries.batches):
            # As after nearly all lone items: only an arrival ends the nap.
            return None
        now = self._clock()
        dues = retries.dues(now) if retries.batches else []
        if have_hooks and (due := self._due_hooks().next_due()) < math.inf:
            if found and due <= now:
                return _NO_NAP
            dues.append(due)
        return self._schedule.nap_until(waiting, dues, now)

    def _due_hooks(self) -> HookTimes:
        if self._hook_times is None:
            self._hook_times = HookTimes(self._parts, self.index)
        return self._hook_times

    def look_at_hook(self, key: HookKey, when: float) -> None:
        """Have a hook looked at no later than this, if it is one that this calls."""
        if self._hook_times is not None and self._hook_times.put_forward(key, when):
            self.nap.wake()

    def _log_going_on(self) -> None:
        task = asyncio.current_task()
        logger.exception(
            "%s goes on",
            task.get_name() if task else self.index,
            queue=self._parts.name,
            drain_task=self.index,
        )

    @property
    def is_running(self) -> bool:
        """Whether it goes on for as long as its queue does."""
        return self._phase is _RUNNING

    @property
    def has_work_left(self) -> bool:
        """Whether `run` is to be run again, where its task has ended."""
        if self._phase is _FINISHED:
            return False
        return self.is_suspended or self._phase is not _STOPPED

    def finish_when_empty(self) -> None:
        """End when nothing is left: the queue closes."""
        if self._phase is _RUNNING:
            self._phase = _DRAINING

    def stop(self) -> None:
        """Deliver nothing more: the deadline has come, and all that is left returns."""
        self.is_suspended = False
        self.in_flight.is_stopped = True
        if self._phase is not _FINISHED:
            self._phase = _STOPPED

    def suspend(self) -> None:
        """End after the handler call that runs: all tasks of the loop are cancelled.

        A handler that swallows its cancellation would keep the loop from ending.
        """
        if not self.in_flight.is_stopped:
            self.is_suspended = self.in_flight.is_stopped = True

    def resume(self) -> None:
        """Undo `suspend`: the loop lives on, or the queue is shut down first."""
        if self.is_suspended:
            self.is_suspended = self.in_flight.is_stopped = False

    def cycle_end(self) -> asyncio.Future[None]:
        """Return a future that is done when the cycle that runs now has ended."""
        end: asyncio.Future[None] = self._loop.create_future()
        if self.is_in_cycle:
            self._cycle_ends = [*(self._cycle_ends or ()), end]
        else:
            end.set_result(None)
        return end

    @coroutine
    def _cycle(
        self, waiting: list[Partition[T]], now: float
    ) -> Generator[Any, None, tuple[bool, int]]:
        """Do one round; returns whether anything was delivered, and items taken."""
        called: set[Registration | None] | None = None
        handlers, in_flight = self._parts.handlers, self.in_flight
        self._calls.is_first = True
        if handlers.have_hooks:
            called = set()
        found, items = False, 0
        # Batches that a cancelled cycle left go first, and alone.
        left = in_flight.undelivered
        for due in ([],) if left else self._schedule.due(waiting, now):
            items += in_flight.take(due, handlers.most_taken, now)
            if in_flight.undelivered:
                # A further part of a cycle that takes from many partitions.
                if found and self._turn.is_over():
                    yield from self._turn.next()
                found = True
                if called is not None:
                    called.update(each.registration for each in in_flight.undelivered)
                yield from in_flight.deliver()
            if in_flight.is_stopped:
                self.cycles += found
                return found, items
        self.cycles += found
        if self._parts.repeated_failures.owed_at <= now or self._parts.drops:
            tell_counts(self._parts, now)
        if handlers.has_retired and (retired := handlers.take_retired()):
            yield from self._close(retired)
        if called is not None:
            yield from self._call_hooks(called, now)
        # Not `max`, which is a call more.
        self.busy += seconds if (seconds := self._clock() - now) > 0.0 else 0.0
        return found, items

    async def _call_hooks(self, called: set[Registration | None], now: float) -> None:
        """Call `on_tick`; and `on_idle` of handlers for which nothing is there."""
        if self.is_running:
            await self._parts.hooks.call_due(
                self._due_hooks(),
                {each for each in called if each is not None},
                max(now, self._clock()),
                self.index,
            )

    async def _close(self, retired: list[Registration]) -> None:
        handlers = self._parts.handlers
        try:
            for registration in retired:
                await self._parts.hooks.close(
                    registration, self.index, handlers.is_in_use
                )
        finally:
            # If this was cut short, handlers that were not reached still need the call.
            handlers.put_back(retired)

    def _waiting_now(self) -> list[Partition[T]]:
        """Return what waits; what comes after this look is news, and ends the nap."""
        self.nap.has_news = self.nap.is_over_next_turn = False
        return self._schedule.waiting()

    def _finish_if_done(self) -> bool:
        """Whether `run` is to end: for good, unless it is suspended."""
        if not self.in_flight.is_stopped:
            if self._phase is _RUNNING or self.in_flight.retries.batches:
                return False
            if self._schedule.has_items():
                return False
        if not self.is_suspended:
            self._phase = _FINISHED
        return True

    def _end_cycle(self) -> None:
        # A cancelled cycle with batches left is not ended: handoffs wait until the next
        # one has delivered them.
        if not (self.in_flight.undelivered or self.in_flight.taking):
            self.is_in_cycle = False
            if self._cycle_ends is not None:
                ends, self._cycle_ends = self._cycle_ends, None
                for end in ends:
                    if not end.done():
                        end.set_result(None)
        if self._permit is not None:
            self._permit.lend()


def _ends_task(task: asyncio.Task[Any]) -> bool:
    """Whether an error ends the program, or the task's coroutine is being closed."""
    # A name for it in the drain task's frame would take memory in each queue.
    error = sys.exception()
    if isinstance(error, GeneratorExit):
        # If the task is at work, one that a handler awaits has raised it. Thrown in, it
        # has closed all that waits within, and so the handler, too.
        return asyncio.current_task(task.get_loop()) is not task
    return isinstance(error, KeyboardInterrupt | SystemExit)


def _time_to_recover() -> float:
    return 0.0 if isinstance(sys.exception(), GeneratorExit) else _RECOVERY
