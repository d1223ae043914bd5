"""The end of a queue: drain, call `on_close`, and account for what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from batchqueue_async._engine.handlers.registry import Registration
from batchqueue_async._engine.handlers.user_call import GRACE
from batchqueue_async._engine.runtime.cancellation import cancel_for_good
from batchqueue_async._engine.runtime.log import logger

if TYPE_CHECKING:
    from batchqueue_async._engine.parts import Parts

T = TypeVar("T")


class Closing(Generic[T]):
    """One queue's shutdown; its deadlines hold however often `run` is cut short."""

    def __init__(self, parts: Parts[T]) -> None:
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.Future[None] = self._loop.create_future()
        self._timers: list[asyncio.TimerHandle] = []
        # The `on_close` that runs.
        self._calling: tuple[Registration, asyncio.Task[None]] | None = None

    def end_within(self, timeout: float | None) -> None:
        """Set a deadline; of several, the earliest counts."""
        if timeout is not None and not self._deadline.done():
            self._timers.append(self._loop.call_later(timeout, self.end_now))

    def end_now(self) -> None:
        """The deadline has come."""
        if not self._deadline.done():
            self._deadline.set_result(None)

    async def run(self) -> list[T]:
        """Drain until done or until the deadline; goes on where it was cancelled.

        Returns:
            What was not handled: what was in flight first, then what waited.
        """
        hooks = self._parts.hooks
        await self._drain()
        await self._wait_for(hooks.flushing)
        await self._close_handlers()
        await self._stop()
        hooks.skip(self._parts.handlers.to_close())
        # No later call may set a timer any more.
        self.end_now()
        for timer in self._timers:
            timer.cancel()
        self._parts.detector.calls.stop()
        return take_leftovers(self._parts)

    async def _drain(self) -> None:
        tasks = self._parts.tasks
        while not self._deadline.done():
            # Who was cancelled meanwhile starts again.
            tasks.revive()
            if all(task.done() for task in tasks.running.values()):
                return
            await self._wait_for(tasks.running.values())

    async def _wait_for(self, tasks: Iterable[asyncio.Task[Any]]) -> bool:
        """Wait for the tasks; False if the deadline came first."""
        pending = {task for task in tasks if not task.done()}
        while pending and not self._deadline.done():
            await asyncio.wait(
                {*pending, self._deadline}, return_when=asyncio.FIRST_COMPLETED
            )
            pending = {task for task in pending if not task.done()}
        return not pending

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
        tasks = (*self._parts.tasks.running.values(), *hooks.flushing)
        await self._cancel([each for each in tasks if not each.done()])
        hooks.abandon_flushes()

    async def _cancel(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        if not tasks:
            return
        for task in tasks:
            cancel_for_good(task)
        _, survivors = await asyncio.wait(tasks, timeout=GRACE)
        for task in survivors:
            logger.error(
                "%s: a handler does not stop at the deadline; %s is left behind",
                self._parts.name,
                task.get_name(),
            )


def take_leftovers(parts: Parts[T]) -> list[T]:
    """Take out what was not handled; it ends as returned."""
    left: list[T] = []
    for drain_task in parts.tasks.running:
        for batch in drain_task.in_flight.unsettled():
            left.extend(batch.items)
            batch.settle("returned")
    for partition in parts.partitions:
        left.extend(partition.take_rest())
    parts.failures.add("returned", left)
    return left
