"""The end of a queue: by its shutdown, with its loop, or after that.

Invariant: whatever ends it, what is left unhandled is in `leftovers` until a caller of
`shutdown` has it, or `on_error` and the log have told of it.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Generic, TypeVar

from batchqueue_async._engine.closing import Closing, leftovers
from batchqueue_async._engine.crew import Crew
from batchqueue_async._engine.handler_waits import EndWait
from batchqueue_async._engine.keeper import Keeper, Kept
from batchqueue_async._engine.layout import Layout
from batchqueue_async._engine.leftovers import Leftovers
from batchqueue_async._engine.log import logger
from batchqueue_async._engine.reentrancy import outside
from batchqueue_async._engine.state import State
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.deadlines import SHUTDOWN_TIMEOUT, Timeout
from batchqueue_async._policies.validation import require_timeout
from batchqueue_async._shielding import Shielded

if TYPE_CHECKING:
    from batchqueue_async._engine.lifecycle import Lifecycle

T = TypeVar("T")


class Shutdown(Generic[T]):
    """Ends one queue, whoever asks for it, and however often."""

    __slots__ = (
        "_callers",
        "_closing",
        "_config",
        "_layout",
        "_lifecycle",
        "_queue",
        "_task",
        "_tells_leftovers",
        "leftovers",
    )

    def __init__(
        self,
        queue: Kept,
        config: BatchQueueConfig[T],
        layout: Layout[T],
        lifecycle: Lifecycle[T],
    ) -> None:
        self._queue = queue
        self._config = config
        self._layout = layout
        self._lifecycle = lifecycle
        self._closing: Closing[T] | None = None
        self._task: asyncio.Task[None] | None = None
        # Calls of `shutdown` that wait: one of them gets the list.
        self._callers = 0
        self.leftovers = Leftovers(
            queue.name, config, lifecycle.delivery, lifecycle.own_work
        )
        self._tells_leftovers = False

    async def run(self, timeout: float | None) -> list[T]:
        require_timeout("timeout", timeout)
        if self._lifecycle.state is State.NEW:
            self._lifecycle.state = State.CLOSED
            self._layout.close()
        self._lifecycle.require_own_loop()
        crew = self._lifecycle.crew
        if crew is None or self._lifecycle.state is State.INHERITED:
            return []
        self._begin(crew).end_within(timeout)
        if self._lifecycle.own_work.is_inside:
            return []
        self._callers += 1
        try:
            await self._ended(crew)
        except BaseException:
            self._callers -= 1
            self._say_unfetched()
            raise
        self._callers -= 1
        left = self.leftovers.take()
        self._tell_closed()
        return left

    def hurry(self, timeout: float) -> None:
        """Bring the deadline of a shutdown that is under way forward."""
        if self._closing is not None:
            self._closing.end_within(timeout)

    async def close(self, timeout: Timeout) -> None:
        """Shut down; leftovers are logged and passed on, so none is silent.

        Also when the caller is cancelled meanwhile: nobody takes the list then.
        """
        if timeout is SHUTDOWN_TIMEOUT:
            timeout = self._config.shutdown_timeout
        require_timeout("timeout", timeout)
        with Shielded():
            self._tells_leftovers = True
            left = await self.run(timeout)
            if left:
                # It had ended before, and nobody had come for the list.
                self._keep_leftovers(left)
                await self._tell_leftovers()
                self._tell_closed()

    def give_back(self, left: list[T]) -> None:
        """Take leftovers again: who got them from `shutdown` has no use for them."""
        self._keep_leftovers(left)
        self._say_unfetched()
        self._tell_closed()

    def go_on(self) -> None:
        """Begin again what was cancelled: the loop lives on."""
        crew = self._lifecycle.crew
        if crew is not None and self._lifecycle.state is State.CLOSING:
            self._begin(crew)

    async def end_with_loop(self) -> int | None:
        """Give up what is left: the loop ends now, and can still run.

        Returns:
            How many items were left; None if there was a shutdown after all.
        """
        crew, count = self._lifecycle.crew, None
        while crew is not None and self._lifecycle.state in (
            State.RUNNING,
            State.CLOSING,
        ):
            task = self._task
            if self._closing is not None and task is not None and not task.done():
                # Somebody shuts it down in these very moments.
                self._closing.end_within(self._config.shutdown_timeout)
                await asyncio.wait({task})
            else:
                count = await self._give_up(crew)
        if not self._callers:
            await self.leftovers.tell(self._loop_ended(count))
        return count

    async def _give_up(self, crew: Crew[T]) -> int:
        if self._lifecycle.state is State.RUNNING:
            self._lifecycle.state = State.LOST
        self._layout.close()
        closing = self._closing = self._closing or Closing(self._queue.name)
        closing.end_now()
        left = await closing.run(crew, self._layout, self._lifecycle.hooks)
        self._layout.failures.add("returned", left)
        self.leftovers.items += left
        await self._end(crew)
        return len(self.leftovers.items)

    def end_after_loop(self) -> int | None:
        """Give up what is left: the loop never runs again."""
        crew, count = self._lifecycle.crew, None
        if crew is not None and self._lifecycle.state is not State.CLOSED:
            is_shut_down = self._lifecycle.state is State.CLOSING
            self._lifecycle.state = State.CLOSED if is_shut_down else State.LOST
            self._layout.close()
            for partition in self._layout.partitions:
                # Who flushes cannot be woken any more.
                partition.accounts.watchers = None
            crew.abandon()
            left = leftovers(crew, self._layout.partitions)
            self._layout.failures.add("returned", left)
            self.leftovers.items += left
            self._layout.repeats.tell(math.inf)
            self._lifecycle.hooks.skip(self._layout.handlers.to_close())
            count = len(self.leftovers.items)
        self.leftovers.tell_after_loop(self._loop_ended(count))
        return count

    def _loop_ended(self, count: int | None) -> str:
        if count is None:
            return (
                f"nobody came for the {len(self.leftovers.items)} items that the "
                f"shutdown of {self._queue.name!r} had left before its loop ended"
            )
        return (
            f"the loop of queue {self._queue.name!r} ended without its shutdown: "
            f"{count} items are left"
        )

    def _begin(self, crew: Crew[T]) -> Closing[T]:
        closing = self._closing = self._closing or Closing(self._queue.name)
        task = self._task
        if not self._lifecycle.has_ended and (task is None or task.cancelled()):
            self._lifecycle.state = State.CLOSING
            self._layout.close()
            # First: an eager task may come to its end inside of `create_task`.
            crew.begin_closing()
            body = self._close(crew, closing)
            task = outside(asyncio.get_running_loop().create_task, body)
            task.add_done_callback(self._task_ended)
            self._task = task
        return closing

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        is_ending = Keeper.of(task.get_loop()).is_ending
        if task.cancelled() and task is self._task and not is_ending:
            # By a stranger; a shutdown goes on. Else the keeper sees to it.
            self.go_on()

    async def _ended(self, crew: Crew[T]) -> None:
        wait = self._lifecycle.own_work.end(lambda: self._lifecycle.has_ended)
        if wait is None:
            await self._closed(crew, None)
            return
        async with wait:
            wait.begin()
            await self._closed(crew, wait)

    async def _closed(self, crew: Crew[T], wait: EndWait | None) -> None:
        """Wait for the end.

        Args:
            crew: The queue's tasks.
            wait: A handler's, which ends also if it would wait for itself.

        Raises:
            CancelledError: The caller was cancelled, or a stranger has cancelled the
                task that it waits for; the closing goes on by itself.
        """
        while True:
            self._begin(crew)
            task = self._task
            if task is None or task.done():
                break
            # One that is being cancelled already, as all tasks are when a runner ends,
            # is begun again; so it is for who leaves `async with`.
            goes_on = task.cancelling() > 0
            if wait is None:
                await asyncio.wait({task})
            else:
                await wait.until(task)
            if task.cancelled() and not (goes_on or self._tells_leftovers):
                raise asyncio.CancelledError
        if task is not None and not task.cancelled():
            task.result()

    async def _close(self, crew: Crew[T], closing: Closing[T]) -> None:
        left = await closing.run(crew, self._layout, self._lifecycle.hooks)
        self._layout.failures.add("returned", left)
        self.leftovers.items += left
        if self._tells_leftovers:
            await self._tell_leftovers()
        await self._end(crew)
        self._say_unfetched()
        self._tell_closed()

    async def _end(self, crew: Crew[T]) -> None:
        await crew.end()
        self._layout.repeats.tell(math.inf)
        self._layout.handlers.detach()
        if self._lifecycle.state is State.CLOSING:
            self._lifecycle.state = State.CLOSED
        # Once, although a cancelled closing is begun again.
        permit, self._lifecycle.own_work.permit = self._lifecycle.own_work.permit, None
        if permit is not None:
            permit.capacity.leave()
        await Keeper.of(self._lifecycle.running_loop()).release(
            self._queue, is_unfetched=bool(self.leftovers.items)
        )

    def _keep_leftovers(self, left: list[T]) -> None:
        self.leftovers.items += left
        Keeper.of(self._lifecycle.running_loop()).hold(self._queue)

    async def _tell_leftovers(self) -> None:
        count = len(self.leftovers.items)
        await self.leftovers.tell(
            f"{count} items of {self._queue.name!r} were left at shutdown"
        )

    def _say_unfetched(self) -> None:
        """Nobody waits for the list of what was left: it must not be silent."""
        if self.leftovers.items and not self._callers and self._lifecycle.has_ended:
            logger.error(
                "%d items of %r were left at shutdown, and nobody waits for them; the "
                "next call of shutdown returns them",
                len(self.leftovers.items),
                self._queue.name,
            )

    def _tell_closed(self) -> None:
        """Let go of the queue where all is done: it is closed, and nothing is left."""
        if not self._lifecycle.has_ended:
            return
        if not self.leftovers.items:
            Keeper.of(self._lifecycle.running_loop()).forget(self._queue)
        if self._lifecycle.on_closed is not None:
            self._lifecycle.on_closed()
