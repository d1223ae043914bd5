"""What ends a task or a queue: a cancellation for good, or the end of its loop.

A drain task ends at its queue's deadline, and with its loop. Any other cancellation
that reaches it comes from user code, such as a handler that cancels the task it runs
in; that must not end the draining.

A registry keeps started queues alive, and ends them if their loop ends without a
shutdown. A sleeping drain task is referenced by its queue only: without the registry, a
queue to which its user keeps no reference would be collected with its items. The
registry is an attribute of the loop, so it never outlives it. It learns of the loop's
end as an asynchronous generator does, while the loop can still run; else when the loop
is closed or collected, or at the program's end.

A loop's canary task is cancelled only by code that cancels all tasks of the loop, which
is how most loops end. If a runner does that as it is left, this is the loop's end. Else
it may go on: if it does, all queues start again after a moment.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import sys
import warnings
import weakref
from collections.abc import AsyncGenerator, Callable
from contextvars import Context
from types import FrameType
from typing import TYPE_CHECKING, Any

from batchqueue_async._loop_close import call_at_close, expect_no_end
from batchqueue_async._loop_time import kept_by
from batchqueue_async._threads.clock import sleep

if TYPE_CHECKING:
    from batchqueue_async._engine.lifecycle.lifecycle import Lifecycle

GRACE = 0.1
"""Seconds that a cancelled handler may take to clean up before it is left behind."""

RESTART_AFTER = 0.05
"""Seconds in which a loop whose tasks were all cancelled may end before a restart."""


_cancelled_for_good: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

# Unique names: if a notebook reloaded the library, the copy from before may have left
# its attributes on the loop, and their classes are not those of this copy.
_REGISTRY = f"_batchqueue_async_registry_{id(_cancelled_for_good)}"
_CANARY = f"_batchqueue_async_canary_{id(_cancelled_for_good)}"


def cancel_for_good(task: asyncio.Task[Any]) -> None:
    """Cancel a task that must end; it ignores other cancellations."""
    _cancelled_for_good.add(task)
    task.cancel()


def is_cancelled_for_good() -> bool:
    """Whether the current task must end, by `cancel_for_good` or with its loop."""
    task = asyncio.current_task()
    return task in _cancelled_for_good or is_ending(asyncio.get_running_loop())


def uncancel() -> None:
    """Drop the current task's cancellations, which came from user code."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


async def absorb_cancellation() -> None:
    """Receive and drop a cancellation that user code has requested of this task.

    Left pending, it would be raised in whatever is called next.
    """
    task = asyncio.current_task()
    if task is None or not task.cancelling() or is_cancelled_for_good():
        return
    with contextlib.suppress(asyncio.CancelledError):
        await sleep(0)
    if is_cancelled_for_good():
        # Meanwhile the task was cancelled for good.
        task.cancel()
    else:
        uncancel()


class CanaryTask(asyncio.Task[None]):
    """A task that is cancelled only with all others of its loop, and reports it."""

    is_stray = False
    """Whether it was cancelled while its loop ran, which may go on."""
    on_cancel: Callable[[], None] = staticmethod(lambda: None)

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ANN401 - as in Task
        self.is_stray = self.get_loop().is_running()
        if not self.done():
            self.on_cancel()
        return super().cancel(msg)


def canary_of(loop: asyncio.AbstractEventLoop) -> CanaryTask | None:
    canary: CanaryTask | None = getattr(loop, _CANARY, None)
    return canary


