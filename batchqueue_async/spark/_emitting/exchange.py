"""A task's work on the loop, in steps that its own thread asks for.

The thread that has the input is the one that takes the output. So it never waits for
the queue to accept items without taking what is emitted meanwhile: a handler that waits
for room in the output always gets it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from batchqueue_async import BatchQueue, BatchQueueError

from .output import Output


class Step(NamedTuple):
    """What a step came to.

    Attributes:
        rows: What was emitted, if it is enough to be passed on.
        is_done: Whether the work that was begun is done.
    """

    rows: list[Any]
    is_done: bool


class Exchange:
    """One task's items in, and its rows out. On the loop alone."""

    def __init__(
        self, queue: BatchQueue[Any], flush: Callable[[], None], output: Output
    ) -> None:
        self._queue = queue
        self._flush_all = flush
        self._output = output
        self._work: asyncio.Task[None] | None = None

    async def put(self, items: list[Any]) -> Step:
        """Begin to put items into the queue, and do a step."""
        return await self._begin(self._put(items))

    async def flush(self) -> Step:
        """Begin to flush all queues, and do a step."""
        return await self._begin(asyncio.to_thread(self._flush_all))

    async def advance(self) -> Step:
        """Go on until the work is done, or there are enough rows."""
        work, output = self._work, self._output
        assert work is not None
        while not (work.done() or output.is_full):
            output.news.clear()
            await output.news.wait()
        if work.done():
            self._raise_error_of(work)
        return Step(output.take() if output.is_full else [], work.done())

    async def abandon(self) -> None:
        """Give the work up, and let nobody wait for it."""
        if self._work is not None:
            self._work.cancel()
        self._output.give_up()

    async def _begin(self, work: Coroutine[Any, Any, None]) -> Step:
        self._work = asyncio.create_task(work, name="map_partitions_with_queue")
        self._work.add_done_callback(lambda _: self._output.news.set())
        return await self.advance()

    async def _put(self, items: list[Any]) -> None:
        accepted = await self._queue.produce_many(items)
        if accepted < len(items):
            msg = (
                f"queue {self._queue.name!r} accepted {accepted} of {len(items)} items:"
                " it is closed, or drops new items"
            )
            raise BatchQueueError(msg)
        if self._queue.stats().failed:
            # It raises what failed; the rest of the rows would be in vain.
            await asyncio.to_thread(self._flush_all)

    @staticmethod
    def _raise_error_of(work: asyncio.Task[None]) -> None:
        if work.cancelled():
            # Raised as it is, it would cancel whoever asks for the step.
            msg = "the queue's work for a task of Spark's was cancelled"
            raise BatchQueueError(msg)
        work.result()
