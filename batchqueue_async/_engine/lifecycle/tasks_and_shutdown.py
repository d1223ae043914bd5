"""The tasks of one queue, from their start until a shutdown's deadline at the latest.

These are its drain tasks, the task that rebalances, and the `on_close` calls.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Sequence
from contextvars import Context, copy_context
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from batchqueue_async._engine.draining.drain_task import DrainTask
from batchqueue_async._engine.handlers.handler_lock_and_call import outside
from batchqueue_async._engine.partitions.wait_for_room import withdraw_all
from batchqueue_async._engine.runtime.loop_end import (
    GRACE,
    LoopRegistry,
    cancel_for_good,
    is_ending,
)
from batchqueue_async._log import logger
from batchqueue_async._loop_close import expect_no_end
from batchqueue_async._loop_time import LoopTurn

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.registration import Registration
    from batchqueue_async._engine.lifecycle.rebalancer import Rebalancer
    from batchqueue_async._engine.queue_parts import Parts


class QueueTasks:
    """Starts a queue's tasks, wakes them, ends them; there are none before `start`."""

    __slots__ = (
        "_parts",
        "context",
        "drain_tasks",
        "rebalancer",
        "rebalancing",
        "running",
    )

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        # That of the start: a handler never runs in that of who revives its task.
        self.context: Context | None = None
        self.drain_tasks: list[DrainTask[Any]] = []
        # One for each drain task, in their order.
        self.running: list[asyncio.Task[None]] = []
        self.rebalancer: Rebalancer | None = None
        self.rebalancing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start them; again it starts those that a signal handler has left out."""
        parts = self._parts
        self.drain_tasks = self.drain_tasks or [
            DrainTask(index, parts) for index in range(parts.ownership.drain_tasks)
        ]
        parts.ownership.bind(tuple(each.nap for each in self.drain_tasks))
        parts.handlers.in_flight = self._in_flight
        for drain_task in self.drain_tasks[len(self.running) :]:
            self._run(drain_task)
        is_adaptive = parts.ownership.active is not None
        if (is_adaptive or parts.config.rebalancing) and len(self.drain_tasks) > 1:
            # Imported here: only programs that rebalance need the module.
            from batchqueue_async._engine.lifecycle.rebalancer import (  # noqa: PLC0415
                Rebalancer,
            )

            self.rebalancer = self.rebalancer or Rebalancer(parts)
            if self.rebalancing is None:
                self._rebalance(self.rebalancer)

    def close_partitions(self) -> None:
        """Let no more items in, and wake producers that wait for room."""
        for partition in self._parts.partitions:
            # A producer on a loop that has ended cannot be woken any more.
            with contextlib.suppress(RuntimeError):
                partition.close()

    def expect(self, *, is_due: bool) -> None:
        """Items come to many partitions: let no drain task sleep through them."""
        for drain_task in self.drain_tasks:
            drain_task.nap.expect(is_due=is_due)
        if is_due:
            self._bring_line_on()

    def wake(self) -> None:
        """Let every drain task look at its partitions again."""
        for drain_task in self.drain_tasks:
            drain_task.nap.wake()
        self._bring_line_on()

    def _bring_line_on(self) -> None:
        if (loop := self._parts.loop) is not None:
            LoopTurn.of(loop).ask_again()

    def drain(self) -> None:
        """Let the drain tasks end when all is drained."""
        if self.rebalancer is not None and self.rebalancing is not None:
            # First: drain tasks must not end while a partition has no owner.
            self.rebalancer.stop()
            cancel_for_good(self.rebalancing)
        for drain_task in self.drain_tasks:
            drain_task.finish_when_empty()
        self.revive()
        self.wake()

    def revive(self) -> None:
        """Start the tasks again that somebody cancelled, since the loop lives on."""
        if self.drain_tasks:
            LoopRegistry.of(asyncio.get_running_loop()).ensure_canary()
        for drain_task, task in zip_longest(self.drain_tasks, self.running):
            has_ended = task is None or task.done()
            drain_task.nap.be_revived(None)
            if drain_task.is_suspended and not has_ended:
                # Whoever cancelled all tasks waits for this one: its end revives it.
                continue
            is_dead = has_ended and drain_task.has_work_left
            drain_task.resume()
            if is_dead:
                self._run(drain_task)
        if self.rebalancer is not None and self.rebalancing is not None:
            is_running = all(each.is_running for each in self.drain_tasks)
            may_run = self.rebalancing.done() and _may_run_again(self.rebalancing)
            if may_run and is_running:
                self._rebalance(self.rebalancer)

    def suspend(self) -> None:
        """Let its tasks end: all of the loop are being cancelled."""
        if self.rebalancer is not None:
            self.rebalancer.is_suspended = True
        for drain_task in self.drain_tasks:
            drain_task.suspend()

    def stop(self) -> None:
        """Deliver nothing more: a deadline has come, or the loop ends."""
        if self.rebalancer is not None and self.rebalancing is not None:
            self.rebalancer.stop()
            if not self.rebalancing.done():
                cancel_for_good(self.rebalancing)
        for drain_task in self.drain_tasks:
            # A handler may swallow its cancellation: its drain task still stops.
            drain_task.stop()

    def end_after_loop(self) -> None:
        """Stop where the loop never runs again: nothing can be cancelled or awaited."""
        for drain_task in self.drain_tasks:
            drain_task.stop()
        for task in (*self.running, self.rebalancing):
            if task is not None:
                expect_no_end(task)

    def new_shutdown(self) -> Shutdown:
        return Shutdown(self._parts)

    def take_leftovers(self, left: list[Any]) -> None:
        """Move unhandled items to `left`, and book them as returned.

        If it was cut short it may be called again: what was moved is in `left`.
        """
        before = len(left)
        for drain_task in self.drain_tasks:
            drain_task.in_flight.sort_again()
            for batch in drain_task.in_flight.unsettled():
                batch.settle("returned", left)
                # A drain task or a handler that goes on may keep the batch for long.
                batch.items = []
        for partition in self._parts.partitions:
            if partition.line.unaware:
                withdraw_all(partition)
            partition.take_rest(left)
        if len(left) > before:
            self._parts.failures.add("returned", left[before:])

    @property
    def are_waited_for(self) -> bool:
        """Whether a producer waits for room, or a flush for what came before it."""
        every = self._parts.partitions
        return any(each.accounts.watchers or each.waiting_producers() for each in every)

    def _in_flight(self) -> list[Registration | None]:
        return [
            batch.registration
            for drain_task in self.drain_tasks
            for batch in drain_task.in_flight.unsettled()
        ]

    async def wait_for_rebalancing(self) -> None:
        """Wait for the task that rebalances, if there is one."""
        if self.rebalancing is not None:
            await asyncio.wait({self.rebalancing})

    def _rebalance(self, rebalancer: Rebalancer) -> None:
        rebalancer.is_suspended = False
        self.rebalancing = self._task(rebalancer.run(), "rebalancing")
        self.rebalancing.add_done_callback(self._rebalancing_ended)

    def _rebalancing_ended(self, ended: asyncio.Task[None]) -> None:
        if not _may_run_again(ended):
            _log_error(ended)
        elif self.drain_tasks[0].is_running and not is_ending(ended.get_loop()):
            # After Ctrl-C the loop may run again: rebalancing goes on then.
            self.revive()

    def _run(self, drain_task: DrainTask[Any]) -> None:
        index = drain_task.index
        task = self._task(drain_task.run(), f"drain task {index}")
        self.running[index : index + 1] = [task]
        task.add_done_callback(self._drain_task_ended)

    def _drain_task_ended(self, ended: asyncio.Task[None]) -> None:
        # Called here, since a second done callback costs an idle queue 130 bytes.
        if not _may_run_again(ended):
            _log_error(ended)
        if ended not in self.running:
            # It was started again already, for somebody who needed it.
            return
        drain_task = self.drain_tasks[self.running.index(ended)]
        if not drain_task.has_work_left:
            return
        drain_task.nap.be_revived(self._revive_if_loop_lives)
        if is_ending(ended.get_loop()):
            # While all tasks of the loop are being cancelled this is left to the
            # registry, if the loop goes on, or to whoever needs the task before.
            LoopRegistry.of(ended.get_loop()).look_for_waits()
        elif _may_run_again(ended):
            self.revive()

    def _revive_if_loop_lives(self) -> None:
        # While a loop ends, this is called by callbacks, by cancelled tasks, and by
        # coroutines that are collected after it: none of these may revive anything.
        running = asyncio._get_running_loop()  # noqa: SLF001
        task = None if running is None else asyncio.current_task()
        if task is not None and not task.cancelling():
            self.revive()
        elif running is not None:
            LoopRegistry.of(running).look_for_waits()

    def _task(self, body: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        if self.context is None:
            registry = LoopRegistry.of(asyncio.get_running_loop())
            # Outside of the call of a handler that may have started this queue.
            self.context = registry.shared(outside(copy_context))
        context = self.context.copy()  # An eager task may start others within `run`.
        name = f"{self._parts.name}: {name}"
        return context.run(asyncio.create_task, body, name=name)


class Shutdown:
    """One queue's shutdown; its deadlines hold however often `run` is cut short."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        # Not the running one: whoever is collected after the loop's end leaves, too.
        assert parts.loop is not None
        self._loop = parts.loop
        self._deadline: asyncio.Future[None] = self._loop.create_future()
        self._timers: list[asyncio.TimerHandle] = []
        self._ends_at: float | None = None
        # The `on_close` that runs.
        self._calling: tuple[Registration, asyncio.Task[None]] | None = None

    def end_within(self, timeout: float | None) -> None:
        """Set a deadline; of several, the earliest counts."""
        if self._loop.is_closed():
            return
        # Whoever asks once more may do so because nothing moves.
        self._parts.tasks.wake()
        if timeout is not None and not self._deadline.done():
            ends_at = self._loop.time() + timeout
            known = ends_at if self._ends_at is None else self._ends_at
            self._ends_at = min(known, ends_at)
            self._timers.append(self._loop.call_later(timeout, self.end_now))

    def end_now(self) -> None:
        if not self._deadline.done():
            self._deadline.set_result(None)

    async def run(self, left: list[Any]) -> None:
        """Drain until done or until the deadline; goes on where it was cancelled.

        Args:
            left: Gets what was not handled: what was in flight first, then what waited.
        """
        hooks = self._parts.hooks
        await self._drain()
        await self._wait_for(hooks.flushing)
        handlers = self._parts.handlers
        if handlers.have_on_close:
            await self._close_handlers()
        await self._stop()
        if handlers.have_on_close:
            hooks.skip(handlers.to_close())
        # From now on `end_within` sets no timer any more.
        self.end_now()
        for timer in self._timers:
            timer.cancel()
        if (calls := self._parts.running_calls).inside or calls.timer is not None:
            calls.stop()
        self._parts.tasks.take_leftovers(left)

    async def _drain(self) -> None:
        tasks = self._parts.tasks
        while not self._deadline.done():
            # Drain tasks that were cancelled meanwhile start again.
            tasks.revive()
            if all(task.done() for task in tasks.running):
                return
            await self._wait_for(tasks.running)

    async def _wait_for(self, tasks: Iterable[asyncio.Task[Any]]) -> bool:
        """Wait for the tasks; False if the deadline came first."""
        # One after the other: waiting for all anew as each one ends is quadratic.
        for task in [*tasks]:
            while not task.done() and not self._deadline.done():
                left = None
                if self._ends_at is not None:
                    left = max(0.0, self._ends_at - self._loop.time())
                await asyncio.wait(
                    {task, self._deadline},
                    timeout=left,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if self._ends_at is not None and self._loop.time() >= self._ends_at:
                    # A signal handler may have cut the timer's callback short.
                    self.end_now()
            if not task.done():
                return False
        return True

    async def _close_handlers(self) -> None:
        handlers, hooks = self._parts.handlers, self._parts.hooks
        await self._end_call()
        while not self._deadline.done() and (due := handlers.to_close()):
            for registration in due:
                if self._deadline.done():
                    return
                call = self._loop.create_task(
                    hooks.close(registration), name=f"on_close of {registration.label}"
                )
                self._calling = registration, call
                await self._end_call()

    async def _end_call(self) -> None:
        """Wait for the `on_close` that runs; at the deadline it is cut off."""
        if self._calling is None:
            return
        registration, call = self._calling
        if not await self._wait_for({call}):
            await self._cancel([call])
            self._parts.hooks.cut_off(registration)
        self._calling = None

    async def _stop(self) -> None:
        hooks = self._parts.hooks
        self._parts.tasks.stop()
        tasks = (*self._parts.tasks.running, *hooks.flushing)
        await self._cancel([each for each in tasks if not each.done()])
        if hooks.flushing:
            hooks.leave_flushes()

    async def _cancel(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        if not tasks:
            return
        for task in tasks:
            cancel_for_good(task)
        ended, survivors = await asyncio.wait(tasks, timeout=GRACE)
        for task in ended:
            # A task keeps its CancelledError until it is asked for, and with the error
            # the frame of the handler that was cut off, and the batch.
            with contextlib.suppress(asyncio.CancelledError):
                task.exception()
        for task in survivors:
            logger.error(
                "%s: a handler does not stop at the deadline; %s is left behind",
                self._parts.name,
                task.get_name(),
                queue=self._parts.name,
            )


def _may_run_again(ended: asyncio.Task[None]) -> bool:
    # A task that ended with an exception is not run again: it would raise again. Ctrl-C
    # ends the loop's run, too, but the loop may run again, as in a notebook.
    error = None if ended.cancelled() else ended.exception()
    return error is None or isinstance(error, (KeyboardInterrupt, SystemExit))


def _log_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.critical(
            "%s ended with an error, and its work is left undone",
            task.get_name(),
            exc_info=task.exception(),
            queue=task.get_name().rpartition(": ")[0],
        )