def is_ending(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether all tasks of the loop are being cancelled, as at its end."""
    canary = canary_of(loop)
    # Without a canary no queue runs: the tasks of a failed start end with the loop.
    return canary is None or canary.done() or canary.cancelling() > 0


def is_being_left() -> bool:
    """Whether the loop runs only inside of `Runner.close`, after the main task."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None and frame.f_code is not asyncio.Runner.close.__code__:
        frame = frame.f_back
    return frame is not None


class LoopRegistry:
    """The started queues of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weakly, so that the loop is collected as soon as nobody else holds it.
        self._loop = weakref.ref(loop)
        self._queues: dict[int, Lifecycle] = {}
        # Queues that were shut down, with leftovers that nobody has fetched so far.
        self._unfetched: dict[int, Lifecycle] = {}
        self._sentinel: AsyncGenerator[None, None] | None = None
        # Whether it has done its first step.
        self._is_watching = False
        self._is_ending = False
        self._restart: asyncio.TimerHandle | None = None
        # Those of which it was said that they are lost, as the program ends.
        self._said_lost: set[int] = set()
        # Names and counts of what was lost, for the warning.
        self._lost: list[tuple[str, int]] = []
        _registries.add(self)
        # The warning waits until the loop is collected: where warnings are errors, it
        # would make closing the loop fail.
        call_at_close(loop, self.end_after_loop)

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> LoopRegistry:
        """Return the loop's registry; the first call makes it."""
        return kept_by(loop, _REGISTRY, lambda: LoopRegistry(loop))

    @property
    def queues(self) -> list[Lifecycle]:
        return list(self._queues.values())

    async def register(self, queue: Lifecycle) -> None:
        self._queues[id(queue)] = queue
        # Each time: a forked child may go on with its parent's loop, and registry.
        if _call_where_no_atexit is not None:
            _call_where_no_atexit(_end_at_exit)
        self.ensure_canary()
        self._begin_to_watch()

    def ensure_canary(self) -> None:
        """Start the canary, also again after it was cancelled and the loop goes on.

        A restart stays set: one queue may be needed at once, and the others have items.
        """
        loop = asyncio.get_running_loop()
        known = canary_of(loop)
        if known is None or known.done():
            # Not in the context of a handler that may have started a queue.
            canary = CanaryTask(
                _wait_for_ever(),
                loop=loop,
                name="batchqueue_async canary",
                context=Context(),
            )
            canary.on_cancel = self._suspend
            canary.add_done_callback(self._canary_ended)
            expect_no_end(canary)
            setattr(loop, _CANARY, canary)

    async def release(self, queue: Lifecycle, *, is_unfetched: bool) -> None:
        """Let go of a queue that was shut down; with leftovers not until `forget`."""
        self.forget(queue)
        if is_unfetched:
            self._unfetched[id(queue)] = queue
        if self._queues:
            return
        self._call_restart_off()
        await self._end_canary()
        if self._unfetched or self._queues:
            return
        sentinel, self._sentinel = self._sentinel, None
        if sentinel is not None:
            await sentinel.aclose()

    def keep_unfetched(self, queue: Lifecycle) -> None:
        """Keep a queue that was shut down, since it has leftovers again."""
        self._unfetched[id(queue)] = queue
        # Those were a manager's as the last queue was released, which ended the watch.
        if not self._is_ending and asyncio._get_running_loop() is self._loop():  # noqa: SLF001
            self._begin_to_watch()

    def forget(self, queue: Lifecycle) -> None:
        self._queues.pop(id(queue), None)
        self._unfetched.pop(id(queue), None)

    def end_after_loop(self) -> None:
        """End the queues of a loop that never runs again."""
        for queue in self._all():
            try:
                self._see_off(queue, queue.end_after_loop())
            except Exception as error:  # noqa: BLE001 - it does not stop the rest
                self._see_off(queue, None)
                queue.could_not_end(error)

    def end_at_exit(self) -> None:
        """End the queues, as the program ends; log them if the loop still runs."""
        loop = self._loop()
        if loop is None or not loop.is_running():
            self.end_after_loop()
            self._warn()
            return
        for key, queue in list(self._queues.items()):
            # A process of `multiprocessing` that has an `atexit` comes here twice.
            if key not in self._said_lost and queue.say_lost():
                self._said_lost.add(key)

    def __del__(self) -> None:
        self.end_after_loop()
        self._warn()

    def shared(self, context: Context) -> Context:
        """Return the newest queue's context if it has the same variables.

        Most queues are started in the same one, and a copy for each takes memory.
        """
        for queue in reversed(self._queues.values()):
            if (known := queue.parts.tasks.context) is not None:
                # Not `==`, which may ask the values, and they are the user's.
                is_same = len(known) == len(context) and all(
                    known.get(each, known) is value for each, value in context.items()
                )
                return known if is_same else context
        return context

    def _all(self) -> list[Lifecycle]:
        return [*self._queues.values(), *self._unfetched.values()]

    def _begin_to_watch(self) -> None:
        if self._is_watching:
            return
        self._sentinel = self._watch()
        # Its first step, which waits for nothing, registers it with the loop.
        with contextlib.suppress(StopIteration):
            self._sentinel.__anext__().send(None)

    async def _watch(self) -> AsyncGenerator[None, None]:
        self._is_watching = True
        try:
            yield
        finally:
            self._is_watching, self._sentinel = False, None
            running = asyncio._get_running_loop()  # noqa: SLF001
            # Without queues it has ended in this step. To await it in `release` would
            # let the loop's end find it running.
            if running is not None and running is self._loop() and self._all():
                await self._end_with_loop()

    async def _end_with_loop(self) -> None:
        self._call_restart_off()
        # The loop takes no further generators on by now.
        self._is_ending = True
        # Other asynchronous generators that end now may shut a queue of theirs down:
        # let them begin first.
        await sleep(0)
        queues = self._all()
        counts = await asyncio.gather(
            *(each.end_with_loop() for each in queues), return_exceptions=True
        )
        for queue, count in zip(queues, counts, strict=True):
            if isinstance(count, BaseException):
                queue.could_not_end(count)
            else:
                self._see_off(queue, count)
        await self._end_canary()
        self._warn()

    @staticmethod
    async def _end_canary() -> None:
        loop = asyncio.get_running_loop()
        canary = canary_of(loop)
        # Cancelled first: struck in between, one that nobody knows would live on.
        if canary is not None:
            canary.cancel()
        setattr(loop, _CANARY, None)
        if canary is not None and not canary.done():
            await asyncio.wait({canary})

    def _see_off(self, queue: Lifecycle, count: int | None) -> None:
        self.forget(queue)
        if queue.on_closed is not None:
            # This frees the queue's name: its manager may be used on another loop.
            queue.on_closed()
        if count is not None:
            self._lost.append((queue.name, count))

    def _warn(self) -> None:
        lost, self._lost = self._lost, []
        for name, count in lost:
            message = (
                f"the loop of queue {name!r} ended without its shutdown: {count} "
                "items are left"
            )
            try:
                warnings.warn(message, ResourceWarning, stacklevel=2)
            except ResourceWarning as error:
                _Unraisable(error)

    def _suspend(self) -> None:
        for queue in list(self._queues.values()):
            queue.suspend()

    def _canary_ended(self, canary: asyncio.Task[None]) -> None:
        loop = canary.get_loop()
        known = canary_of(loop)
        may_go_on = known is not None and (known.is_stray or not is_being_left())
        if canary is known and may_go_on and self._queues:
            self._call_restart_off()
            self._restart = loop.call_later(RESTART_AFTER, self._resume)

    def _resume(self) -> None:
        self._restart = None
        self.ensure_canary()
        for queue in list(self._queues.values()):
            queue.resume()

    def look_for_waits(self) -> None:
        """Look in a moment who waits for a queue, though the loop is being left.

        A task that cleans up may flush, or wait for room: the loop waits for its end.
        """
        if self._restart is None and not self._is_ending:
            loop = asyncio.get_running_loop()
            self._restart = loop.call_later(RESTART_AFTER, self._resume_waited_for)

    def _resume_waited_for(self) -> None:
        self._restart = None
        for queue in list(self._queues.values()):
            if queue.parts.tasks.are_waited_for:
                self.ensure_canary()
                queue.resume()

    def _call_restart_off(self) -> None:
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None


class _Unraisable:
    """Gives an error to `sys.unraisablehook`, by which pytest fails a test.

    For a warning that is an error: raised where a loop ends, asyncio would log it, and
    the first one would silence the others.
    """

    def __init__(self, error: ResourceWarning) -> None:
        self._error = error

    def __del__(self) -> None:
        raise self._error from None


async def _wait_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


_registries: weakref.WeakSet[LoopRegistry] = weakref.WeakSet()
_call_where_no_atexit: Callable[[Callable[[], None]], None] | None = None


def told_of_end_by(call_where_no_atexit: Callable[[Callable[[], None]], None]) -> None:
    """Set what calls at the end of a process without `atexit`, after its threads."""
    global _call_where_no_atexit  # noqa: PLW0603 - set once, by the package's import
    _call_where_no_atexit = call_where_no_atexit


@atexit.register
def _end_at_exit() -> None:
    # Where warnings are errors, that of one loop does not keep others from ending.
    with contextlib.ExitStack() as all_of_them:
        for registry in list(_registries):
            all_of_them.callback(registry.end_at_exit)
