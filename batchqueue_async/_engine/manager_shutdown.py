"""The end of a manager's queues: one after the other, under one deadline.

It runs on a task of its own, so that it goes on when its caller is cancelled, and so
that a handler of one of the queues can ask for it without waiting for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from batchqueue_async._engine.handlers.handler_lock_and_call import outside
from batchqueue_async._engine.queue import BatchQueue, parts_of
from batchqueue_async._log import logger
from batchqueue_async._threads.clock import sleep


class ManagerShutdown:
    """One shutdown, shared by all callers that ask for one while it is under way.

    Args:
        queues: Returns all queues.
        next_queue: Returns the next queue to end: none of the first ones, and, unless
            these are None, one of the second ones.
        under_way: Returns the queues whose shutdown has begun.
    """

    def __init__(
        self,
        queues: Callable[[], Iterable[BatchQueue[Any]]],
        next_queue: Callable[
            [set[BatchQueue[Any]], set[BatchQueue[Any]] | None], BatchQueue[Any] | None
        ],
        under_way: Callable[[], Iterable[BatchQueue[Any]]],
    ) -> None:
        self._queues = queues
        self._next_queue = next_queue
        self._under_way = under_way
        self._loop = asyncio.get_running_loop()
        self._deadlines: list[float] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_late = False
        # Those that there were at the deadline, or when the last caller came after it.
        # Others are left: where each item creates its queue anew, one always comes.
        self._last: set[BatchQueue[Any]] | None = None
        # Whether a caller wants leftovers to go to `on_error`.
        self._tells = False
        # How many callers wait for the lists of leftovers.
        self._listers = 0
        # What was left of each queue. A caller takes it without a call in between: a
        # signal handler that raises could cut that short, and nobody had it then.
        self._left: list[tuple[BatchQueue[Any], list[Any]]] = []
        self.task = outside(self._loop.create_task, self._run())
        self.task.set_name("closing of a manager's queues")

    def begin(self, deadline: float | None, *, tells: bool) -> None:
        """Add a caller that does not wait: what it asked for holds for good."""
        self._tells |= tells
        # Whoever comes later may come because nothing moves.
        for queue in self._under_way():
            parts_of(queue).tasks.wake()
        if self._is_late:
            self._last = {*self._queues()}
        if deadline is not None:
            self._deadlines.append(deadline)
            self._set_timer()

    @contextlib.contextmanager
    def awaited(self, deadline: float | None, *, tells: bool) -> Iterator[None]:
        """Add a caller that waits inside of the block.

        If the caller is cancelled its deadline is dropped: the next one brings its own.
        """
        self.begin(deadline, tells=tells)
        self._listers += not tells
        try:
            yield
        except BaseException:
            if deadline is not None:
                self._deadlines.remove(deadline)
                self._set_timer()
            raise
        finally:
            self._listers -= not tells
            self._return_lists()

    async def lists_within(
        self,
        deadline: float | None,
        wait_for: Callable[[asyncio.Task[None]], Awaitable[None]],
        *,
        tells: bool,
    ) -> dict[str, list[Any]] | None:
        """Wait for the end; return what was left, or None if the task was cancelled."""
        taken: list[tuple[BatchQueue[Any], list[Any]]] = []
        try:
            with self.awaited(deadline, tells=tells):
                await wait_for(self.task)
                if self.task.cancelled():
                    return None
                self.task.result()
                if tells:
                    return {}
                lists = self._lists()
                taken, self._left = self._left, taken
                return lists
        except BaseException:
            self._left += taken
            self._return_lists()
            raise

    def _lists(self) -> dict[str, list[Any]]:
        """Return what is left, by queue name; the first caller takes `_left`, too."""
        lists: dict[str, list[Any]] = {}
        for queue, items in self._left:
            lists.setdefault(queue.name, []).extend(items)
        return lists

    async def _run(self) -> None:
        # An eager task gets here before its first caller has said what it wants.
        await sleep(0)
        seen: set[BatchQueue[Any]] = set()
        try:
            while (queue := self._next_queue(seen, self._last)) is not None:
                seen.add(queue)
                try:
                    await self._end(queue)
                except Exception:  # noqa: BLE001 - one failure does not stop the rest
                    name = queue.name
                    logger.exception("queue %r failed to shut down", name, queue=name)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._return_lists()

    async def _end(self, queue: BatchQueue[Any]) -> None:
        # The deadline is this run's, and may change, so the queue gets none.
        timeout = 0.0 if self._is_late else None
        if self._tells:
            await queue.close(timeout)
        else:
            left = await queue.shutdown(timeout)
            self._left.append((queue, left))

    def _return_lists(self) -> None:
        """Return lists that no caller waits for to their queues."""
        while self._left and not self._listers:
            queue, items = self._left[0]
            if items:
                parts_of(queue).lifecycle.give_back(items)
            del self._left[0]

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deadlines and not self._is_late and not self.task.done():
            self._timer = self._loop.call_at(min(self._deadlines), self._expire)

    def _expire(self) -> None:
        self._is_late, self._last = True, {*self._queues()}
        for queue in self._under_way():
            parts_of(queue).lifecycle.shorten_deadline(0.0)
