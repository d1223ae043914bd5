"""The end of all queues of one loop, begun from any thread, or by a signal."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from batchqueue_async._engine.handlers.deadlock_detector import EndWait
from batchqueue_async._engine.handlers.handler_lock_and_call import (
    HandlerCall,
    current_call,
)
from batchqueue_async._engine.handlers.wait_for_graph import Node, end_of
from batchqueue_async._engine.runtime.loop_end import LoopRegistry, uncancel
from batchqueue_async._log import logger
from batchqueue_async._policies.errors import BatchQueueError, WouldDeadlock
from batchqueue_async._threads.clock import monotonic
from batchqueue_async._threads.event import ThreadEvent

if TYPE_CHECKING:
    from batchqueue_async._engine.lifecycle.lifecycle import Lifecycle

CallOnLoop: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]

# Seconds past the deadline that a queue may take to cancel handlers and tell.
_GRACE = 2.0


class LoopShutdown:
    """Shuts the loop's queues down, the last started first, by one deadline.

    Also those that were not opened through its `LoopThread`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.has_begun = False
        # Both are set when all queues are shut down: one for threads, one for the loop.
        self.done = ThreadEvent()
        self.ended = asyncio.Event()
        self._loop = loop
        self._deadline: float | None = None
        self._tells = True
        self._task: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._current: Lifecycle | None = None
        self._left: dict[str, list[Any]] = {}
        self._then: deque[Callable[[], object]] = deque()

    def begin(
        self,
        timeout: float | None,
        *,
        tells: bool,
        then: Callable[[], object] | None = None,
    ) -> None:
        """Begin; again it can only bring the deadline forward, or let it be told.

        May be called anywhere, also in a signal handler.

        Args:
            timeout: Seconds until handlers are cancelled; None for never.
            tells: Whether what is left then is logged and passed to `on_error`; else
                it is for `take_left`.
            then: Called when all queues are shut down, on any thread.
        """
        if then is not None:
            self._then.append(then)
        self._tells = tells or (self.has_begun and self._tells)
        self.has_begun = True
        if timeout is not None:
            deadline = monotonic() + timeout
            if self._deadline is None or deadline < self._deadline:
                self._deadline = deadline
        # In a new context, since the caller may be part of a handler's call. It raises
        # if the loop is closed, where nothing is left to be done.
        try:
            self._loop.call_soon_threadsafe(self._begin_or_shorten, context=Context())
        except RuntimeError:
            self.go_on()

    def go_on(self) -> None:
        """Call the callbacks for the end of the shutdown."""
        # Popped one by one: the loop's thread and a caller of `begin` may both be here.
        with contextlib.suppress(IndexError):
            while True:
                self._then.popleft()()

    def seconds_left(self) -> float | None:
        """Return how long it is until the deadline; None if there is none."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - monotonic())

    def is_overdue(self, late: float) -> bool:
        """Whether so many seconds past the deadline are more than the loop may need."""
        return late > _GRACE * (1 + len(self.queues()))

    def queues(self) -> list[Lifecycle]:
        """Return the loop's queues that are not shut down, in order of their start."""
        return LoopRegistry.of(self._loop).queues

    def wait_as_handler(self, on_loop: CallOnLoop) -> None:
        """Wait for the end, if a handler on another loop calls.

        Raises:
            WouldDeadlock: The handler would wait for itself. The shutdown goes on, and
                tells what it leaves.
        """
        call = current_call()
        if call is None:
            return
        try:
            on_loop(partial(self._ended_for, call))
        except WouldDeadlock:
            self.begin(None, tells=True)
            raise
        except BatchQueueError:
            # Who waits for the thread's end tells of a loop that is dead.
            return

    async def _ended_for(self, call: HandlerCall) -> None:
        what = "the shutdown of a LoopThread, which goes on"
        async with EndWait(call, self._ends, what) as wait:
            wait.begin()
            if self._task is not None:
                await wait.until(self._task)

    def _ends(self) -> list[Node]:
        queues = self.queues()
        return [node for each in queues for node in end_of(each.parts.detector)]

    def take_left(self) -> dict[str, list[Any]]:
        """Return what the deadline left, by queue, and log how much that is.

        The second call gets nothing.
        """
        left, self._left = self._left, {}
        for name, items in left.items():
            if items:
                logger.error(
                    "%d items of %r were left at shutdown",
                    len(items),
                    name,
                    queue=name,
                    items=len(items),
                )
        return left

    def log_left(self, why: str) -> None:
        """Say what is lost, where the loop has not done so in time, and why."""
        for queue in self.queues():
            queue.tell_last_counts()
            if count := queue.count_left():
                logger.error(
                    "%d items of %r are left: %s",
                    count,
                    queue.name,
                    why,
                    queue=queue.name,
                    items=count,
                )

    def _begin_or_shorten(self) -> None:
        if self._task is None:
            self._task = self._loop.create_task(self._drain())
            self._task.set_name("batchqueue_async draining")
        elif self._current is not None:
            left = self.seconds_left()
            if left is not None:
                self._current.shorten_deadline(left)
            if self._tells and self._telling is None:
                # What is left is told to `on_error` now, no longer returned.
                self._telling = self._loop.create_task(self._current.close(left))

    async def _drain(self) -> None:
        ended: list[Lifecycle] = []
        while True:
            pending = [each for each in self.queues() if each not in ended]
            if not pending:
                self.ended.set()
                self.done.set()
                self.go_on()
                return
            self._current = pending[-1]
            try:
                await self._end(self._current)
            except asyncio.CancelledError:
                # Somebody cancelled all tasks of a loop that goes on.
                uncancel()
                continue
            except Exception:  # noqa: BLE001 - one failure does not stop the rest
                name = self._current.name
                logger.exception("queue %r failed to shut down", name, queue=name)
            ended.append(self._current)
            self._current = None

    async def _end(self, queue: Lifecycle) -> None:
        left = self.seconds_left()
        if self._tells:
            await queue.close(left)
        else:
            items = await queue.shutdown(left)
            self._left.setdefault(queue.name, []).extend(items)
