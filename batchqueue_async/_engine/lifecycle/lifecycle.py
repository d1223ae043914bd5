"""A queue from its start to its end: by its shutdown, with its loop, or after its loop.

Invariant: however the queue ends, unhandled items are in `leftovers` until a caller of
`shutdown` has got them, or they were logged and given to `on_error`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from batchqueue_async._engine.draining.drops_and_unhandled import tell_counts
from batchqueue_async._engine.handlers.deadlock_detector import EndWait
from batchqueue_async._engine.handlers.handler_lock_and_call import (
    current_call,
    handler_call,
    outside,
)
from batchqueue_async._engine.handlers.wait_for_graph import Node, end_of
from batchqueue_async._engine.lifecycle.state import (
    ENDED,
    State,
    bind_to_running_loop,
    open_to_threads,
    require_own_loop,
)
from batchqueue_async._engine.lifecycle.tell_leftovers import (
    say_lost,
    say_unfetched,
    tell_leftovers,
    tell_leftovers_after_loop,
)
from batchqueue_async._engine.runtime.forking import abandon_after_fork
from batchqueue_async._engine.runtime.loop_end import LoopRegistry, is_ending
from batchqueue_async._log import logger
from batchqueue_async._loop_time import ThreadUse, clock_of
from batchqueue_async._policies.choices import SHUTDOWN_TIMEOUT, Timeout
from batchqueue_async._policies.drain_tasks import SharedDrainTasks
from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._shielding import Shielded, backend_is_where_it_was
from batchqueue_async._validation import require_timeout

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.shared_drain_tasks import SharedPermits
    from batchqueue_async._engine.lifecycle.tasks_and_shutdown import Shutdown
    from batchqueue_async._engine.queue_parts import Parts


class Lifecycle:
    """Starts one queue, and ends it, whoever asks for that, and however often."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        # The queue object that the user holds.
        self.queue: object = None
        # Set by a manager, so that it does not keep a queue that was shut down.
        self.on_closed: Callable[[], None] | None = None
        self._is_started = False  # A signal handler may cut `start` short.
        self._shutdown: Shutdown | None = None
        self._task: asyncio.Task[None] | None = None
        # Closed, but known to its registry or manager: a strike may come in between.
        self._is_releasing = False
        self._callers = 0  # Calls of `shutdown` that wait: one of them gets the list.
        # Unhandled items of an ended queue, which a call of `shutdown` may still fetch.
        self.leftovers: list[Any] = []
        self._tells_leftovers = False

    @property
    def name(self) -> str:
        return self.parts.name

    async def start(self, shared_permits: SharedPermits | None = None) -> None:
        """Bind the queue to the running loop, and drain from now on.

        Args:
            shared_permits: The manager's; without them no other queue shares with it.
        """
        parts = self.parts
        if parts.state is State.RUNNING:
            require_own_loop(parts)
            if self._is_started:
                return
        elif parts.state is not State.NEW:
            msg = f"queue {parts.name!r} was shut down and cannot be started again"
            raise BatchQueueError(msg)
        loop = bind_to_running_loop(parts)
        drain_tasks = parts.config.drain_tasks
        if isinstance(drain_tasks, SharedDrainTasks) and parts.detector.permit is None:
            # Imported here: only programs that share drain tasks need the module.
            from batchqueue_async._engine.draining import shared_drain_tasks  # noqa: PLC0415

            shared = shared_permits or shared_drain_tasks.SharedPermits()
            parts.detector.permit = shared.permit_of(drain_tasks)
        backend_is_where_it_was()
        abandon_after_fork(self)
        parts.running_calls.clock = clock_of(loop)
        parts.running_calls.thread = ThreadUse.of(loop)
        parts.tasks.start()
        parts.batch_terms.open(self._time_here)
        if parts.config.threads:
            open_to_threads(parts)
        await LoopRegistry.of(loop).register(self)
        parts.handlers.attach(self, parts.detector)
        self._is_started = True

    def _time_here(self) -> float | None:
        """Return the loop's time; None on other threads, where it may be stale."""
        running = asyncio._get_running_loop()  # noqa: SLF001
        return running.time() if running and running is self.parts.loop else None

    def count_left(self) -> int:
        return sum(
            len(each.items) + each.accounts.in_flight for each in self.parts.partitions
        )

    async def shutdown(self, timeout: float | None) -> list[Any]:
        """Shut down, and return the items that were unhandled at the deadline."""
        require_timeout("timeout", timeout)
        parts = self.parts
        if parts.state is State.NEW:
            parts.state = State.CLOSED
            parts.tasks.close_partitions()
        if asyncio._get_running_loop() is not parts.loop:  # noqa: SLF001
            require_own_loop(parts)
        if parts.loop is None or parts.state is State.INHERITED:
            return []
        self._begin(timeout)
        if handler_call(parts.detector) is not None:
            return []
        self._callers += 1
        is_there = False
        try:
            await self._wait_for_end()
            is_there = True
        finally:
            self._callers -= 1
            if not is_there:
                self._say_unfetched()
        left, self.leftovers = self.leftovers, []
        try:
            self._tell_manager()
        except BaseException:
            self.give_back(left)  # For the next call.
            raise
        return left

    def shorten_deadline(self, timeout: float) -> None:
        """Bring the deadline of a shutdown that is under way forward."""
        if self._shutdown is not None:
            self._shutdown.end_within(timeout)

    async def close(self, timeout: Timeout) -> None:
        """Shut down; log leftovers and give them to `on_error`: none is lost silently.

        Also if the caller is cancelled meanwhile, and so gets no list of them.
        """
        if timeout is SHUTDOWN_TIMEOUT:
            timeout = self.parts.config.shutdown_timeout
        require_timeout("timeout", timeout)
        with Shielded():
            self._tells_leftovers = True
            left = await self.shutdown(timeout)
            # No call in between. What is left here an earlier shutdown left unfetched.
            self.leftovers += left
            if left:
                self._registry().keep_unfetched(self)
                await self._tell_leftovers()
                self._tell_manager()

    def give_back(self, left: list[Any]) -> None:
        """Take leftovers back from a caller of `shutdown` that has no use for them."""
        self.leftovers += left
        left.clear()
        self._registry().keep_unfetched(self)
        self._say_unfetched()
        self._tell_manager()

    async def end_with_loop(self) -> int | None:
        """Give up unhandled items, as the loop ends; it still runs until this is done.

        Returns:
            How many items were left; None if there was a shutdown after all.
        """
        parts, count = self.parts, None
        while parts.state in (State.RUNNING, State.CLOSING):
            task = self._task
            if self._shutdown is not None and task is not None and not task.done():
                # A shutdown is under way: let it finish, within the configured timeout.
                self._shutdown.end_within(parts.config.shutdown_timeout)
                await asyncio.wait({task})
            else:
                count = await self._give_up()
        if not self._callers:
            await tell_leftovers(parts, self.leftovers, self._loop_ended(count))
        return count

    async def _give_up(self) -> int:
        parts = self.parts
        if parts.state is State.RUNNING:
            parts.state = State.LOST
        parts.tasks.close_partitions()
        shutdown = self._shutdown = self._shutdown or parts.tasks.new_shutdown()
        shutdown.end_now()
        await shutdown.run(self.leftovers)
        await self._release()
        return len(self.leftovers)

    def end_after_loop(self) -> int | None:
        """Give up unhandled items: the loop never runs again."""
        parts, count = self.parts, None
        self._task = None  # Where it did not end it never will.
        if parts.loop is not None and parts.state is not State.CLOSED:
            parts.state = State.CLOSED if parts.state is State.CLOSING else State.LOST
            parts.tasks.close_partitions()
            for partition in parts.partitions:
                partition.accounts.watchers = None  # Waiting flushes cannot be woken.
            parts.tasks.end_after_loop()
            parts.tasks.take_leftovers(self.leftovers)
            self.tell_last_counts()
            if skipped := parts.handlers.to_close():
                parts.hooks.skip(skipped)
            parts.handlers.detach()
            count = len(self.leftovers)
        tell_leftovers_after_loop(parts, self.leftovers, self._loop_ended(count))
        return count

    def could_not_end(self, error: BaseException) -> None:
        """Log what ending the queue, at its loop's end, has raised."""
        says, name = "queue %r could not be ended", self.name
        logger.error(says, name, exc_info=error, queue=name)

    def say_lost(self) -> bool:
        """Log what is lost, if anything is: the program ends, while the loop runs."""
        self.tell_last_counts()
        if count := self.count_left():
            say_lost(self.parts, count)
        return count > 0

    def tell_last_counts(self) -> None:
        """Log the counts that are not in the log yet, before leftovers are reported."""
        parts = self.parts
        if parts.repeated_failures.owed_at < math.inf or parts.drops is not None:
            tell_counts(parts, math.inf)

    def _loop_ended(self, count: int | None) -> str:
        if count is None:
            return (
                f"nobody came for the {len(self.leftovers)} items that the "
                f"shutdown of {self.parts.name!r} had left before its loop ended"
            )
        return (
            f"the loop of queue {self.parts.name!r} ended without its shutdown: "
            f"{count} items are left"
        )

    def _begin(self, timeout: float | None = None) -> None:
        parts, task = self.parts, self._task
        shutdown = self._shutdown = self._shutdown or parts.tasks.new_shutdown()
        begins = self._is_to_end() and (task is None or _is_cut_short(task))
        if begins:
            if parts.state is State.RUNNING:
                parts.state = State.CLOSING
            parts.tasks.close_partitions()
            # Before `create_task`, inside of which an eager task may run to its end.
            parts.tasks.drain()
        # So is this: the task has a timer of its own for the deadline that it knows.
        shutdown.end_within(timeout)
        if begins:
            create = asyncio.get_running_loop().create_task
            self._task = task = outside(create, self._run(shutdown))
            task.add_done_callback(self._task_ended)

    def _is_to_end(self) -> bool:
        running = asyncio._get_running_loop()  # noqa: SLF001
        is_releasing = self._is_releasing and running is self.parts.loop
        return is_releasing or self.parts.state not in ENDED

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        is_stray = task.cancelled() and not is_ending(task.get_loop())
        if is_stray and task is self._task:
            # User code has cancelled it: resume. At a loop's end the registry does it.
            self.resume()

    async def _wait_for_end(self) -> None:
        call, parts = current_call(), self.parts
        if call is None:
            await self.ended()
            return
        what = f"{parts.name!r}, which goes on closing"
        async with EndWait(call, self._ends, what) as wait:
            wait.begin()
            await self.ended(wait)

    def _ends(self) -> Collection[Node]:
        return () if self.parts.state in ENDED else end_of(self.parts.detector)

    async def ended(self, wait: EndWait | None = None) -> None:
        """Wait for the end of a shutdown that is under way.

        Args:
            wait: That of a calling handler; it is refused if it would await itself.

        Raises:
            CancelledError: The caller was cancelled, or user code has cancelled the
                task that it waits for; the shutdown goes on by itself.
        """
        while True:
            self._begin()
            task = self._task
            if task is None or task.done():
                break
            # If the task is being cancelled already, as all are when a runner ends, or
            # the caller leaves `async with`, it is begun again instead of raising.
            goes_on = task.cancelling() > 0
            if wait is None:
                await asyncio.wait({task})
            else:
                await wait.until(task)
            if task.cancelled() and not (goes_on or self._tells_leftovers):
                raise asyncio.CancelledError
            error = None if task.cancelled() or not task.done() else task.exception()
            if error and not isinstance(error, (KeyboardInterrupt, SystemExit)):
                break  # Raised below. After Ctrl-C the loop runs again: go on.
        if task is not None and not task.cancelled():
            task.result()

    async def _run(self, shutdown: Shutdown) -> None:
        await shutdown.run(self.leftovers)
        self.tell_last_counts()
        if self._tells_leftovers:
            await self._tell_leftovers()
        await self._release()
        self._say_unfetched()
        self._tell_manager()
        self._is_releasing = False

    async def _release(self) -> None:
        parts = self.parts
        await parts.tasks.wait_for_rebalancing()
        self.tell_last_counts()
        if parts.handlers.attached:
            parts.handlers.detach()
        if parts.state is State.CLOSING:
            self._is_releasing = True
            parts.state = State.CLOSED
        # This may run twice, after a cancellation: leave the pool only once.
        permit, parts.detector.permit = parts.detector.permit, None
        if permit is not None:
            permit.leave()
        await self._registry().release(self, is_unfetched=bool(self.leftovers))

    def _registry(self) -> LoopRegistry:
        assert self.parts.loop is not None
        return LoopRegistry.of(self.parts.loop)

    async def _tell_leftovers(self) -> None:
        left = len(self.leftovers)
        told = f"{left} items of {self.parts.name!r} were left at shutdown"
        await tell_leftovers(self.parts, self.leftovers, told)

    def _say_unfetched(self) -> None:
        """Log leftovers for which no caller waits: they must not be lost silently."""
        if self.leftovers and not self._callers and self.parts.state in ENDED:
            say_unfetched(self.parts, len(self.leftovers))

    def _tell_manager(self) -> None:
        """Let the manager, and the registry if nothing is left, drop an ended queue."""
        if self.parts.state not in ENDED:
            return
        if not self.leftovers:
            self._registry().forget(self)
        if self.on_closed is not None:
            self.on_closed()

    def suspend(self) -> None:
        """Let no handler be called: all tasks of the loop are being cancelled."""
        self.parts.tasks.suspend()

    def resume(self) -> None:
        """Start the cancelled tasks again, since the loop goes on."""
        if self.parts.state is State.RUNNING:
            self.parts.tasks.revive()
        elif self.parts.state is State.CLOSING:
            self._begin()

    def abandon(self) -> None:
        """Become unusable and empty: this is a forked child."""
        parts = self.parts
        if parts.state is not State.CLOSED:
            parts.state = State.INHERITED
        parts.layout.abandon()
        if parts.loop is not None:
            LoopRegistry.of(parts.loop).forget(self)


def _is_cut_short(task: asyncio.Task[None]) -> bool:
    """Whether it was cancelled, or a signal handler has raised in the middle of it."""
    return task.done() and (task.cancelled() or task.exception() is not None)
